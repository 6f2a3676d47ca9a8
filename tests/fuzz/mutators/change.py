# SPDX-License-Identifier: Apache-2.0
"""Small changes as a hostile writer makes them: of bytes, and of JSON that stays JSON (as json_mutation.hpp)."""
import json

VALUES = (None, True, 0, 1, -1, 7, 2**31, 2**32 + 1, 2**63, 2**64 - 1, -2**63, 10**30, 0.5, 1e300, "", "prefill", "\x01",
          "7" * 40, [], {}, [[[]]])
TOKENS = (b"[", b"]", b"{", b"}", b'"', b"=", b".", b",", b":", b"\n", b"\\", b"\0", b"\xff", b"-", b"9", b"1e99",
          b"\\u0000", b"18446744073709551616", b"\x1b[2J")


def bits(data, rng):
    """A few bits flipped."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def text(data, rng):
    """Parts replaced, removed, doubled or cut."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        how = rng.randrange(5)
        if how == 0:
            data = data[:at] + rng.choice(TOKENS) + data[at:]
        elif how == 1:
            data = data[:at] + data[at + rng.randint(1, 20):]
        elif how == 2:
            begin = rng.randrange(len(data) + 1)
            data = data[:at] + data[begin:begin + rng.randrange(60)] + data[at:]
        elif how == 3:
            data = data[:at] + rng.choice(TOKENS) + data[at + 1:]
        elif rng.randrange(8) == 0:
            data = data[:at]
    return data


def value(root, rng):
    """One value somewhere replaced, removed, doubled or moved."""
    at, parent, key = root, None, None
    while isinstance(at, (list, dict)) and at and (parent is None or rng.randrange(8)):
        parent, key = at, rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        at = parent[key]
    if parent is None:
        return
    how = rng.randrange(5)
    if how == 0:
        del parent[key]
    elif how == 1 and isinstance(parent, list):
        parent.append(at)
    elif how == 2 and isinstance(at, int) and not isinstance(at, bool):
        parent[key] = at + rng.choice((-1, 1))
    elif how == 3:
        parent[key] = rng.choice(list(parent.values()) if isinstance(parent, dict) else parent)
    else:
        parent[key] = rng.choice(VALUES)


def nested(rng):
    """Arrays and objects, up to a million levels of them."""
    levels = int(10 ** rng.uniform(0, 6))
    if rng.randrange(2):
        return b"[" * levels + b"]" * levels
    return b'{"a":' * levels + b"0" + b"}" * levels


def document(data, rng):
    """JSON text of which values, nesting or bytes have changed."""
    how = rng.randrange(8)
    if how == 0:
        return text(data, rng)
    root = json.loads(data)
    if how == 1:
        return json.dumps(root).encode().replace(b"null", nested(rng), 1).replace(b"0", nested(rng), 1)
    for _ in range(rng.choice((1, 1, 3))):
        value(root, rng)
    return json.dumps(root).encode()
