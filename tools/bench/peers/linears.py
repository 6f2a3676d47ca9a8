#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All linears of Qwen3.6, in bf16, as one CUDA graph of torch's F.linear: what cuBLAS makes of the
model when nothing else is in the way. Every layer has weights of its own, random.

    linears.py --model 27b --rows 1        a decode step
    linears.py --model 27b --rows 8192     a prefill

Experts: at few rows the chosen ones of each row one after the other, a weight of its own each; at
many rows one batched product of all experts with evenly spread rows, the best case, and the same
experts for every layer (they are far larger than the cache).

The head is applied to one row, as in a prefill.
"""

import argparse

import torch
from torch.nn.functional import linear

from peer import MODELS, captured, median, milliseconds, percentile_99, print_header


def random_weight(*shape):
    return torch.empty(*shape, dtype=torch.bfloat16, device="cuda").uniform_(-0.02, 0.02)


def build(model, rows):
    """The work, its bytes of weights and its floating-point operations."""
    weights, inputs = [], {}
    bytes_read = operations = 0

    def source(width, count=rows):
        key = (count, width)
        if key not in inputs:
            inputs[key] = torch.randn(count, width, dtype=torch.bfloat16, device="cuda")
        return inputs[key]

    def add(outputs, width, count=rows):
        nonlocal bytes_read, operations
        weights.append((random_weight(outputs, width), source(width, count)))
        bytes_read += 2 * outputs * width
        operations += 2 * outputs * width * count

    batched = []
    few = rows * model.chosen <= 64
    for index in range(model.layers):
        for one in model.layer(index):
            add(one.outputs, one.inputs)
        if model.experts and few:
            for _ in range(rows * model.chosen):
                add(2 * model.expert_width, model.hidden, 1)
                add(model.hidden, model.expert_width, 1)
    add(model.vocabulary, model.hidden, 1)
    if model.experts and not few:
        each = rows * model.chosen // model.experts
        for outputs, width in ((2 * model.expert_width, model.hidden),
                               (model.hidden, model.expert_width)):
            weight = random_weight(model.experts, outputs, width)
            x = torch.randn(model.experts, each, width, dtype=torch.bfloat16, device="cuda")
            batched.append((x, weight.transpose(1, 2)))
            bytes_read += model.layers * 2 * weight.numel()
            operations += model.layers * 2 * outputs * width * each * model.experts

    def work():
        for weight, x in weights:
            linear(x, weight)
        for x, weight in batched:
            for _ in range(model.layers):
                torch.bmm(x, weight)

    return work, bytes_read, operations


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="27b")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=0, help="replays per run; 0: by size")
    parser.add_argument("--eager", action="store_true", help="launches instead of a graph")
    arguments = parser.parse_args()
    print_header(arguments)
    model = MODELS[arguments.model]
    with torch.no_grad():
        work, bytes_read, operations = build(model, arguments.rows)
        replay = work if arguments.eager else captured(work)
        repeats = arguments.repeats or (20 if arguments.rows <= 64 else 1)
        samples = milliseconds(replay, arguments.runs, repeats)
    middle = median(samples)
    print(f"{model.name}, {arguments.rows} rows, all linears: median {middle:.3f} ms, "
          f"p99 {percentile_99(samples):.3f} ms of {arguments.runs} runs x {repeats}; "
          f"{bytes_read / 1e9:.2f} GB of weights = {bytes_read / middle / 1e9:.2f} TB/s, "
          f"{operations / 1e12:.2f} TFLOP = {operations / middle / 1e9:.0f} TFLOP/s")


if __name__ == "__main__":
    main()
