# SPDX-License-Identifier: Apache-2.0
"""Writes the weights of acme.reach for the reaching task of `frt-host rollout`: computed, not trained.

    python3 make_weights.py weights.safetensors

The image shows three discs and the point on a dark ground. For each disc there is a colour vector whose product with
that disc's colour is 1 and with the other two 0 (all less the ground's). The sum of these products over the image,
times where the pixels are, is the disc's centre times its area, plus a share of the point's, whose place is the state.
"""
import json
import struct
import sys

SIDE, HORIZON = 28, 10  # pixels; actions of a chunk
GROUND, POINT = (24, 26, 32), (240, 240, 240)
DISCS = {"red": (220, 60, 50), "green": (60, 190, 80), "blue": (70, 110, 230)}
DISC_AREA, POINT_AREA = 24.9, 6.42  # pixels, with soft edges


def inverse(m):
    """Of a 3 x 3 matrix."""
    def minor(i, j):
        (a, b), (c, d) = [[m[r][k] for k in range(3) if k != j] for r in range(3) if r != i]
        return (a * d - b * c) * (-1) ** (i + j)
    determinant = sum(m[0][j] * minor(0, j) for j in range(3))
    return [[minor(j, i) / determinant for j in range(3)] for i in range(3)]


def make():
    """name -> (shape, values)"""
    def less_ground(color):
        return [value - ground for value, ground in zip(color, GROUND)]
    columns = [less_ground(color) for color in DISCS.values()]
    vectors = inverse([[column[i] for column in columns] for i in range(3)])  # a row for each disc
    look, bias, correction = [], [], []
    for vector in vectors:
        for axis in range(2):
            row = [vector[c] * ((x, y)[axis] + 0.5) / SIDE / DISC_AREA
                   for y in range(SIDE) for x in range(SIDE) for c in range(3)]
            # A pixel p of 0 .. 255 comes as p / 127.5 - 1.
            look += [weight * 127.5 for weight in row]
            bias.append(sum(weight * (127.5 - GROUND[i % 3]) for i, weight in enumerate(row)))
        share = sum(v * p for v, p in zip(vector, less_ground(POINT))) * POINT_AREA / DISC_AREA
        correction += [-share, 0, 0, -share]
    # Every action of a chunk goes the same part of the way.
    step = 1 / HORIZON
    return {
        "look": ([2 * len(DISCS), SIDE, SIDE, 3], look),
        "bias": ([2 * len(DISCS)], bias),
        "correction": ([2 * len(DISCS), 2], correction),
        "to_goal": ([HORIZON, 2, 2], [step, 0, 0, step] * HORIZON),
        "to_state": ([HORIZON, 2, 2], [-step, 0, 0, -step] * HORIZON),
    }


def save(path, tensors, metadata):
    """A safetensors file, all F32."""
    header, data = {"__metadata__": metadata}, b""
    for name, (shape, values) in tensors.items():
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


METADATA = {"goals": " ".join(DISCS)}  # the words that name them

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    save(sys.argv[1], make(), METADATA)
