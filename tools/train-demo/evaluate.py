# SPDX-License-Identifier: Apache-2.0
"""What a trained checkpoint can do: sums, chat sums, tool calls, accepted drafts, samples.

    python3 tools/train-demo/evaluate.py DIR

Loads the files (BF16 weights, float32 arithmetic), decodes greedily, prints the results and writes DIR/report.json.
"""

import itertools
import json
import os
import random
import re
import sys

import torch

import checkpoint
import tokenizer as bpe
from corpus import arithmetic, chat, stories, tools
from corpus.render import conversation, user

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The name of the city"}},
            "required": ["city"],
        },
    },
}
SAMPLES = (
    ("Once upon a time", 220),
    ("One day, a little fox named Rusty", 220),
    ("Lily was a little girl who", 220),
    ("12 + 7 =", 16),
    ("def is_even(n):", 60),
    ("Hello, my name is", 60),
    ("The capital of France is", 24),
    ("Tom has 5 apples. Mia gives Tom 3 more.", 40),
    ([user("What is 3 + 4?")], 64),
    ([user("What is 47 + 38?")], 80),
    ([user("Hello!")], 64),
    ([user("Who are you?")], 80),
    ([user("What is the capital of Japan?")], 64),
    ([user("Tell me a story about a fox.")], 300),
    ([user("Write a Python function that returns the larger of two numbers.")], 160),
    ([user("What is the weather in Paris?")], 120),
)


class Speaker:
    """Greedy decoding with a cache, prompts of one length at a time in one batch."""

    def __init__(self, model, tokenizer, device):
        self.model, self.tokenizer, self.device = model.to(device), tokenizer, device
        self.ends = [tokenizer.token_to_id(t) for t in ("<|im_end|>", "<|endoftext|>")]

    @torch.no_grad()
    def continue_ids(self, prompts, count):
        """[N, T] -> list of N id lists up to an end token (left out)."""
        ids = torch.tensor(prompts, device=self.device)
        cache, out, done = None, [], torch.zeros(len(prompts), dtype=torch.bool, device=self.device)
        for _ in range(count):
            result = self.model.trunk.model(input_ids=ids, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            ids = self.model.trunk.lm_head(result.last_hidden_state[:, -1:]).argmax(-1)
            out.append(ids[:, 0])
            done |= (ids[:, 0, None] == torch.tensor(self.ends, device=self.device)).any(-1)
            if done.all():
                break
        rows = torch.stack(out, 1).tolist()
        return [list(itertools.takewhile(lambda t: t not in self.ends, row)) for row in rows]

    def answers(self, prompts, count):
        """Texts -> continuations; prompts of equal length share a batch."""
        encoded = [self.tokenizer.encode(p).ids for p in prompts]
        out = [None] * len(prompts)
        for length in sorted({len(e) for e in encoded}):
            where = [i for i, e in enumerate(encoded) if len(e) == length]
            for i, ids in zip(where, self.continue_ids([encoded[i] for i in where], count)):
                out[i] = self.tokenizer.decode(ids, skip_special_tokens=False)
        return out


def share(values):
    values = list(values)
    return round(sum(values) / max(1, len(values)), 4)


def sums(speaker, rng):
    pairs = [(a, b) for a in range(100) for b in range(100)]
    known = rng.sample([p for p in pairs if not arithmetic.held_out(*p)], 600)
    unseen = [p for p in pairs if arithmetic.held_out(*p)]
    right = lambda some: share(
        re.match(r" (\d+)", t + " ") is not None and int(re.match(r" (\d+)", t).group(1)) == a + b
        for (a, b), t in zip(some, speaker.answers([f"{a} + {b} =" for a, b in some], 6))
    )
    small = [(a, b) for a in range(20) for b in range(20) if not arithmetic.held_out(a, b)]
    return {
        "a + b up to 19": right(small),
        "a + b up to 99": right(known),
        "a + b up to 99, pairs never trained": right(unseen),
    }


def chat_sums(speaker, rng):
    pairs = [(rng.randrange(50), rng.randrange(50)) for _ in range(200)]
    replies = speaker.answers([conversation([user(f"What is {a} + {b}?")], prompt=True) for a, b in pairs], 72)
    numbers = [re.findall(r"\d+", r.split("</think>")[-1]) for r in replies]
    return share(bool(n) and int(n[-1]) == a + b for n, (a, b) in zip(numbers, pairs))


def tool_calls(speaker, rng, count=150):
    """Exactly the expected call, for questions of the generator the model has not seen."""
    groups = {}
    for _ in range(12 * count):  # equal lengths share a batch, so take the largest groups
        offered = [tools.instance(rng, base) for base in rng.sample(tools.TOOLS, rng.choice((1, 2, 3)))]
        made = tools.use(rng, rng.choice(offered))
        if made["aim"].startswith("pages") or not any(made["call"][0] == o["name"] for o in offered):
            continue
        name, arguments = made["call"]
        call = (
            f"<tool_call>\n<function={name}>\n"
            + "".join(
                f"<parameter={k}>\n{v if isinstance(v, str) else json.dumps(v)}\n</parameter>\n"
                for k, v in arguments.items()
            )
            + "</function>\n</tool_call>"
        )
        prompt = conversation([user(made["ask"])], [o["json"] for o in offered], prompt=True)
        groups.setdefault(len(speaker.tokenizer.encode(prompt).ids), []).append((prompt, call))
    some = [case for group in sorted(groups.values(), key=len, reverse=True) for case in group][:count]
    return share(call in reply for (_, call), reply in zip(some, speaker.answers([prompt for prompt, _ in some], 120)))


@torch.no_grad()
def drafts(speaker, ids, first):
    """Which greedy drafts are right after each boundary of `ids`: [3, boundaries] booleans, chained as in an engine.

    A draft counts only after a right one, so the drafted rows see the true tokens: all boundaries run at once. Rows
    of depth d see the true rows of their boundary and their own earlier drafts.
    """
    model = speaker.model
    ids = torch.tensor([ids], device=speaker.device)
    hidden = model.trunk.model(input_ids=ids).last_hidden_state
    n = ids.shape[1] - 4  # boundaries i: drafts for i + 2, i + 3, i + 4
    embedded = model.embed(ids)
    rotary = model.rotary(embedded)
    rows = torch.arange(n, device=speaker.device)
    inputs, outs, right = [], [hidden[:, :n]], []
    for depth in range(3):
        inputs.append(
            (embedded[:, 1 + depth : 1 + depth + n], outs[-1], tuple(r[:, depth : depth + n] for r in rotary))
        )
        visible = torch.zeros((depth + 1) * n, (depth + 1) * n, dtype=torch.bool, device=speaker.device)
        for d in range(depth + 1):
            visible[d * n : (d + 1) * n, :n] = rows[:, None] >= rows
            for e in range(1, d + 1):
                visible[d * n : (d + 1) * n, e * n : (e + 1) * n] = rows[:, None] == rows
        mask = torch.zeros(visible.shape, device=speaker.device).masked_fill(~visible, float("-inf"))[None, None]
        join = lambda k: torch.cat([i[k] for i in inputs], 1)
        angles = tuple(torch.cat([i[2][k] for i in inputs], 1) for k in (0, 1))
        outs.append(model.mtp(join(0), join(1), angles, mask)[:, depth * n :])
        right.append(model.trunk.lm_head(outs[-1]).argmax(-1)[0] == ids[0, depth + 2 : depth + 2 + n])
    right = torch.stack(right).cpu()[:, max(0, first - 1) :]
    return right.cumprod(0).bool()


def acceptance(speaker, rng):
    """Share of right drafts on greedy continuations of unseen prompts, and tokens per step with three drafts."""
    prompts = []
    for kind in (stories, stories, arithmetic, chat, chat, tools):
        made = random.Random(rng.random())
        for _ in range(4):
            text = kind.document(made)
            prompts.append(
                text[: text.index("<think>\n") + 8] if "<think>\n" in text else text[: max(24, len(text) // 5)]
            )
    found = []
    for prompt in prompts:
        ids = speaker.tokenizer.encode(prompt).ids
        (more,) = speaker.continue_ids([ids], 64)
        if len(more) > 6:
            found.append(drafts(speaker, ids + more, len(ids)))
    right = torch.cat(found, 1).float()
    return {
        "draft 1": round(right[0].mean().item(), 3),
        "draft 2": round(right[1].mean().item(), 3),
        "draft 3": round(right[2].mean().item(), 3),
        "tokens per step with 3 drafts": round(1 + right.sum(0).mean().item(), 2),
    }


def samples(speaker):
    out = []
    for prompt, count in SAMPLES:
        offered = [WEATHER] if isinstance(prompt, list) and "weather" in prompt[0]["content"] else None
        text = prompt if isinstance(prompt, str) else conversation(prompt, offered, prompt=True)
        shown = (
            prompt
            if isinstance(prompt, str)
            else prompt[0]["content"] + (" (with the tool get_weather)" if offered else "")
        )
        out.append({"prompt": shown, "chat": not isinstance(prompt, str), "text": speaker.answers([text], count)[0]})
    return out


def evaluate(folder, device="cpu"):
    speaker = Speaker(checkpoint.read(folder), bpe.load(folder), torch.device(device))
    rng = random.Random(99)
    report = {"samples": samples(speaker)}
    for s in report["samples"]:
        print(f"--- {s['prompt']}\n{s['text']}", flush=True)
    report["sums"] = sums(speaker, rng)
    report["chat sums up to 49 + 49"] = chat_sums(speaker, rng)
    report["tool calls exactly right"] = tool_calls(speaker, rng)
    report["drafts accepted"] = acceptance(speaker, rng)
    print(json.dumps({k: v for k, v in report.items() if k != "samples"}, indent=1), flush=True)
    return report


if __name__ == "__main__":
    folder = sys.argv[1]
    found = evaluate(folder, "cuda" if torch.cuda.is_available() else "cpu")
    bpe.write_json(os.path.join(folder, "report.json"), found)
