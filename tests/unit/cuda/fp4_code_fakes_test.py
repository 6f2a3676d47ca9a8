#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fp4_code_test.py on made-up machine code: a disassembler that prints the files it is given."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("fp4_code_test.py")
PRODUCT = "        /*0010*/  OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X R1, R2, R3, R4 ;\n"
KERNELS = ("grouped_tile_fp4ILb0E", "grouped_tile_fp4ILb1E")


def function(name, products):
    return f"\t\tFunction : {name}\n" + PRODUCT * products + "        /*0020*/  EXIT ;\n"


class Fakes(unittest.TestCase):
    def judge(self, code, *options):
        with tempfile.TemporaryDirectory() as folder:
            disassembler = pathlib.Path(folder) / "cuobjdump"
            disassembler.write_text("#!/bin/sh\nfor last; do :; done\ncat \"$last\"\n", encoding="utf-8")
            disassembler.chmod(0o755)
            made = pathlib.Path(folder) / "made.o"
            made.write_text(code, encoding="utf-8")
            result = subprocess.run([sys.executable, TOOL, "--folder", folder, *options, made], capture_output=True,
                                    text=True, timeout=60, check=False)
        return result.returncode, result.stdout + result.stderr

    def test_every_kernel_must_have_the_product(self):
        code, text = self.judge("".join(function(name, 64) for name in KERNELS), "sm_120a", "with")
        self.assertEqual(code, 0, text)
        code, text = self.judge(function(KERNELS[0], 64) + function(KERNELS[1], 0), "sm_120a", "with")
        self.assertEqual(code, 1, text)
        self.assertIn(f"{KERNELS[1]} of ", text)
        self.assertIn("has 0 products", text)

    def test_code_compiled_fast_calls_a_function_for_the_product(self):
        called = "".join(function(name, 0) for name in KERNELS)
        code, text = self.judge(called + function("mma_fp4", 8), "--fast", "sm_120a", "with")
        self.assertEqual(code, 0, text)
        code, text = self.judge(called, "--fast", "sm_120a", "with")
        self.assertEqual(code, 1, text)

    def test_what_emulates_the_product_and_what_has_it_elsewhere_are_refused(self):
        kernels = "".join(function(name, 64) for name in KERNELS)
        code, text = self.judge(kernels + function("emulate_mma_fp4", 0), "sm_120a", "with")
        self.assertEqual(code, 1, text)
        self.assertIn("emulates", text)
        code, text = self.judge(kernels, "sm_90a", "without")
        self.assertEqual(code, 1, text)
        code, text = self.judge("".join(function(name, 0) for name in KERNELS), "sm_90a", "without")
        self.assertEqual(code, 0, text)
        code, text = self.judge(function("other", 0), "sm_90a", "without")
        self.assertEqual(code, 1, text)
        self.assertIn("no kernel tile_fp4", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
