# SPDX-License-Identifier: Apache-2.0
"""The training text of the demo model, generated from a seed.

`documents(seed)` is an endless stream. A document is plain text (a story, sums, short texts, Python) or a rendered
conversation.
"""

import random

from . import arithmetic, chat, code, lines, stories, tools

MIX = ((stories, 0.22), (arithmetic, 0.33), (lines, 0.04), (code, 0.09), (chat, 0.25), (tools, 0.07))
END = "<|endoftext|>"


def documents(seed):
    rng = random.Random(seed)
    kinds, weights = zip(*MIX)
    while True:
        (kind,) = rng.choices(kinds, weights)
        yield kind.document(rng) + END
