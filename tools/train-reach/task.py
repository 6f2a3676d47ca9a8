# SPDX-License-Identifier: Apache-2.0
"""The reaching task: a white point, three coloured discs, an instruction that names one of them.

The world is the unit square, y downwards. The twin of hosts/examples/reach/world.hpp: same drawing, same
motion, same end. Positions are (B, 2) tensors in world units, actions in world units per step.
"""
import torch

IMAGE = 28                      # pixels, both sides
COLORS = ("red", "green", "blue")
RGB = ((220.0, 60.0, 50.0), (60.0, 190.0, 80.0), (70.0, 110.0, 230.0))
BACKGROUND = (24.0, 26.0, 32.0)
POINT = (240.0, 240.0, 240.0)
DISC_RADIUS, POINT_RADIUS = 0.10, 0.05
MAX_STEP = 0.06                 # the longest move of one step
LOW, HIGH = 0.03, 0.97          # where the point may be
REACHED = 0.05                  # distance to the disc's centre
MAX_STEPS = 40
TAGS = {"positive": " Advantage: positive", "negative": " Advantage: negative", "none": ""}
TAG_NAMES = tuple(TAGS)


def instruction(color):
    return f"reach the {COLORS[color]} disc"


def uniform(generator, shape, low, high):
    return low + (high - low) * torch.rand(shape, generator=generator, device=generator.device)


def place(generator, count):
    """Discs (count, 3, 2) that keep 0.3 apart: the first of 24 tries that does. Points anywhere."""
    tries = uniform(generator, (count, 24, 3, 2), 0.12, 0.88)
    apart = torch.stack([(tries[:, :, a] - tries[:, :, b]).norm(dim=-1) for a, b in ((0, 1), (0, 2), (1, 2))])
    first = (apart.amin(0) >= 0.3).int().argmax(1)
    discs = tries[torch.arange(count, device=tries.device), first]
    return discs, uniform(generator, (count, 2), 0.08, 0.92)


def draw(points, discs):
    """uint8 (B, IMAGE, IMAGE, 3): discs in the order of COLORS, the point on top, soft edges."""
    axis = torch.arange(IMAGE, dtype=torch.float32, device=points.device) + 0.5
    x, y = axis[None, None, :], axis[None, :, None]
    color = torch.tensor([BACKGROUND, *RGB, POINT], device=points.device)
    image = color[0].expand(len(points), IMAGE, IMAGE, 3)
    shapes = [(discs[:, i], DISC_RADIUS, color[1 + i]) for i in range(3)] + [(points, POINT_RADIUS, color[4])]
    for center, radius, paint in shapes:
        at = (center * IMAGE)[:, :, None, None]
        distance = ((x - at[:, 0]) ** 2 + (y - at[:, 1]) ** 2).sqrt()
        cover = (radius * IMAGE + 0.5 - distance).clamp(0, 1)[..., None]
        image = image * (1 - cover) + paint * cover
    return (image + 0.5).to(torch.uint8)


def move(points, actions):
    length = actions.norm(dim=-1, keepdim=True).clamp_min(1e-9)
    return (points + actions * (MAX_STEP / length).clamp_max(1)).clamp(LOW, HIGH)


def demonstrate(points, goals, horizon, top=MAX_STEP):
    """Chunks (B, horizon, 2) of a demonstrator who goes straight to `goals` and slows down there."""
    at, chunk = points, []
    for _ in range(horizon):
        way = goals - at
        distance = way.norm(dim=1, keepdim=True)
        step = way / distance.clamp_min(1e-9) * (0.5 * distance).clamp_max(top)
        chunk.append(step)
        at = (at + step).clamp(LOW, HIGH)
    return torch.stack(chunk, 1)


def batch(generator, count, horizon):
    """Observations and chunks of mixed quality: images, colors, tags (indices of TAGS), chunks, and
    where things are, (count, 4, 2): the discs, the point.

    Good chunks go to the named disc. Of the bad ones most go to another disc, the rest crawls
    anywhere. Half of the samples say nothing about their quality; of those 70 % are good.
    """
    device = generator.device

    def chance(probability):
        return torch.rand(count, generator=generator, device=device) < probability

    def choice(low, high):
        return torch.randint(low, high, (count,), generator=generator, device=device)
    discs, points = place(generator, count)
    colors = choice(0, 3)
    rows = torch.arange(count, device=device)
    goals = discs[rows, colors]
    kind = torch.rand(count, generator=generator, device=device)
    tags = torch.where(kind < 0.35, 0, torch.where(kind < 0.5, 1, 2))
    good = (tags == 0) | ((tags == 2) & chance(0.7))
    around = goals + 0.08 * torch.randn(count, 2, generator=generator, device=device)
    points = torch.where(chance(0.25)[:, None], around, points).clamp(LOW, HIGH)    # the last steps, too
    best = demonstrate(points, goals, horizon)
    wrong = demonstrate(points, discs[rows, (colors + choice(1, 3)) % 3], horizon)
    crawl = demonstrate(points, uniform(generator, (count, 2), LOW, HIGH), horizon, 0.02)
    worst = torch.where(chance(0.4)[:, None, None], crawl, wrong)
    where = torch.cat([discs, points[:, None]], 1)
    return draw(points, discs), colors, tags, torch.where(good[:, None, None], best, worst), where
