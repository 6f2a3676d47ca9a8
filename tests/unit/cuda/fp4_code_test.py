#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Looks for the product of FP4 by FP4 in the machine code of objects of a CUDA plugin.

    fp4_code_test.py [--folder FOLDER] [--fast] <sm_120a> <with|without> <object>...

`with`: each kernel named tile_fp4 has the instruction, at least once for each selector of scales, and nothing emulates it;
code that was compiled fast (--fast) calls it, so each object with such a kernel has it. `without`: the kernels are there,
and no object has the instruction. The disassembler is cuobjdump of FOLDER or of the path; without one the exit status is
77, skipped.
"""
import argparse
import re
import shutil
import subprocess
import sys

SKIPPED = 77
PRODUCT = "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"
PRODUCTS = 8  # two pairs by four quarters; optimised code has 64, a turn of two stages


def disassemble(tool, machine, path):
    result = subprocess.run([tool, "-sass", "-arch", machine, path], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"`{tool} -sass -arch {machine} {path}` ended with {result.returncode}: {result.stderr.strip()}")
    functions = {}
    for part in re.split(r"^\s*Function : ", result.stdout, flags=re.M)[1:]:
        name, code = part.split("\n", 1)
        functions[name.strip()] = code
    return functions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", default="")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("machine")
    parser.add_argument("expected", choices=("with", "without"))
    parser.add_argument("objects", nargs="+")
    options = parser.parse_args()
    tool = shutil.which("cuobjdump", path=options.folder) or shutil.which("cuobjdump")
    if not tool:
        print(f"skipped: no cuobjdump in {options.folder or 'a toolkit'} or on the path")
        return SKIPPED
    kernels = 0
    for path in options.objects:
        functions = disassemble(tool, options.machine, path)
        own = [name for name in functions if "tile_fp4" in name]
        products = {}
        for name, code in functions.items():
            if options.expected == "without" and re.search(r"\bOMMA\b", code):
                sys.exit(f"{name} of {path} has a product of FP4 by FP4, which {options.machine} has not")
            if options.expected == "with" and "emulate_mma_fp4" in name + code:
                sys.exit(f"{name} of {path} emulates what {options.machine} has an instruction for")
            products[name] = len(re.findall(re.escape(PRODUCT) + r"\b", code))
        kernels += len(own)
        if options.expected == "without" or not own:
            continue
        counts = {path: sum(products.values())} if options.fast else {f"{name} of {path}": products[name] for name in own}
        for where, count in counts.items():
            if count < PRODUCTS:
                sys.exit(f"{where} has {count} products of FP4 by FP4, expected {PRODUCTS} or more")
            print(f"{options.machine}: {where}: {count} products")
    if kernels == 0:
        sys.exit(f"no kernel tile_fp4 in machine code of {options.machine} in {', '.join(options.objects)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
