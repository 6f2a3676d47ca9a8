#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Qwen3.6's classes of transformers (those of Qwen3.5), eager, bf16, random weights on the device:
a decode step and a prefill.

The model is built with one and with two periods of four layers, not with all of them: a period's
time is the difference, and the whole model's is EXTRAPOLATED from it. The printed lines say so.
Kernels of other packages (fla, causal-conv1d) are used only where they are installed.
"""

import argparse
import time

import torch

from peer import MODELS, median, print_header


def config_of(name, layers):
    from transformers import Qwen3_5MoeTextConfig, Qwen3_5TextConfig

    if name == "27b":
        return Qwen3_5TextConfig(
            hidden_size=5120, intermediate_size=17408, num_hidden_layers=layers,
            num_attention_heads=24, num_key_value_heads=4, linear_num_value_heads=48)
    return Qwen3_5MoeTextConfig(
        hidden_size=2048, num_hidden_layers=layers, num_attention_heads=16,
        num_key_value_heads=2, linear_num_value_heads=32, num_experts=256,
        num_experts_per_tok=8, moe_intermediate_size=512, shared_expert_intermediate_size=512)


def build(name, layers):
    from transformers import Qwen3_5ForCausalLM, Qwen3_5MoeForCausalLM

    kind = Qwen3_5ForCausalLM if name == "27b" else Qwen3_5MoeForCausalLM
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        return kind(config_of(name, layers)).eval()


def seconds(work, runs, before=lambda: None):
    """The median of `runs` times of work(), after one that does not count: `before` makes them all
    alike, so that what torch prepares once per shape (plans of attention) is there."""
    samples = []
    for _ in range(runs + 1):
        before()
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - start)
    print("  runs, ms: " + " ".join(f"{1e3 * one:.2f}" for one in samples))
    return median(samples[1:])


def measure(name, layers, tokens, runs, steps):
    """Seconds of a prefill of `tokens` and of one decode step behind it."""
    model = build(name, layers)
    ids = torch.randint(0, model.config.vocab_size, (1, tokens), device="cuda")
    last = {}

    def prefill():
        last["cache"] = model(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values

    one = ids[:, :1]

    def decode():
        for _ in range(steps):
            model(input_ids=one, past_key_values=last["cache"], use_cache=True)

    prefill_time = seconds(prefill, runs)
    decode_time = seconds(decode, runs, before=prefill) / steps
    del model, last["cache"]
    torch.cuda.empty_cache()
    return prefill_time, decode_time


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="27b")
    parser.add_argument("--tokens", type=int, default=8192, help="of the prefill")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8, help="decode steps per run")
    arguments = parser.parse_args()
    print_header(arguments)
    import transformers

    print(f"transformers {transformers.__version__}")
    periods = MODELS[arguments.model].layers // 4
    with torch.inference_mode():
        short = measure(arguments.model, 4, arguments.tokens, arguments.runs, arguments.steps)
        long = measure(arguments.model, 8, arguments.tokens, arguments.runs, arguments.steps)
    for what, at4, at8 in (("prefill", short[0], long[0]), ("decode step", short[1], long[1])):
        whole = at4 + (periods - 1) * (at8 - at4)
        print(f"{MODELS[arguments.model].name}, {what} ({arguments.tokens} tokens): "
              f"4 layers {1e3 * at4:.2f} ms, 8 layers {1e3 * at8:.2f} ms, medians of "
              f"{arguments.runs}; EXTRAPOLATED to {4 * periods} layers {1e3 * whole:.1f} ms")


if __name__ == "__main__":
    main()
