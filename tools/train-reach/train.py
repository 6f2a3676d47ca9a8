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

    def __init__(self, tokenizer, device):
        rows = [[2, *tokenizer.encode(task.instruction(color) + text), 108]
                for color in range(3) for text in task.TAGS.values()]
        width = max(map(len, rows))
        self.tokens = torch.tensor([r + [0] * (width - len(r)) for r in rows], device=device)
        self.valid = torch.tensor([[i < len(r) for i in range(width)] for r in rows], device=device)

    def of(self, colors, tags):
        at = colors * len(task.TAGS) + tags
        return self.tokens[at], self.valid[at]


def pixels(images):
    return images.permute(0, 3, 1, 2).float() / 255 * 2 - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", required=True, help="a SentencePiece model")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=10, help="of training; the rate follows the clock")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--draws", type=int, default=4, help="noises per observation")
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)             # the products are small
    torch.manual_seed(options.seed)
    generator = torch.Generator(options.device).manual_seed(options.seed)
    prompts = Prompts(sentencepiece.SentencePieceProcessor(model_file=options.tokenizer), options.device)

    W = {k: v.detach().to(options.device).requires_grad_() for k, v in
         model.random_parameters(DIMS, options.seed).items()}
    average = {k: v.detach().clone() for k, v in W.items()}
    used = [k for k in W if k not in model.unused(DIMS)]
    # Two readers that are thrown away: from the image's tokens, where all things are; from the last
    # token of the prompt, where the named disc and the point are. They teach the towers to look long
    # before the noisy loss of the flow would.
    tokens = (DIMS["img"] // DIMS["patch"]) ** 2
    readers = [torch.nn.Linear(tokens * DIMS["w"], 8), torch.nn.Linear(DIMS["w"], 4)]
    readers = [reader.to(options.device) for reader in readers]
    matrices = [k for k in used if W[k].dim() == 2 and k != model.EMB]
    rest = [W[k] for k in used if k not in matrices] + [p for r in readers for p in r.parameters()]
    optimizers = [torch.optim.Muon([W[k] for k in matrices], lr=options.rate * 5, momentum=0.95, weight_decay=0.01),
                  torch.optim.AdamW(rest, lr=options.rate, betas=(0.9, 0.98), weight_decay=0.0)]
    rates = [options.rate * 5, options.rate]
    weight = torch.full((DIMS["ad"],), 0.02, device=options.device)
    weight[:REAL] = 1
    log, start, step, count = [], time.time(), 0, options.batch * options.draws
    while (done := (time.time() - start) / (60 * options.minutes)) < 1:
        for optimizer, rate in zip(optimizers, rates):   # up for a fiftieth, down to zero in the second half
            optimizer.param_groups[0]["lr"] = rate * min(done * 50 + 0.01, 1, (1 - done) * 2)
        images, colors, tags, chunks, where = task.batch(generator, options.batch, HORIZON)
        seen = {}
        kv, mask, length = model.prefix(DIMS, W, pixels(images), *prompts.of(colors, tags), seen)
        rows = torch.arange(options.batch, device=options.device)
        last = seen["last"][rows, length.long() - 1]
        named = torch.stack([where[rows, colors], where[:, 3]], 1)
        looking = ((readers[0](seen["picture"].flatten(1)) - where.flatten(1)) ** 2).mean()
        finding = ((readers[1](last) - named.flatten(1)) ** 2).mean()
        repeat = options.draws
        kv = [(k.repeat_interleave(repeat, 0), v.repeat_interleave(repeat, 0)) for k, v in kv]
        mask, length = mask.repeat_interleave(repeat, 0), length.repeat_interleave(repeat, 0)
        actions = torch.zeros(options.batch, HORIZON, DIMS["ad"], device=options.device)
        actions[:, :, :REAL] = chunks / task.MAX_STEP
        actions = actions.repeat_interleave(repeat, 0)
        noise = torch.randn(actions.shape, generator=generator, device=options.device)
        t = torch.rand(count, generator=generator, device=options.device) ** (2 / 3) * 0.999 + 0.001
        x = t[:, None, None] * noise + (1 - t[:, None, None]) * actions    # t: Beta(1.5, 1)
        error = model.velocity(DIMS, W, kv, mask, length, x, t) - (noise - actions)
        loss = (error ** 2 * weight).mean((0, 1)).sum() / REAL
        for optimizer in optimizers:
            optimizer.zero_grad()
        (loss + 10 * looking + 10 * finding).backward()
        for optimizer in optimizers:
            optimizer.step()
        keep = min(0.998, (step + 1) / (step + 10))
        with torch.no_grad():
            torch._foreach_lerp_([average[k] for k in used], [W[k] for k in used], 1 - keep)
        step += 1
        if step % 100 == 0:
            log.append({"step": step, "seconds": round(time.time() - start, 1),
                        **{k: round(v.item(), 4) for k, v in (("loss", loss), ("looking", looking), ("finding", finding))}})
            print(log[-1], flush=True)
    average = {k: v.cpu() for k, v in average.items()}
    prompts = Prompts(sentencepiece.SentencePieceProcessor(model_file=options.tokenizer), "cpu")

    out = options.out
    (out / "assets" / "reach").mkdir(parents=True, exist_ok=True)
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
