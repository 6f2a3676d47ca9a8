# SPDX-License-Identifier: Apache-2.0
"""Trains the demo model on generated text and writes it as a Qwen3.6 checkpoint directory.

    python3 tools/train-demo/train.py --out DIR [--minutes 4]
    python3 tools/train-demo/evaluate.py DIR

Needs torch, transformers (5.17), tokenizers, safetensors and jinja2; nothing is read from the network. The text is a
function of the seed; the number of steps depends on the machine unless --steps is given.
"""

import argparse
import itertools
import json
import os
import random
import time

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import torch
from torch.nn import functional as F

import checkpoint
import corpus
import model as demo
import tokenizer as bpe
from corpus.render import TEMPLATE

SYSTEM, USER, HISTORY, REPLY, PLAIN = 3, 8, 25, 100, 100  # loss weights of a token, in percent


class Rows(torch.utils.data.IterableDataset):
    """Endless rows of whole documents: ids [T], weights [T] in percent; a function of seed and worker number."""

    def __init__(self, folder, length, seed):
        self.folder, self.length, self.seed = folder, length, seed

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        tokenizer = bpe.load(self.folder)
        name = f"{self.seed}/{worker.id if worker else 0}"
        documents, rng = corpus.documents(name), random.Random(name)
        marks = Marks(tokenizer)
        pad = tokenizer.token_to_id(corpus.END)
        open_rows = []
        while True:
            for ids in cut_and_encode(tokenizer, list(itertools.islice(documents, 200)), rng):
                ids = ids[: self.length]
                weights = marks.weights(ids)
                for row in open_rows:  # first row with room
                    if len(row[0]) + len(ids) <= self.length:
                        break
                else:
                    row = ([], [])
                    open_rows.append(row)
                row[0].extend(ids)
                row[1].extend(weights)
                if self.length - len(row[0]) < 24 or len(open_rows) > 64:
                    row = row if self.length - len(row[0]) < 24 else max(open_rows, key=lambda r: len(r[0]))
                    open_rows.remove(row)
                    fill = self.length - len(row[0])
                    yield np.array(row[0] + [pad] * fill, np.int32), np.array(row[1] + [0] * fill, np.uint8)


def cut_and_encode(tokenizer, texts, rng):
    """Token ids of each text.

    Half of the plain texts are encoded in two parts, because a prompt may end inside of what is one token in running
    text: after `def f(n):` the newline is missing that belongs to the same token as `):`.
    """
    parts, counts = [], []
    for text in texts:
        place = (
            len(text)
            if text.startswith("<|im_start|>") or rng.random() < 0.5
            else rng.randrange(1, len(text) - len(corpus.END))
        )
        if place < len(text) and rng.random() < 0.8:
            mark = rng.choice("\n ")
            found = text.find(mark, place)
            place = found if found > 0 else place
        pieces = [text] if place == len(text) else [text[:place], text[place:]]
        parts += pieces
        counts.append(len(pieces))
    encoded = iter(tokenizer.encode_batch(parts))
    return [[i for _ in range(n) for i in next(encoded).ids] for n in counts]


class Marks:
    """How much each token of a document counts: replies fully, what a user or the tool list says only a little."""

    def __init__(self, tokenizer):
        self.start, self.end = tokenizer.token_to_id("<|im_start|>"), tokenizer.token_to_id("<|im_end|>")
        self.think = tokenizer.token_to_id("<think>")
        (self.assistant,) = tokenizer.encode("assistant").ids
        (self.system,) = tokenizer.encode("system").ids

    def weights(self, ids):
        if ids[0] != self.start:
            return [0] + [PLAIN] * (len(ids) - 1)  # what a document starts with is anybody's guess
        out, now = [], USER
        for i, token in enumerate(ids):
            if token == self.start and i + 3 < len(ids):
                role = ids[i + 1]
                now = SYSTEM if role == self.system else USER
                if role == self.assistant:
                    now = REPLY if ids[i + 3] == self.think else HISTORY
                out.append(USER)
            else:
                out.append(now)
                if token == self.end:
                    now = USER
        out[0] = 0
        return out


def cross_entropy(hidden, head, labels, weights):
    logits = (hidden @ head.T).float()
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
    return (losses * weights.flatten()).sum() / weights.sum().clamp(min=1)


def optimisers(model):
    """Muon for the matrices of the layers, AdamW for the rest; -> list of (optimiser, peak rate)."""
    matrices, other, small = [], [], []
    for name, p in model.named_parameters():
        if (
            p.ndim == 2
            and "embed" not in name
            and "lm_head" not in name
            and "in_proj_a" not in name
            and "in_proj_b" not in name
        ):
            matrices.append(p)
        else:
            (other if p.ndim >= 2 else small).append(p)
    muon = torch.optim.Muon(matrices, lr=0.02, momentum=0.95, weight_decay=0.02)
    groups = [{"params": other, "weight_decay": 0.02}, {"params": small, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=0.008, betas=(0.9, 0.95), eps=1e-8, fused=next(model.parameters()).is_cuda)
    return [(muon, 0.02), (adam, 0.008)]


def rate(progress):
    """Warm up, stay, then fall to (almost) zero: the share of the peak rate at a progress of 0..1."""
    return min(1.0, progress / 0.02 + 0.01) * min(1.0, max(0.0, (1 - progress) / 0.6) + 0.01)


def train(arguments, tokenizer, model, device):
    loader = torch.utils.data.DataLoader(
        Rows(arguments.out, arguments.row, arguments.seed),
        batch_size=arguments.batch,
        num_workers=arguments.workers,
        prefetch_factor=4 if arguments.workers else None,
    )
    parts = optimisers(model)
    loss_of = torch.compile(cross_entropy) if arguments.compile else cross_entropy
    started = begin = saved = time.time()
    step, progress, tokens, shown = 0, 0.0, 0, []
    for ids, percent in loader:
        now = time.time()
        progress = step / arguments.steps if arguments.steps else max(0.0, now - begin) / (60 * arguments.minutes)
        if progress >= 1:
            break
        for optimiser, peak in parts:
            for group in optimiser.param_groups:
                group["lr"] = peak * rate(progress)
        ids = ids.to(device, torch.long, non_blocking=True)
        weights = percent.to(device, torch.float32, non_blocking=True) / 100
        one = F.pad(weights[:, 1:], (0, 1))
        two = F.pad(weights[:, 2:], (0, 2)) * (one > 0)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            hidden, first, second = model(ids)
            head = model.trunk.lm_head.weight
            next_id, after = ids.roll(-1, 1), ids.roll(-2, 1)
            losses = [
                loss_of(hidden, head, next_id, one),
                loss_of(first, head, after, two),
                loss_of(second, head, after, two),
            ]
            loss = losses[0] + 0.3 * losses[1] + 0.15 * losses[2]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser, _ in parts:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        shown.append(torch.stack(losses).detach())
        step += 1
        tokens += ids.numel()
        if step == 3 and not arguments.steps:  # the first steps compile; the budget is for training
            begin = time.time()
        if step % 50 == 0 or step < 4:
            values = torch.stack(shown).float().mean(0).tolist()
            shown.clear()
            print(
                f"step {step} {100 * progress:.0f}% {time.time() - started:.0f}s,"
                f" {tokens / (time.time() - started) / 1e3:.0f} ktok/s, loss {values[0]:.4f}, drafts {values[1]:.4f}"
                f" {values[2]:.4f}",
                flush=True,
            )
        if time.time() - saved > 60:
            checkpoint.write(model, demo.SIZES, tokenizer, arguments.out, TEMPLATE)
            saved = time.time()
    return {"steps": step, "tokens": tokens, "seconds": round(time.time() - started, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=4, help="training time after the first three steps")
    parser.add_argument("--steps", type=int, help="train this many steps instead")
    parser.add_argument("--batch", type=int, default=60, help="rows in a step")
    parser.add_argument("--row", type=int, default=1024, help="tokens in a row, a multiple of 64")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bpe", type=int, default=2256, help="size of the BPE vocabulary")
    parser.add_argument(
        "--workers", type=int, default=max(1, (os.cpu_count() or 2) - 3), help="processes that write text"
    )
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True

    start = time.time()
    bpe.train(itertools.islice(corpus.documents(f"{arguments.seed}/tokenizer"), 40000), arguments.bpe, arguments.out)
    tokenizer = bpe.load(arguments.out)
    vocab_size = -(-tokenizer.get_vocab_size() // 64) * 64  # padded, as the real vocabulary is
    model = demo.DemoModel(demo.text_config(demo.SIZES, vocab_size))
    model.initialise()
    count = sum(p.numel() for p in model.parameters())
    model.to(device).train()
    print(
        f"{count} parameters, {2 * count / 1e6:.2f} MB in BF16; tokenizer {tokenizer.get_vocab_size()} ids,"
        f" {time.time() - start:.0f} s",
        flush=True,
    )
    with demo.fast_training():
        if arguments.compile:
            demo.train_fast(model)
        report = train(arguments, tokenizer, model, device)
    checkpoint.write(model, demo.SIZES, tokenizer, arguments.out, TEMPLATE)
    report.update(parameters=count, device=torch.cuda.get_device_name() if device.type == "cuda" else "cpu")
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
