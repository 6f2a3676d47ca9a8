# SPDX-License-Identifier: Apache-2.0
"""The template of a backend: few operators, plain loops, a thread per stream. It runs the demo as the CPU's does."""
import json
import os
import re
import subprocess
import sys
import unittest

from installed_sdk import CAPSULES, REFERENCE, TemplateTest, run
from support import FIXTURES, OK, TIMEOUT, clean_environment

PROMPTS = ("Once upon a time", "The little dog")
TOKENS = 40
CHECK = os.environ["FRT_PLUGIN_CHECK"]


class Backend(TemplateTest):
    template = "backend"

    def demo(self, backend, device=""):
        return self.model_manifest(FIXTURES / "demo", 'activations = "f32"', device, CAPSULES, backend)

    def ids(self, manifest, *arguments, count=TOKENS):
        result = self.run_json(manifest, "-n", count, "--ignore-eos", *arguments)
        self.assertEqual(len(result["ids"]), count)
        self.assertEqual(result["captures_since_ready"], 0)
        return result["ids"]

    def test_the_host_tells_what_the_plugin_offers(self):
        shown = self.check(OK, "plugins", "show", "acme.simple").stdout
        self.assertRegex(shown, r"frt\.linear/1 +f32 +f32 +f32, bf16")
        self.assertNotIn("frt.norm_linears/1", shown)  # composed
        self.assertIn("acme.simple", self.check(OK, "devices").stdout)

    def test_the_demo_writes_the_tokens_of_the_cpu_backend_captured_and_eager(self):
        for prompt in PROMPTS:
            expected = self.ids(self.demo("frt.cpu"), "-p", prompt, "--greedy")
            for device in ("", "capture = false"):
                with self.subTest(prompt=prompt, device=device):
                    found = self.ids(self.demo("acme.simple", device), "-p", prompt, "--greedy")
                    self.assertEqual(found, expected)

    def test_a_capsule_goes_on_where_its_run_stopped(self):
        expected = self.ids(self.demo("frt.cpu"), "-p", PROMPTS[0], "--greedy")
        for device in ("", "capture = false"):
            with self.subTest(device=device):
                manifest = self.demo("acme.simple", device)
                first = self.ids(manifest, "-p", PROMPTS[0], "--greedy", "--save-capsule", "half", "--replace",
                                 count=17)
                rest = self.ids(manifest, "--from-capsule", "half", count=TOKENS - 17)
                self.assertEqual(first + rest, expected)

    def test_the_other_templates_run_on_it_as_on_the_cpu(self):
        def on_both(template, *command):
            source = self.build(template, "-DCMAKE_CXX_FLAGS_RELEASE=-O1")
            run(sys.executable, "make_weights.py", "weights.safetensors", cwd=source)
            return [self.check(OK, "-q", "--plugin-dir", self.plugins, "--plugin-dir", source / "build", "--set",
                               f"device.here.backend={backend}", *command, cwd=source).stdout
                    for backend in ("frt.cpu", "acme.simple")]

        text, same = on_both("model", "run", "manifest.toml", "-p", PROMPTS[0], "--greedy", "-n", 40)
        self.assertTrue(text)
        self.assertEqual(text, same)
        reports = map(json.loads, on_both("policy", "rollout", "manifest.toml", "-n", 20, "--seed", 1000, "--json"))
        for report in reports:
            self.assertGreaterEqual(report["success_rate"], 0.9)

    def test_its_streams_and_operators_do_what_their_headers_say(self):
        shown = self.check(OK, "plugins", "show", "acme.simple").stdout
        offered = set(re.findall(r"^(frt\.\S+/\d+) ", shown, re.MULTILINE))
        rules = "frt.backend/1"  # of streams, events and executables
        names = [name for name in self.plugin_check("--list").splitlines() if name.split()[0] in offered | {rules}]
        cases = self.folder / "cases"
        cases.write_text("\n".join(names), encoding="utf-8")
        said = self.plugin_check("--one-of-each", "--verbose", "--cases", cases)
        passed = {line.split()[1] for line in said.splitlines() if line.startswith("ok ")}
        self.assertEqual(passed, offered | {rules})
        self.assertIn(" 0 failed", said)
        self.assertRegex(said, r"skip .*not supported: frt\.attention/1: .* bf16")  # of keys and values
        words = self.plugin_check("--verbose", "--filter", "words of a call that failed")
        self.assertRegex(words, r"(?m)^ok +frt\.backend/1 words of a call that failed")

    def test_the_tutorial_does_what_it_says(self):
        devices, text, tests, checks = self.tutorial()
        self.assertIn("acme_simple_check", tests)
        self.assertIn("100% tests passed, 0 tests failed out of 1", tests)
        self.assertRegex(checks, r"\n[1-9]\d* passed, 0 failed")
        self.assertIn("acme.simple", devices)
        on_cpu = self.check(OK, "-q", "run", self.demo("frt.cpu"), "-p", PROMPTS[0], "--greedy", "-n", 20).stdout
        self.assertEqual(text, on_cpu.rstrip("\n"))

    def plugin_check(self, *options):
        result = subprocess.run(
            [CHECK, self.plugins / "acme_simple.so", "--reference", REFERENCE, *options], capture_output=True,
            text=True, timeout=TIMEOUT, env=clean_environment())
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout


if __name__ == "__main__":
    unittest.main()
