# SPDX-License-Identifier: Apache-2.0
"""tools/bench/run on a copy of its folder, with a host that only pretends to measure. The page in the tree is what it writes."""
import importlib.machinery
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOST = """#!/bin/sh
case "$*" in *broken*) echo "error: no such manifest" >&2; exit 3 ;; esac
n=$(cat {count} 2>/dev/null || echo 0); n=$((n + 1)); echo $n > {count}
echo '[{{"device": "Made-up 9000", "read_bandwidth": 4.5e12, "clock_after_mhz": 1980, "floor_ms": 4,'
echo '"step_ms": {{"p50": '$((n % 3 + 5))', "p99": 9}}, "repetition_seconds": [0.1, 0.3, 0.2], "tflops": 395}}]'
"""
ROWS = """
[peer.other]
title = "Other 1.0"
source = "measured elsewhere"
[[section]]
id = "decode"
title = "Decode"
device = "gpu"
unit = "ms"
about = "One sequence."
[[row]]
section = "decode"
name = "small"
command = "bench small.toml"
value = "0.step_ms.p50"
p99 = "0.step_ms.p99"
floor = "0.floor_ms"
must = 5
peers = { other = 12 }
[[row]]
section = "decode"
name = "prompt"
command = "bench small.toml -p 9"
value = "0.repetition_seconds"
scale = 1000
flops = "0.tflops"
rate = 790
"""


def roofline():
    """tools/bench/roofline as a module."""
    loader = importlib.machinery.SourceFileLoader("roofline", str(ROOT / "tools/bench/roofline"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("roofline", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


class BenchRows(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.bench = self.root / "tools/bench"
        self.bench.mkdir(parents=True)
        shutil.copy(ROOT / "tools/bench/run", self.bench / "run")
        (self.bench / "rows.toml").write_text(ROWS, encoding="utf-8")
        (self.bench / "results").mkdir()
        self.host = self.root / "host"
        self.host.write_text(HOST.format(count=self.root / "count"), encoding="utf-8")
        self.host.chmod(0o755)

    def run_tool(self, *arguments, status=0):
        result = subprocess.run([sys.executable, self.bench / "run", "--host", self.host, *arguments],
                                capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout if status == 0 else result.stderr

    def test_rows_are_measured_and_the_page_says_them(self):
        self.run_tool("--device", "gpu", "--processes", "3", "--report")
        stored = json.loads((self.bench / "results/made-up-9000.json").read_text(encoding="utf-8"))
        small = stored["rows"]["decode: small"]
        self.assertEqual(sorted(small["values"]), [5, 6, 7])
        self.assertEqual((small["median"], small["p99"], small["floor"]), (6, 9, 4))
        self.assertAlmostEqual(stored["rows"]["decode: prompt"]["floor"], 100)   # 200 ms at half of the rate
        page = (self.bench / "RESULTS.md").read_text(encoding="utf-8")
        self.assertIn("| small | **6** | 5 to 7 | 9 | 4 | 67 % | 5, missed by 20 % | 12 (2.0x) |", page)
        self.assertIn("Made-up 9000; commit ", page)
        self.assertIn("reads 4.5 TB/s; clock 1980 MHz", page)
        self.run_tool("--check")

    def test_one_row_is_measured_again_and_the_others_stay(self):
        self.run_tool("--device", "gpu", "--processes", "1")
        before = json.loads((self.bench / "results/made-up-9000.json").read_text(encoding="utf-8"))["rows"]
        self.run_tool("--device", "gpu", "--processes", "1", "--rows", "small")
        after = json.loads((self.bench / "results/made-up-9000.json").read_text(encoding="utf-8"))["rows"]
        self.assertNotEqual(after["decode: small"]["values"], before["decode: small"]["values"])
        self.assertEqual(after["decode: prompt"], before["decode: prompt"])

    def test_a_page_that_somebody_edited_is_noticed(self):
        self.run_tool("--device", "gpu", "--processes", "1", "--report")
        page = self.bench / "RESULTS.md"
        page.write_text(page.read_text(encoding="utf-8").replace("67 %", "99 %").replace("**", ""), encoding="utf-8")
        self.assertIn("run tools/bench/run --report", self.run_tool("--check", status=1))

    def test_errors_say_where_and_why(self):
        rows = self.bench / "rows.toml"
        rows.write_text(ROWS.replace('"bench small.toml"', '"bench broken.toml"'), encoding="utf-8")
        self.assertIn("`frt-host bench broken.toml` ended with 3: error: no such manifest",
                      self.run_tool("--device", "gpu", status=1))
        rows.write_text(ROWS.replace("0.step_ms.p50", "0.step_ms.p51"), encoding="utf-8")
        self.assertIn("row 'decode: small': the output of its command has nothing at '0.step_ms.p51'",
                      self.run_tool("--device", "gpu", status=1))
        rows.write_text(ROWS.replace('section = "decode"', 'section = "nowhere"'), encoding="utf-8")
        self.assertIn("row 'small': no section 'nowhere'", self.run_tool("--report", status=1))
        rows.write_text(ROWS, encoding="utf-8")
        self.assertIn("no row of rows.toml matches", self.run_tool("--device", "cpu", status=1))

    def test_commands_are_listed_without_being_run(self):
        self.assertEqual(self.run_tool("--list"), "frt-host bench small.toml\nfrt-host bench small.toml -p 9\n")
        self.assertFalse((self.root / "count").exists())

    def test_two_hosts_are_compared_in_turn(self):
        table = self.run_tool("--device", "gpu", "--processes", "3", "--rows", "prompt", "--against", self.host)
        self.assertIn("| decode: prompt | 200 | 200 | 1.000 |", table)
        self.assertEqual(list((self.bench / "results").iterdir()), [])

    def test_the_pages_in_the_tree_are_what_the_tools_write(self):
        for tool in ("run", "roofline"):
            with self.subTest(tool):
                result = subprocess.run([sys.executable, ROOT / "tools/bench" / tool, "--check"], capture_output=True,
                                        text=True, timeout=60, check=False)
                self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_floor_of_prefill_is_the_longer_of_its_arithmetic_and_its_bytes(self):
        tool = roofline()
        for model in tool.MODELS:
            for form, (_, operand) in tool.FORMATS.items():
                for name, device in tool.DEVICES.items():
                    if not device[operand]:
                        continue
                    with self.subTest(model=model.name, form=form, device=name):
                        instant = {rate: 1e30 for rate in ("bf16", "fp8", "fp4")}
                        bounds = [model.prefill(form, {**device, **changed}, 8192, True)
                                  for changed in ({"bandwidth": 1e30}, instant)]
                        self.assertAlmostEqual(model.prefill(form, device, 8192, True), max(bounds))

    def test_a_floor_without_a_kernel_is_marked(self):
        tool = roofline()
        dense, experts = tool.MODELS
        for model, operand, device, expected in (
                (dense, "fp8", "H200", True), (experts, "fp8", "H200", False), (dense, "fp8", "RTX 5090", False),
                (experts, "fp4", "RTX 5090", True), (dense, "fp4", "Thor", False), (tool.Pi05(), "fp4", "RTX 5090", False)):
            with self.subTest(model=model.name, operand=operand, device=device):
                self.assertEqual(tool.has_kernel(model, operand, tool.DEVICES[device]), expected)
        rows = [line for line in tool.page().splitlines() if line.startswith("| 35B-A3B FP8, activations fp8 |")]
        self.assertEqual(len(rows), 1)
        self.assertRegex(rows[0], r"\d\* \|$")  # the H200 is the last one


if __name__ == "__main__":
    unittest.main(verbosity=2)
