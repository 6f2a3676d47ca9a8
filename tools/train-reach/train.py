#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the tiny Pi0.5 policy of the reaching task on the processor, and its critic.

    python3 tools/train-reach/train.py --tokenizer tests/fixtures/pi05/tokenizer/tokenizer.model --out build/reach

Writes an openpi checkpoint directory: model.safetensors, config.json, assets/reach/norm_stats.json,
tokenizer.model, and report.json with the loss and the success rates of evaluate.py.
"""
import argparse
import json
import pathlib
import shutil
import time

import numpy as np
import safetensors.torch
import sentencepiece
import torch

import evaluate
import model
import task

DIMS = dict(img=task.IMAGE, patch=7, vw=48, vl=2, vh=4, vm=96, w=64, m=128, ew=48, em=96, L=3, nh=4, hd=16,
            vocab=704, ad=32)
HORIZON = 10
REAL = 2                        # action dimensions that mean something


class Prompts:
    """Token rows of every instruction and tag: BOS, text, newline; padded on the right."""

    def __init__(self, tokenizer):
        rows = {(color, tag): [2, *tokenizer.encode(task.instruction(color) + text), 108]
                for color in range(3) for tag, text in task.TAGS.items()}
        width = max(map(len, rows.values()))
        self.index = {key: i for i, key in enumerate(rows)}
        self.tokens = torch.tensor([r + [0] * (width - len(r)) for r in rows.values()])
        self.valid = torch.tensor([[i < len(r) for i in range(width)] for r in rows.values()])

    def of(self, colors, tags):
        at = torch.tensor([self.index[int(c), str(t)] for c, t in zip(colors, tags)])
        return self.tokens[at], self.valid[at]


def pixels(images):
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 * 2 - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="a SentencePiece model")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--draws", type=int, default=4, help="noises per observation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=options.tokenizer)
    prompts = Prompts(tokenizer)

    W = model.random_parameters(DIMS, options.seed)
    average = {k: v.detach().clone() for k, v in W.items()}
    matrices = [v for v in W.values() if v.dim() > 1]
    others = [v for v in W.values() if v.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01},
                                   {"params": others, "weight_decay": 0.0}], lr=2e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, options.steps, pct_start=0.05)
    weight = torch.full((DIMS["ad"],), 0.02)
    weight[:REAL] = 1
    log, start, seen = [], time.time(), 0.0
    for step in range(options.steps):
        images, _, colors, tags, chunks = task.batch(rng, options.batch, HORIZON)
        kv, mask, length = model.prefix(DIMS, W, pixels(images), *prompts.of(colors, tags))
        repeat = options.draws
        kv = [(k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)) for k, v in kv]
        mask, length = mask.repeat_interleave(repeat, 0), length.repeat_interleave(repeat, 0)
        actions = torch.zeros(options.batch, HORIZON, DIMS["ad"])
        actions[:, :, :REAL] = torch.from_numpy(chunks / task.MAX_STEP).float()
        actions = actions.repeat_interleave(repeat, 0)
        noise = torch.randn_like(actions)
        t = torch.from_numpy(rng.beta(1.5, 1, len(actions)) * 0.999 + 0.001).float()
        x = t[:, None, None] * noise + (1 - t[:, None, None]) * actions
        error = model.velocity(DIMS, W, kv, mask, length, x, t) - (noise - actions)
        loss = (error ** 2 * weight).mean(0).sum(-1).mean() / REAL
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(p for p in W.values() if p.grad is not None), 1.0)
        optimizer.step()
        schedule.step()
        keep = min(0.995, (step + 1) / (step + 10))
        with torch.no_grad():
            for name, value in W.items():
                average[name].lerp_(value, 1 - keep)
        seen = 0.98 * seen + 0.02 * loss.item() if step else loss.item()
        if step % 100 == 99 or step + 1 == options.steps:
            log.append({"step": step + 1, "loss": round(seen, 4), "seconds": round(time.time() - start, 1)})
            print(log[-1], flush=True)

    out = options.out
    (out / "assets" / "reach").mkdir(parents=True, exist_ok=True)
    average[model.P + "gemma_expert.lm_head.weight"] = torch.zeros(1, DIMS["ew"])
    safetensors.torch.save_file({k: v.contiguous() for k, v in average.items()}, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps({
        "action_dim": DIMS["ad"], "action_horizon": HORIZON, "paligemma_variant": "gemma_2b",
        "action_expert_variant": "gemma_300m", "precision": "float32", "dims": DIMS}, indent=1) + "\n")

    def statistics(low, high):
        return {"mean": [(low + high) / 2] * 2, "std": [(high - low) / 2] * 2, "q01": [low] * 2, "q99": [high] * 2}
    (out / "assets" / "reach" / "norm_stats.json").write_text(json.dumps({"norm_stats": {
        "state": statistics(task.LOW, task.HIGH), "actions": statistics(-task.MAX_STEP, task.MAX_STEP)}},
        indent=1) + "\n")
    shutil.copyfile(options.tokenizer, out / "tokenizer.model")
    rows = evaluate.table(DIMS, average, prompts, HORIZON, episodes=200)
    (out / "report.json").write_text(json.dumps({"seed": options.seed, "training": log, "success": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
