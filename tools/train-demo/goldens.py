# SPDX-License-Identifier: Apache-2.0
"""What transformers computes from the demo checkpoint: DIR/goldens.safetensors, for a test of an engine.

    python3 tools/train-demo/goldens.py DIR

Float32, CPU, eager attention, on the stored (BF16) weights. A case is a prompt of T tokens and is named t + T. Of
several candidate prompts of each kind the one is kept whose greedy path has the widest smallest margin, so that the
ids are certain.
"""

import os
import sys

import torch
from safetensors.torch import save_file

import checkpoint
import tokenizer as bpe
from corpus.render import conversation, user
from evaluate import WEATHER, Speaker, drafts

STEPS, DRAFTS = 32, 3
NAMES = ("Tom", "Lily", "Ben", "Anna", "Max", "Mia", "Sam", "Emma", "Leo", "Ruby", "Finn", "Nora")
CANDIDATES = (
    [
        f"Once upon a time, there was a little {kind} named {name}. One day, {name}"
        for name in NAMES[::2]
        for kind in ("girl", "fox")
    ],
    [conversation([user(f"What is {a} + {b}?")], prompt=True) for a, b in ((47, 38), (25, 36), (18, 64), (33, 28))],
    [
        conversation([user(f"What is the weather in {city}?")], [WEATHER], prompt=True)
        for city in ("Paris", "Oslo", "Berlin", "New York", "Tokyo", "Rome", "Lima", "Cairo", "Boston", "Seoul")
    ],
)


def margin(logits):
    best = logits.topk(2, -1).values
    return (best[..., 0] - best[..., 1]).min().item()


@torch.no_grad()
def greedy(model, ids, count):
    """-> ids [count], the logits [count, V] they were taken from."""
    feed, cache, tokens, rows = torch.tensor([ids]), None, [], []
    while len(tokens) < count:
        result = model.trunk.model(input_ids=feed, past_key_values=cache, use_cache=True)
        cache = result.past_key_values
        rows.append(model.trunk.lm_head(result.last_hidden_state[0, -1]))
        tokens.append(int(rows[-1].argmax()))
        feed = torch.tensor([tokens[-1:]])
    return tokens, torch.stack(rows)


@torch.no_grad()
def case(speaker, ids, path):
    """The golden tensors of one prompt; `path` is its greedy continuation, a little longer than what is stored."""
    model, count = speaker.model, len(ids)
    rows = torch.tensor(sorted({r for r in (0, 1, 63, 64, count - 1) if r < count}))
    logit_rows = torch.tensor([0, count - 1])
    residual = []
    hooks = [
        layer.register_forward_hook(lambda _, i, out: residual.append(out[0, rows].clone()))
        for layer in model.trunk.model.layers
    ]
    hidden = model.trunk.model(input_ids=torch.tensor([ids])).last_hidden_state
    for hook in hooks:
        hook.remove()
    out = {
        "ids": torch.tensor(ids),
        "rows": rows,
        "logit_rows": logit_rows,
        "logits": model.trunk.lm_head(hidden[0, logit_rows]),
        "residual": torch.stack(residual),
        "greedy": torch.tensor(path[:STEPS]),
    }
    if count < 64:
        out["hidden"] = hidden[0]
    embedded = model.embed(torch.tensor([ids + path[:1]]))[:, 1:]
    own = model.mtp(embedded, hidden, model.rotary(hidden), causal(count))
    out["mtp.rows"] = rows[rows < count - 1]
    out["mtp.hidden"] = own[0, out["mtp.rows"]]
    feeds, states, tokens, logits = embedded, hidden, [], []
    for step in range(DRAFTS):  # the whole row is recomputed each time; it is short
        own = model.mtp(feeds, states, model.rotary(feeds), causal(feeds.shape[1]))
        logits.append(model.trunk.lm_head(own[0, -1]))
        tokens.append(int(logits[-1].argmax()))
        feeds = torch.cat([feeds, model.embed(torch.tensor([tokens[-1:]]))], 1)
        states = torch.cat([states, own[:, -1:]], 1)
    out["mtp.draft"], out["mtp.draft_logits"] = torch.tensor(tokens), torch.stack(logits)
    right = drafts(speaker, ids + path, count)
    accepted, made = [], 1
    while made < STEPS:
        accepted.append(int(right[:, made - 1].sum()))
        made += accepted[-1] + 1
    out["spec_accepted"] = torch.tensor(accepted)
    return {
        name: (value.to(torch.int32) if value.dtype == torch.int64 else value.float()).contiguous()
        for name, value in out.items()
    }


def causal(count):
    return torch.full((1, 1, count, count), float("-inf")).triu(1)


def main(folder):
    tokenizer = bpe.load(folder)
    speaker = Speaker(checkpoint.read(folder), tokenizer, torch.device("cpu"))
    stored, stop = {}, set(speaker.ends)
    for prompts in CANDIDATES:
        best = None
        for prompt in prompts:
            ids = tokenizer.encode(prompt).ids
            path, logits = greedy(speaker.model, ids, STEPS + 8)
            width = margin(logits[:STEPS])
            if f"t{len(ids)}.ids" not in stored and not stop & set(path[:STEPS]) and (best is None or width > best[0]):
                best = (width, ids, path, prompt)
        assert best, "every candidate ends too early or has a length that is taken"
        width, ids, path, prompt = best
        found = case(speaker, ids, path)
        print(
            f"t{len(ids)}: margin of the greedy path {width:.3f}, of the drafts"
            f" {margin(found['mtp.draft_logits']):.3f}, accepted {found['spec_accepted'].tolist()}: {prompt[-60:]!r} ->"
            f" {tokenizer.decode(path[:STEPS], skip_special_tokens=False)!r}",
            flush=True,
        )
        stored.update({f"t{len(ids)}.{name}": value for name, value in found.items()})
    path = os.path.join(folder, "goldens.safetensors")
    save_file(stored, path)
    os.chmod(path, 0o644)
    print(os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main(sys.argv[1])
