# SPDX-License-Identifier: Apache-2.0
"""Writes the weights of acme.recurrent_lm: reproducible numbers in place of trained ones, so its text is nonsense, the
same everywhere.

    python3 make_weights.py weights.safetensors [SEED [WIDTH]]
"""
import json
import struct
import sys

VOCABULARY = 257  # bytes and the end token
PRINTABLE = range(ord(" "), ord("~") + 1)
SEED, WIDTH = 1530, 64
MASK = (1 << 64) - 1


def number(seed, matrix, index):
    """A multiple of 2^-15 in [-1, 1): the top bits of a splitmix64."""
    z = (seed * 0xD1342543DE82EF95 + (matrix << 32) + index + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    top = (z ^ z >> 31) >> 48
    return (top - (1 << 16) if top >> 15 else top) / 32768


def make(seed=SEED, width=WIDTH):
    """name -> (shape, values)"""
    def matrix(index, count):
        return [number(seed, index, i) for i in range(count)]
    return {
        "table": ([VOCABULARY, width], matrix(0, VOCABULARY * width)),
        "head": ([VOCABULARY, width], matrix(1, VOCABULARY * width)),
        # In [0.5, 0.9375): half of what a token left is gone after 1 to 11 tokens.
        "decay": ([width], [0.71875 + 0.21875 * value for value in matrix(2, width)]),
        # Printable characters alone are ever drawn.
        "bias": ([VOCABULARY], [0.0 if token in PRINTABLE else -1e30 for token in range(VOCABULARY)]),
    }


def save(path, tensors, metadata=None):
    """A safetensors file: whole numbers as I32, others as F32."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (shape, values) in tensors.items():
        dtype, code = ("I32", "i") if isinstance(values[0], int) else ("F32", "f")
        part = struct.pack(f"<{len(values)}{code}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    save(sys.argv[1], make(*map(int, sys.argv[2:])))
