#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Success rates of a policy of the reaching task, all episodes side by side, in torch."""
import numpy as np
import torch

import model
import task

EXECUTE = 5                     # actions of a chunk that are carried out
STEPS = 10                      # denoising steps


@torch.no_grad()
def episodes(dims, W, prompts, horizon, count, tag, beta, seed):
    """(successes, mean steps of the successful ones) of `count` episodes."""
    rng = np.random.default_rng(seed)
    discs, points = task.place(rng, count)
    colors = rng.integers(0, 3, count)
    rows = np.arange(count)
    goals = discs[rows, colors]
    close = np.linalg.norm(points - goals, axis=1) < 0.3
    points[close] = np.clip(1 - goals[close], task.LOW, task.HIGH)
    generator = torch.Generator().manual_seed(seed)
    done, steps = np.zeros(count, bool), np.zeros(count, int)
    for _ in range(task.MAX_STEPS // EXECUTE):
        image = torch.from_numpy(task.draw(points, discs)).permute(0, 3, 1, 2).float() / 255 * 2 - 1
        ways = [model.prefix(dims, W, image, *prompts.of(colors, [tag] * count))]
        if beta > 1:
            ways.append(model.prefix(dims, W, image, *prompts.of(colors, ["none"] * count)))
        noise = torch.randn(count, horizon, dims["ad"], generator=generator)
        chunk = model.sample(dims, W, ways, noise, STEPS, beta)[:, :, :2].numpy() * task.MAX_STEP
        for i in range(EXECUTE):
            points = np.where(done[:, None], points, task.move(points, chunk[:, i]))
            steps += ~done
            done |= np.linalg.norm(points - goals, axis=1) < task.REACHED
    return int(done.sum()), float(steps[done].mean()) if done.any() else 0.0


def table(dims, W, prompts, horizon, episodes=200, seed=12345):
    """One row per way of asking, printed and returned."""
    rows = []
    for tag, beta in (("none", 1.0), ("positive", 1.0), ("positive", 1.5), ("positive", 2.0), ("negative", 1.0)):
        reached, steps = globals()["episodes"](dims, W, prompts, horizon, episodes, tag, beta, seed)
        rows.append({"tag": tag, "beta": beta, "success": reached / episodes, "mean_steps": round(steps, 1)})
        print(rows[-1], flush=True)
    return rows
