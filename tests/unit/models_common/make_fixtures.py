# SPDX-License-Identifier: Apache-2.0
"""Records what other programs compute, for the tests of models/common.

    python3 make_fixtures.py ORACLES OUT     ORACLES has qwen36/, OUT is tests/fixtures/models_common

Needs numpy, tokenizers (made with 0.23.3), safetensors. Texts use characters that Unicode 14 assigns:
the libraries compared carry different versions of Unicode.
"""
import hashlib
import json
import os
import random
import struct
import sys
import unicodedata

import numpy as np
from tokenizers import Tokenizer

GPT2 = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CLASSES = r"\d+|\h\H|\w+|[\w\s]|[^\s\d]|\S\S|\W"
SCRIPTS = r"\p{Han}+|\p{Latin}+|\P{Cyrillic}|^\p{Cyrillic}+$|\p{^L}"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


def split(pattern):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}, BYTE_LEVEL]}}


def added(first_id, *tokens):
    """tokens: (content, flags) -> a list as tokenizer.json has it; flags: words out of lrwns."""
    return [{"id": first_id + i, "content": content, "lstrip": "l" in flags, "rstrip": "r" in flags,
             "single_word": "w" in flags, "normalized": "n" in flags, "special": "s" in flags}
            for i, (content, flags) in enumerate(tokens)]


ADDED = added(1800, ("<s>", "s"), ("<s>x", ""), ("[L]", "l"), ("[R]", "r"), ("[LR]", "lrs"), ("word", "w"),
              ("caf\u00e9", "n"), ("e\u0301e", "n"), ("  two", ""), ("\u00e9\u00e9", ""), ("[W]", "wl"))

# A name, and what is different from the small Qwen tokenizer: members of the file, and of "model".
VARIANTS = [
    ("gpt2", {"pre_tokenizer": GPT2, "normalizer": None}),
    ("gpt2 with prefix space", {"pre_tokenizer": {**GPT2, "add_prefix_space": True}}),
    ("cl100k", split({"Regex": CL100K})),
    ("o200k", {**split({"Regex": O200K}), "model": {"ignore_merges": True}}),
    ("classes", split({"Regex": CLASSES})),
    ("scripts", split({"Regex": SCRIPTS})),
    ("empty matches", split({"Regex": r"(?=[a-z])|x*"})),
    ("literal", split({"String": "a.b"})),
    ("two splits and a prefix", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": False},
        {"type": "Split", "pattern": {"Regex": r"\p{N}"}, "behavior": "Isolated", "invert": False},
        {**BYTE_LEVEL, "add_prefix_space": True}]}}),
    ("sequences", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
                   "post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL]}}),
    ("no post processor", {"post_processor": None}),
    ("added tokens", {"added_tokens": ADDED}),
]

POOLS = [
    "abcdefghijklmnopqrstuvwxyz ETAOIN", "0123456789 .,-+", " \t\n\r\u00a0\u2003\u3000\u0085\u180e\u2028\x0b\x0c",
    "'sStTrRevVmMlLdD\u017f\u212a ", "!?#$%&()[]{}<>|/\\\"`~^_=@*", "\u0430\u0431\u0432\u0451\u0457 \u0410\u0411",
    "\u4e00\u4e8c\u4e09\u6c49\u5b57\u3042\u30a2\uff76\uff9e\uac00\ub098", "\u1100\u1161\u11a8\uac00\u11a8",
    "e\u0301\u0327a\u030a\u0323o\u0302\u0308 \u0344", "\u0928\u093c\u0915\u093c\u09c7\u09be\u0b47\u0b3e",
    "\U0001f600\U0001f468\u200d\U0001f469\ufe0f\u20e3\U0001f1e9\U0001f1ea", "\u00bd\u00b2\u2168\u24b6\u0661\u0967",
    "\u05d0\u05b0\u0627\u0644\u064b\u0e01\u0e33\u1780\u17d2", "\u2126\u212b\u0958\ufb1d\uf900\U0002f800\u0340",
    "<s>x [L]\t[R] [LR]word caf\u00e9e\u0301e  two\u00e9\u00e9[W]", "a.b x<|im_end|> <think>",
]
ASSIGNED = [chr(c) for c in range(0x20, 0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
WORDS = ["<s>", "<s>x", "[L]", " [R] ", "[LR]", "word", "a word!", "caf\u00e9", "cafe\u0301", "e\u0301e", "\u00e9e", "  two",
         "\u00e9\u00e9", "[W]", "<|im_start|>", "<|im_end|>", "<think>\n", "</think>", "don't", "I'LL", "it'\u017f", "a.b", "\r\n\r\n",
         "   ", "x   y", "\n \n", "12345", "3.14", "https://x.org/a?b=c", "\u6771\u4eac", "\u0440\u0430\u0437", "na\u00efve", "\u1e9b\u0323"]


def texts(rng, count):
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(1, 8)):
            kind = rng.random()
            if kind < 0.4:
                pool = rng.choice(POOLS)
                parts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 10))))
            elif kind < 0.8:
                parts.append(rng.choice(WORDS) + rng.choice(["", " ", "\n"]))
            else:
                parts.append("".join(rng.choice(ASSIGNED) for _ in range(rng.randint(1, 4))))
        yield "".join(parts)


def encodings(base, rng):
    """-> [{"name", "changes", "cases": [{"text", "ids", "decoded", "decoded_skip_special"}]}]"""
    out = []
    for name, changes, count in [("qwen", {}, 400)] + [(n, p, 60) for n, p in VARIANTS]:
        whole = {**base, **changes, "model": {**base["model"], **changes.get("model", {})}}
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        cases = []
        for text in texts(rng, count):
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                          "decoded_skip_special": tokenizer.decode(ids, skip_special_tokens=True)})
        out.append({"name": name, "changes": changes, "cases": cases})
    return out


def dequantised(oracles):
    """-> {fixture: {linear: {"rows", "columns", "sha256" of the float32 values}}}"""
    sys.path.insert(0, os.path.join(oracles, "qwen36"))
    import qwen36_ref as ref
    out = {}
    for fixture in ("dense_fp8_block", "dense_nvfp4_ct", "dense_nvfp4_modelopt"):
        raw = ref.read_safetensors(os.path.join(oracles, "qwen36", fixture, "model.safetensors"))
        entries = out[fixture] = {}
        for name in sorted(raw):
            base, _, last = name.rpartition(".")
            if last in ("weight", "weight_packed") and raw[name].data.ndim == 2:
                values = np.ascontiguousarray(ref.dequantise(raw, base), np.float32)
                entries[base] = {"rows": values.shape[0], "columns": values.shape[1],
                                 "sha256": hashlib.sha256(values.tobytes()).hexdigest()}
    return out


def python_json(rng):
    """-> {"floats": [[bits in hex, repr]], "values": [[JSON text, json.dumps of it]]}"""
    special = [0.0, -0.0, 1.0, 0.1, 1e-4, 1e-5, 9.9999e-5, 1e15, 1e16, 123456789012345680.0, 9007199254740993.0, 5e-324,
               1.7976931348623157e308, 2.5, 100.0, 1e22, 1e23, 0.30000000000000004, 1234567.891, -1.5e-7, 1e100]
    floats = special + [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(300)]
    floats += [rng.uniform(-1, 1) * 10 ** rng.randint(-7, 20) for _ in range(300)]
    pairs = [[struct.pack(">d", f).hex(), json.dumps(f)] for f in floats if f == f and abs(f) != float("inf")]
    sources = ['{}', '[]', '[[], {}, [{}]]', '{"b": 1, "a": [true, false, null], "c": {"z": "", "y": -7}}', '"\\u0000\\u001f\\u007f\\u0080"',
               '"\\b\\f\\n\\r\\t\\"\\\\\\/"', '"\\u00e9\\u4e2d\\ud83d\\ude00<>&\\u2028"', '18446744073709551615', '18446744073709551616',
               '-9223372036854775808', '-9223372036854775809', '123456789012345678901234567890', '-0', '-0.0', '1E5', '1e16', '1.0e-5',
               '[1.0, 10, 1e2, 0.1e1]', '{"big": [-123456789012345678901234567890]}', '{"": {"": ""}}']
    return {"floats": pairs, "values": [[s, json.dumps(json.loads(s), ensure_ascii=False)] for s in sources]}


def every_dtype(path):
    """A file by the safetensors library with every dtype numpy has."""
    from safetensors.numpy import save_file
    kinds = ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
    tensors = {k: np.array([[0, 1, 0], [1, 0, 1]] if k == "bool" else [[1, 2, 3], [4, 5, 6]], k) for k in kinds}
    tensors["scalar"] = np.array(2.5, np.float32)
    tensors["empty"] = np.zeros((0, 4), np.float32)
    save_file(tensors, path, metadata={"format": "np", "title": "every dtype"})


def main():
    oracles, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    rng = random.Random(36)
    with open(os.path.join(oracles, "qwen36", "tokenizer", "tokenizer.json"), encoding="utf-8") as f:
        base = json.load(f)
    for name, value in (("encodings.json", encodings(base, rng)), ("dequantised.json", dequantised(oracles)),
                        ("python_json.json", python_json(rng))):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            json.dump(value, f, separators=(",", ":"))
            f.write("\n")
    every_dtype(os.path.join(out, "every_dtype.safetensors"))


if __name__ == "__main__":
    main()
