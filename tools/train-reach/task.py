# SPDX-License-Identifier: Apache-2.0
"""The reaching task: a white point, three coloured discs, an instruction that names one of them.

The world is the unit square, y downwards. The twin of hosts/robot/reach/world.hpp: same drawing, same
motion, same end. Positions are (B, 2) arrays in world units, actions in world units per step.
"""
import numpy as np

IMAGE = 28                      # pixels, both sides
COLORS = ("red", "green", "blue")
RGB = np.array([[220, 60, 50], [60, 190, 80], [70, 110, 230]], np.float32)
BACKGROUND = np.array([24, 26, 32], np.float32)
POINT = np.array([240, 240, 240], np.float32)
DISC_RADIUS, POINT_RADIUS = 0.10, 0.05
MAX_STEP = 0.06                 # the longest move of one step
LOW, HIGH = 0.03, 0.97          # where the point may be
REACHED = 0.05                  # distance to the disc's centre
MAX_STEPS = 40
TAGS = {"positive": " Advantage: positive", "negative": " Advantage: negative", "none": ""}


def instruction(color):
    return f"reach the {COLORS[color]} disc"


def place(rng, count):
    """Discs (count, 3, 2) that keep 0.3 apart, and points (count, 2) anywhere."""
    discs = rng.uniform(0.12, 0.88, (count, 3, 2))
    while True:
        apart = [np.linalg.norm(discs[:, a] - discs[:, b], axis=1) for a, b in ((0, 1), (0, 2), (1, 2))]
        bad = np.minimum.reduce(apart) < 0.3
        if not bad.any():
            break
        discs[bad] = rng.uniform(0.12, 0.88, (int(bad.sum()), 3, 2))
    return discs, rng.uniform(0.08, 0.92, (count, 2))


def draw(points, discs):
    """uint8 (B, IMAGE, IMAGE, 3): discs in the order of COLORS, the point on top, soft edges."""
    axis = np.arange(IMAGE, dtype=np.float32) + np.float32(0.5)
    x, y = axis[None, None, :], axis[None, :, None]
    image = np.broadcast_to(BACKGROUND, (len(points), IMAGE, IMAGE, 3)).copy()
    shapes = [(discs[:, i], DISC_RADIUS, RGB[i]) for i in range(3)] + [(points, POINT_RADIUS, POINT)]
    for center, radius, color in shapes:
        at = (center * IMAGE).astype(np.float32)
        distance = np.sqrt((x - at[:, 0, None, None]) ** 2 + (y - at[:, 1, None, None]) ** 2)
        cover = np.clip(np.float32(radius * IMAGE + 0.5) - distance, 0, 1)[..., None]
        image = image * (1 - cover) + color * cover
    return (image + np.float32(0.5)).astype(np.uint8)


def move(points, actions):
    length = np.linalg.norm(actions, axis=-1, keepdims=True)
    return np.clip(points + actions * np.minimum(1, MAX_STEP / np.maximum(length, 1e-9)), LOW, HIGH)


def demonstrate(points, goals, horizon, top=MAX_STEP):
    """Chunks (B, horizon, 2) of a demonstrator who goes straight to `goals` and slows down there."""
    at, chunk = points.copy(), []
    for _ in range(horizon):
        way = goals - at
        distance = np.linalg.norm(way, axis=1, keepdims=True)
        step = way / np.maximum(distance, 1e-9) * np.minimum(top, 0.5 * distance)
        chunk.append(step)
        at = np.clip(at + step, LOW, HIGH)
    return np.stack(chunk, 1)


def batch(rng, count, horizon):
    """Observations and chunks of mixed quality, with tags: images, points, colors, tags, chunks.

    Good chunks go to the named disc. Of the bad ones most go to another disc, the rest crawls
    anywhere. Half of the samples say nothing about their quality; of those 60 % are good.
    """
    discs, points = place(rng, count)
    colors = rng.integers(0, 3, count)
    kind = rng.random(count)
    tags = np.where(kind < 0.35, "positive", np.where(kind < 0.5, "negative", "none"))
    good = (tags == "positive") | ((tags == "none") & (rng.random(count) < 0.6))
    rows = np.arange(count)
    near = rng.random(count) < 0.25              # also teach the last few steps
    points = np.where(near[:, None], discs[rows, colors] + rng.normal(0, 0.08, (count, 2)), points)
    points = np.clip(points, LOW, HIGH)
    wrong = discs[rows, (colors + rng.integers(1, 3, count)) % 3]
    crawl = rng.random(count) < 0.4
    anywhere = rng.uniform(LOW, HIGH, (count, 2))
    best = demonstrate(points, discs[rows, colors], horizon)
    worst = np.where(crawl[:, None, None], demonstrate(points, anywhere, horizon, 0.02),
                     demonstrate(points, wrong, horizon))
    return draw(points, discs), points, colors, tags, np.where(good[:, None, None], best, worst)
