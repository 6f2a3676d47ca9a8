# SPDX-License-Identifier: Apache-2.0
"""The training text of the demo model, generated from a seed.

`documents(seed)` is an endless stream. A document is plain text (a story, sums, short texts, Python) or a rendered conversation.
"""
import random

from . import arithmetic, chat, code, lines, stories, tools

MIX = ((stories, .22), (arithmetic, .33), (lines, .04), (code, .09), (chat, .25), (tools, .07))
END = "<|endoftext|>"


def documents(seed):
    rng = random.Random(seed)
    kinds, weights = zip(*MIX)
    while True:
        kind, = rng.choices(kinds, weights)
        yield kind.document(rng) + END
