# SPDX-License-Identifier: Apache-2.0
"""Text templates with choices and variables.

`[a|b|c]` picks one branch (branches nest and may be empty), `{key}` is looked up after the choice.
A template is parsed once and then expanded many times.
"""

import functools
import re

_TOKEN = re.compile(r"[\[\]|]")
_VARIABLE = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=[aeiouAEIOU])(?!uni|use|uku|one\b|once\b|A\b|a\b)")


@functools.lru_cache(maxsize=None)
def parse(text):
    """-> sequence: tuple of strings and of choices; a choice is a list of sequences."""
    stack, parts, start = [], [], 0
    for match in _TOKEN.finditer(text):
        if match.start() > start:
            parts.append(text[start : match.start()])
        start = match.end()
        mark = match.group()
        if mark == "[":
            stack.append((parts, []))
            parts = []
        elif not stack:
            raise ValueError(f"{mark} outside of brackets in: {text}")
        elif mark == "|":
            stack[-1][1].append(tuple(parts))
            parts = []
        else:
            outer, branches = stack.pop()
            branches.append(tuple(parts))
            outer.append(branches)
            parts = outer
    if stack:
        raise ValueError("unclosed bracket in: " + text)
    if start < len(text):
        parts.append(text[start:])
    return tuple(parts)


def _choose(sequence, rng, out):
    for part in sequence:
        if isinstance(part, str):
            out.append(part)
        else:
            _choose(part[int(rng.random() * len(part))], rng, out)


def expand(template, rng, values=()):
    """One random reading of a template; `values` fills the variables; "a apple" becomes "an apple"."""
    out = []
    _choose(parse(template), rng, out)
    text = _VARIABLE.sub(lambda m: str(values[m.group(1)]), "".join(out))
    text = _VARIABLE.sub(lambda m: str(values[m.group(1)]), text)  # a value may hold a variable
    return _ARTICLE.sub(r"\1n ", text)
