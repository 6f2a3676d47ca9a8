#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the critic of the reaching task: how much of the episode's time is still needed.

    python3 tools/train-reach/critic.py --out build/reach-critic

The value of an observation is -(steps that a good demonstrator still needs) / MAX_STEPS, from 0 (done)
to -1. The network is that of models/value_critic: the image as one row of pixels and a row per task,
two hidden layers with layer norm and GELU, one number out.
"""
import argparse
import json
import math
import pathlib
import time

import safetensors.torch
import torch
import torch.nn.functional as F

import task


def values(points, goals):
    """The demonstrator halves the rest of the way once it is nearer than two full steps."""
    distance = (points - goals).norm(dim=1)
    full = ((distance - 2 * task.MAX_STEP) / task.MAX_STEP).clamp_min(0)
    rest = distance.clamp(task.REACHED, 2 * task.MAX_STEP) / task.REACHED
    return -((full + rest.log2()) / task.MAX_STEPS).clamp(0, 1)


def forward(W, image, tasks):
    x = image.permute(0, 3, 1, 2).flatten(1).float() * (2 / 255) - 1         # (c, y, x), as a patch
    x = F.linear(x, W["pixels.weight"], W["pixels.bias"]) + W["tasks"][tasks]
    for name in ("hidden1", "hidden2"):
        width = x.shape[-1]
        x = F.layer_norm(x, (width,), W[name + ".norm.weight"], W[name + ".norm.bias"], 1e-6)
        x = F.gelu(F.linear(x, W[name + ".weight"], W[name + ".bias"]), approximate="tanh")
    return F.linear(x, W["value.weight"], W["value.bias"])[:, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(options.seed)
    inputs, width = 3 * task.IMAGE ** 2, options.width

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)
    W = {"pixels.weight": matrix(width, inputs), "pixels.bias": torch.zeros(width),
         "tasks": torch.randn(3, width, generator=generator),
         "hidden1.norm.weight": torch.ones(width), "hidden1.norm.bias": torch.zeros(width),
         "hidden1.weight": matrix(width, width), "hidden1.bias": torch.zeros(width),
         "hidden2.norm.weight": torch.ones(width), "hidden2.norm.bias": torch.zeros(width),
         "hidden2.weight": matrix(width, width), "hidden2.bias": torch.zeros(width),
         "value.weight": matrix(1, width), "value.bias": torch.zeros(1)}
    W = {k: v.requires_grad_() for k, v in W.items()}
    optimizer = torch.optim.AdamW(W.values(), lr=3e-3, weight_decay=1e-4)
    start, step = time.time(), 0
    while (done := (time.time() - start) / (60 * options.minutes)) < 1:
        optimizer.param_groups[0]["lr"] = 3e-3 * min(done * 20 + 0.01, 1 - done)
        discs, points = task.place(generator, 256)
        tasks = torch.randint(0, 3, (256,), generator=generator)
        goals = discs[torch.arange(256), tasks]
        near = torch.rand(256, 1, generator=generator) < 0.3
        points = torch.where(near, goals + 0.1 * torch.randn(256, 2, generator=generator), points)
        points = points.clamp(task.LOW, task.HIGH)
        error = forward(W, task.draw(points, discs), tasks) - values(points, goals)
        loss = (error ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 200 == 0:
            print({"step": step, "error": round(math.sqrt(loss.item()), 4)}, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    metadata = {"tasks": json.dumps([task.instruction(color) for color in range(3)]), "image": str(task.IMAGE)}
    safetensors.torch.save_file({k: v.detach() for k, v in W.items()}, options.out / "critic.safetensors", metadata)


if __name__ == "__main__":
    main()
