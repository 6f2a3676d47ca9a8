# SPDX-License-Identifier: Apache-2.0
"""Writes goldens of acme.recurrent_lm for `frt-host verify`: what the network gives, computed here with Python's numbers
and never by the plugin. For a model of your own, let the framework that trained it compute them.

    python3 make_goldens.py goldens.safetensors [SEED [WIDTH]]

SEED and WIDTH as for make_weights.py. selftest.hpp says which tensors there are.
"""
import sys

from make_weights import VOCABULARY, make, save

# The second is read in several chunks.
PROMPTS = {"once": "Once upon a time", "fox": "the quick brown fox jumps over the lazy dog, and the dog sleeps"}
COUNT = 16


def follow(weights, ids, count):
    """The greedy continuation of the prompt `ids`: `count` ids, and the logits that each was taken from."""
    values = {name: tensor for name, (_, tensor) in weights.items()}
    width = len(values["decay"])
    head = [values["head"][token * width:(token + 1) * width] for token in range(VOCABULARY)]
    state, found, rows = [0.0] * width, [], []
    for step in range(len(ids) + count - 1):
        token = (ids + found)[step]
        x = values["table"][token * width:(token + 1) * width]
        state = [d * s + part for d, s, part in zip(values["decay"], state, x)]
        if step + 1 >= len(ids):
            row = [sum(h * s for h, s in zip(weight, state)) + b for weight, b in zip(head, values["bias"])]
            found.append(row.index(max(row)))
            rows.append(row)
    return found, rows


def goldens(weights):
    tensors = {}
    for name, prompt in PROMPTS.items():
        ids = list(prompt.encode())
        found, rows = follow(weights, ids, COUNT)
        tensors[name + ".ids"] = ([len(ids)], ids)
        tensors[name + ".next"] = ([COUNT], found)
        tensors[name + ".logits"] = ([COUNT, VOCABULARY], [value for row in rows for value in row])
    return tensors


if __name__ == "__main__":
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__)
    save(sys.argv[1], goldens(make(*map(int, sys.argv[2:]))))
