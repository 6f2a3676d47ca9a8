# SPDX-License-Identifier: Apache-2.0
"""A byte-level BPE with the structure of the Qwen3.6 tokenizer and a small vocabulary.

NFC, the same Split expression, the same 33 added tokens in the same order with the same `special` flags.
"""

import json
import os
import re

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>""".split()
VISIBLE = (
    """<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>
<tool_response> </tool_response> <think> </think>""".split()
)
AUDIO = (
    "<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>".split()
)
# "special" tokens are dropped by skip_special_tokens; the visible ones stay in the text
ADDED = [(t, True) for t in CONTROL] + [(t, False) for t in VISIBLE] + [(t, True) for t in AUDIO]


def write_json(path, value, indent=1):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, ensure_ascii=False, indent=indent)
        f.write("\n")


def train(texts, size, folder):
    """Trains `size` BPE tokens on an iterable of texts; writes tokenizer.json and tokenizer_config.json."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix="", fuse_unk=False))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False),
        ]
    )
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    # The control tokens are cut out of the text before BPE, so their letters must not shape the merges.
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(pieces(texts), trainer)
    assert tokenizer.get_vocab_size() == size, tokenizer.get_vocab_size()
    for text, special in ADDED:
        token = AddedToken(text, single_word=False, lstrip=False, rstrip=False, normalized=False, special=special)
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([token])
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "tokenizer.json")
    tokenizer.save(path)
    with open(path, encoding="utf-8") as f:
        whole = json.load(f)
    whole["model"].update(continuing_subword_prefix="", end_of_word_suffix="")  # training turns "" into null
    whole["decoder"].update(add_prefix_space=False, trim_offsets=False, use_regex=False)
    write_json(path, whole)
    decoder = {
        str(size + i): {
            "content": text,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": special,
        }
        for i, (text, special) in enumerate(ADDED)
    }
    assert [t["id"] for t in whole["added_tokens"]] == [int(i) for i in decoder]
    write_json(
        os.path.join(folder, "tokenizer_config.json"),
        {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": decoder,
            "bos_token": None,
            "clean_up_tokenization_spaces": False,
            "eos_token": "<|im_end|>",
            "errors": "replace",
            "model_max_length": 4096,
            "pad_token": "<|endoftext|>",
            "split_special_tokens": False,
            "tokenizer_class": "Qwen3_5Tokenizer",
            "unk_token": None,
        },
    )


def pieces(texts):
    control = re.compile("|".join(re.escape(t) for t, _ in ADDED))
    for text in texts:
        yield from filter(None, control.split(text))


def load(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
