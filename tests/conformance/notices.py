#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every reference of the conformance cases notices a backend that computes something else, even
where the backend under test and the reference backend are wrong in the same way.

    notices.py <frt-plugin-check> <spoiled plugin> <CPU plugin>
"""
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import one_core  # noqa: E402

# The operator that is spoiled, and cases of it that take a moment.
SPOILED = {
    "frt.embed/1": "frt.embed/1 bf16 to f32",
    "frt.select_tokens/1": "frt.select_tokens/1 decode",
    "frt.last_rows/1": "frt.last_rows/1 bf16 verify",
    "frt.lag_rows/1": "frt.lag_rows/1 f32 verify",
    "frt.store_rows/1": "frt.store_rows/1 f32 verify",
    "frt.argmax/1": "frt.argmax/1 normal 3x33",
    "frt.count_tokens/1": "frt.count_tokens/1 generated several rows",
    "frt.sample/1": "frt.sample/1 1000 ",
    "frt.accept_tokens/1": "frt.accept_tokens/1 of 2 ids, stops 0",
    "frt.chain_tokens/1": "frt.chain_tokens/1 column 3",
    "frt.convert/1": "frt.convert/1 f32 to bf16 9x131",
    "frt.fill_uniform/1": "frt.fill_uniform/1 bf16 34 ",
    "frt.checksum/1": "frt.checksum/1 1000 words",
    "frt.silu_mul/1": "frt.silu_mul/1 bf16 7x33",
    "frt.pack_views/1": "frt.pack_views/1",
    "frt.patches/1": "frt.patches/1 bf16 image 0",
    "frt.patch_embed/1": "frt.patch_embed/1 bf16 image 3",
    "frt.embed_rows/1": "frt.embed_rows/1 f32 bf16",
    "frt.moe_route/1": "frt.moe_route/1 7 rows",
    "frt.moe_combine/1": "frt.moe_combine/1 f32 5x2048",
    # One of 48 inputs, one output.
    "frt.linear/1": "frt.linear/1 bf16 bf16 to bf16 16x1x48",
}


# An operator that is declined, and cases of it beside those of others.
DECLINED, DECLINED_CASES = "frt.lag_rows/1", "_rows/1 "
PEERS = "copies between two devices"
WORDS = "words of a call that failed"
EXPERTS = "frt.moe_experts/1 bf16 nvfp4 200 rows 2/3"
# What is unlike the CPU, cases, options, the exit status, and what the program says.
ANSWERS = [
    # FRT_ERR_UNSUPPORTED always, and to wrong arguments.
    ({"FRT_UNSUPPORTED": DECLINED}, DECLINED_CASES, [], 0, " 0 failed"),
    ({"FRT_UNSUPPORTED": DECLINED}, DECLINED_CASES, ["--strict"], 1, "not supported: frt.lag_rows/1"),
    ({"FRT_PROMISED": DECLINED}, DECLINED_CASES, [], 1, "supports answers FRT_OK, launch answers FRT_ERR_UNSUPPORTED"),
    ({"FRT_CONFUSED": DECLINED}, DECLINED_CASES, [], 1, "answers wrong arguments with FRT_ERR_UNSUPPORTED"),
    # Two of three experts have more than 128 rows, which rounding does not explain away.
    ({}, EXPERTS, ["--once"], 0, " 0 failed"),
    ({"FRT_SPOILED": "frt.moe_experts/1"}, EXPERTS, ["--once", "--activations", "fp4"], 1, "row "),
    # A kernel variant that no case ran.
    ({}, "frt.silu_mul/1 bf16 7x33", [], 0, " 0 failed"),
    ({}, "frt.silu_mul/1 bf16 7x33", ["--all-variants"], 1, "`frt.rms_norm/1 kernel`, and no case ran it"),
    ({}, "frt.silu_mul/1 bf16 7x33", ["--json"], 0, '"frt.silu_mul/1 kernel"'),
    # A kernel is looked up by what it writes, too.
    ({"FRT_NARROW": "frt.rms_norm/1"}, "frt.rms_norm/1 f32 bf16 2x3", [], 0, " 0 skipped"),
    ({"FRT_NARROW": "frt.rms_norm/1"}, "frt.rms_norm/1 f32 f32 2x3", [], 1, "nothing was checked"),
    # A copy_peer in the order of both streams, and one that is not.
    ({}, PEERS, [], 0, " 0 failed"),
    ({"FRT_SPOILED": "copy_peer"}, PEERS, [], 1, "not in the order of both streams"),
    # Words that are given once, and words that stay.
    ({}, WORDS, [], 0, " 0 failed"),
    ({"FRT_SPOILED": "last_error"}, WORDS, [], 1, "when they were given"),
]


def check(program, plugin, cases, reference, *options, **how):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FRT_")}
    result = subprocess.run(
        [program, plugin, "--reference", reference, "--filter", cases, "--threads", "1", *options],
        capture_output=True, text=True, env={**environment, **how})
    return result.returncode, result.stdout + result.stderr


def main():
    program, plugin, cpu = sys.argv[1:]
    wrong = []
    for operator, cases in SPOILED.items():
        status, said = check(program, plugin, cases, plugin)
        if status != 0:
            wrong.append(f"{operator} fails as it is:\n{said}")
            continue
        status, said = check(program, plugin, cases, plugin, FRT_SPOILED=operator)
        # Not merely a difference between two backends, nor a refusal.
        noticed = [line for line in said.splitlines()
                   if line.startswith("FAIL") and ("by its header" in line or "by the header" in line)]
        if status != 1 or not noticed:
            wrong.append(f"{operator}, spoiled, is not noticed:\n{said}")
    spoiled = len(wrong)
    for how, cases, options, expected, words in ANSWERS:
        status, said = check(program, plugin, cases, cpu, *options, **how)
        if status != expected or words not in said:
            wrong.append(f"{how} {options} is not taken as it is meant:\n{said}")
    print(f"{len(SPOILED) - spoiled} of {len(SPOILED)} spoiled operators noticed")
    for text in wrong:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    one_core.take()
    sys.exit(main())
