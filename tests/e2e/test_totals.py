# SPDX-License-Identifier: Apache-2.0
"""tools/lib/test_totals.py: the last lines of tools/test name each failed test and its cases."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/lib/test_totals.py"
GOOD = """\
1: [doctest] test cases:  2 |  2 passed | 0 failed | 1 skipped
1/4 Test #1: core_test .......................   Passed    0.10 sec
"""
DOCTEST = """\
2: TEST CASE:  a case that only says something
2:
2: a.cpp:3: MESSAGE: an error: this is none
2: ===============================================================================
2: a.cpp:10:
2: TEST CASE:  two and two are four
2:
2: a.cpp:11: ERROR: CHECK( 2 + 2 == 5 ) is NOT correct!
2:   values: CHECK( 4 == 5 )
2: a.cpp:12: ERROR: CHECK( false ) is NOT correct!
2: ===============================================================================
2: TEST CASE:  it throws
2:
2: a.cpp:20: ERROR: test case THREW exception: no
2: ===============================================================================
2: TEST CASE:  it crashes
2:
2: a.cpp:30: FATAL ERROR: test case CRASHED: SIGSEGV - Segmentation violation signal
2: [doctest] test cases:  5 |  2 passed | 3 failed | 0 skipped
2/4 Test #2: io_test .........................***Failed    0.20 sec
"""
OTHERS = """\
3: test_a (__main__.Some.test_a) ... ok
3: FAIL: test_b (__main__.Some.test_b)
3: FAIL: test_b (__main__.Some.test_b) (defect='x')
3: ERROR: test_c (__main__.Some.test_c)
3: Ran 4 tests in 1.000s
3: FAILED (failures=2, errors=1)
3/4 Test #3: e2e_test_some ...................***Failed    0.30 sec
4: FAIL  frt.silu_mul/1 bf16 7x33                              value 3
4: HANG  plugin load                                           no end
4: 7 passed, 2 failed, 0 skipped
4/4 Test #4: conformance_cpu .................***Timeout 600.00 sec
5/5 Test #5: quiet_test ......................***Exception: SegFault  0.30 sec
"""


class Totals(unittest.TestCase):
    def totals(self, log, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "release.log"
            path.write_text(log, encoding="utf-8")
            result = subprocess.run([sys.executable, SCRIPT, *arguments, path], capture_output=True, text=True)
        self.assertEqual(result.stderr, "")
        return result.returncode, result.stdout.splitlines()

    def test_what_passes_is_one_line(self):
        self.assertEqual(self.totals(GOOD), (0, ["2 passed, 0 failed, 1 skipped"]))

    def test_a_failed_test_is_named_with_its_cases_before_the_totals(self):
        self.assertEqual(self.totals(GOOD + DOCTEST), (1, [
            "failed: release io_test: two and two are four; it throws; it crashes", "4 passed, 3 failed, 1 skipped"]))
        self.assertEqual(self.totals(OTHERS), (1, [
            "failed: release e2e_test_some: test_b; test_c",
            "failed: release conformance_cpu: frt.silu_mul/1 bf16 7x33; plugin load",
            "failed: release quiet_test: failed (exception: segfault)", "1 passed, 5 failed, 0 skipped"]))

    def test_many_cases_are_counted(self):
        cases = "".join(f"2: TEST CASE:  case {i}\n2: a.cpp:1: ERROR: CHECK( 0 ) is NOT correct!\n" for i in range(20))
        _, lines = self.totals(cases + "2/4 Test #2: io_test ....***Failed    0.20 sec\n")
        self.assertEqual(lines[0], "failed: release io_test: " + "; ".join(f"case {i}" for i in range(8)) + "; and 12 more")

    def test_a_stage_that_failed_without_a_test_is_a_failure(self):
        self.assertEqual(self.totals(GOOD, "--stages-failed", "1"), (1, ["2 passed, 1 failed, 1 skipped"]))


if __name__ == "__main__":
    unittest.main(verbosity=2)
