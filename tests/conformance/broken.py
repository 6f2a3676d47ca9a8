#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""frt-plugin-check over plugins that are broken in one place each: exactly the case of that place fails, by name and with
what to mend; whatever a plugin does, the checker ends with 1 and a verdict, and nothing that it started lives on.

    broken.py <frt-plugin-check> <folder of the faulty plugins>
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

CHECK, FOLDER = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1))

# The defect (tests/unit/broken_plugins), the case that finds it, its verdict, and words of the message.
BACKEND = [
    ("backend_missing", "plugin tables", "FAIL", "offers no frt.backend/1"),
    ("backend_no_copy", "plugin tables", "FAIL", "has no copy"),
    ("kernel_no_launch", "plugin device", "FAIL", "test.nothing/1 has no launch function"),
    ("kernels_null", "plugin device", "FAIL", "list of kernels is NULL"),
    ("kernels_count", "plugin device", "FAIL", "18446744073709551615 entries"),
    ("kernels_stride", "plugin device", "FAIL", "stride of 0 bytes"),
    ("device_count_huge", "plugin device", "FAIL", "4294967295 devices"),
    ("device_count_throws", "plugin device", "FAIL", "`device_count` threw"),
    ("device_count_exits", "plugin device", "CRASH", "exit status 0"),
    ("device_open_throws", "plugin device", "FAIL", "no such luck"),
    ("device_open_without_object", "plugin device", "FAIL", "made no device"),
]


def check(plugin, defect, *options):
    result = subprocess.run([CHECK, str(FOLDER / plugin), "--filter", "plugin", "--timeout", "60", *options],
                            env={**os.environ, "FRT_TEST_DEFECT": defect}, capture_output=True, text=True, timeout=300,
                            errors="replace")
    return result.returncode, result.stdout + result.stderr


class Broken(unittest.TestCase):
    def test_a_backend_without_a_defect_passes(self):
        code, text = check("faulty_backend.so", "")
        self.assertEqual(code, 0, text)
        self.assertIn("10 passed, 0 failed", text)

    def test_each_defect_fails_its_own_case(self):
        for defect, case, verdict, words in BACKEND:
            with self.subTest(defect):
                code, text = check("faulty_backend.so", defect)
                self.assertEqual(code, 1, text)
                found = [line for line in text.splitlines() if line.split(" ")[0] in ("FAIL", "CRASH", "HANG")]
                self.assertEqual(len(found), 1, text)
                self.assertRegex(found[0], rf"^{verdict} +{case} ")
                self.assertIn(words, found[0])

    def test_json_has_the_verdict_of_a_process_that_ended(self):
        code, text = check("faulty_backend.so", "device_count_exits", "--json")
        self.assertEqual(code, 1)
        self.assertIn("exit status 0", json.dumps(json.loads(text)))


unittest.main(argv=[sys.argv[0], "-v"])
