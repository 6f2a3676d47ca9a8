# SPDX-License-Identifier: Apache-2.0
"""Devices that are missing, too small, or out of the host's reach, through the real frt-host.

The device frt.test.far is the CPU with memory that the host cannot touch: what runs on it needs no
change for a GPU.
"""
import json
import os
import pathlib
import unittest

from support import DEVICE, FIXTURES, HOST, MANIFEST, OK, HostTest

FAR = pathlib.Path(os.environ["FRT_FAR_PLUGIN_DIR"])
OWN = HOST.parent.parent / "lib/frt/plugins"
CUDA = sorted(OWN.glob("frt_cuda_sm*.so"))


class Moving(HostTest):
    def test_one_word_moves_a_model_and_the_text_stays(self):
        manifest = self.demo()
        arguments = ("-p", "Once upon a time", "-n", 24, "--greedy")
        near = self.run_json(manifest, *arguments)
        for settings in ((), ("--set", "device.cpu0.capture=false")):
            for backend in ("auto", "frt.test.far"):
                with self.subTest(backend, settings=settings):
                    far = self.run_json(manifest, "--plugin-dir", FAR, "--set",
                                        f"device.cpu0.backend={backend}", *settings, *arguments)
                    self.assertEqual(near["ids"], far["ids"])
                    self.assertEqual(far["captures_since_ready"], 0)

    def test_chat_bench_and_verify_run_there(self):
        manifest = self.manifest(f"""schema = 1
[device.d]
backend = "frt.test.far"
[model.m]
plugin = "frt.qwen36"
device = "d"
checkpoint = "{FIXTURES / "qwen36/dense"}"
[model.m.options]
slots = 2
max_context = 512
""")
        rows = json.loads(self.check(OK, "-q", "bench", "--plugin-dir", FAR, manifest, "-p", 20,
                                     "-n", 4, "-d", 8, "-b", "1,2", "-r", 2, "-o", "json").stdout)
        self.assertEqual([row["test"] for row in rows],
                         ["pp20 @ d8", "tg4 @ d8", "tg4 @ d8 x 2"])
        self.assertGreater(rows[1]["floor_bytes"], 0)
        profile = json.loads(self.check(OK, "-q", "bench", "--plugin-dir", FAR, manifest, "-p", 20,
                                        "-n", 4, "-d", 8, "--profile", "-o", "json").stdout)
        self.assertEqual([table["test"] for table in profile], ["pp20 @ d8", "tg4 @ d8"])
        for table in profile:
            names = {row["operator"] for row in table["operators"]}
            self.assertLessEqual({"frt.embed/1", "frt.sample/1"}, names)
            self.assertAlmostEqual(table["step_us"],
                                   sum(row["step_us"] for row in table["operators"]), places=3)

    def test_the_doctor_shows_what_a_backend_reports_about_its_device(self):
        findings = json.loads(self.check(OK, "doctor", "--plugin-dir", FAR,
                                         "--json").stdout)["findings"]
        facts = {finding["subject"]: finding for finding in findings}
        distance = facts["device frt.test.far:0 distance"]
        self.assertEqual((distance["verdict"], distance["fact"]), ("ok", "384400 km"))
        signal = facts["device frt.test.far:0 signal"]
        self.assertEqual((signal["verdict"], signal["advice"]), ("note", "turn the dish"))
        self.assertIn("device frt.test.far:0 crater 19", facts)
        table = self.check(OK, "doctor", "--plugin-dir", FAR).stdout        # many are not for a table
        self.assertRegex(table, "distance +384400 km")
        self.assertIn("signal", table)
        self.assertNotIn("crater 19", table)
        self.assertRegex(table, r"and \d+ more facts of devices: --json has them")

    def test_weights_that_do_not_fit_say_what_is_needed_and_what_is_there(self):
        manifest = self.model_manifest("synthetic:qwen3.6-tiny", options="max_context = 64",
                                       device='[device.cpu0.options]\nmemory = "1M"')
        result = self.check(DEVICE, "run", "--plugin-dir", FAR, "--set",
                            "device.cpu0.backend=frt.test.far", manifest, "--prompt-ids", "1")
        for text in ("weights need", "1.0 MiB free", "too few", "far device", "max_context"):
            self.assertIn(text, result.stderr)
        checkpoint = self.model_manifest(FIXTURES / "demo", options="max_context = 64",
                                         device='[device.cpu0.options]\nmemory = "12M"')
        result = self.check(DEVICE, "run", "--plugin-dir", FAR, "--set",
                            "device.cpu0.backend=frt.test.far", checkpoint, "-p", "x")
        self.assertIn("12.0 MiB free", result.stderr)

    def test_a_device_that_breaks_in_mid_run_ends_the_run_and_not_the_process(self):
        for launches, said in ((1, False), (5, True)):
            manifest = self.demo(device=f"[device.cpu0.options]\nlost_after = {launches}")
            for command in (("run", "-p", "Once upon a time", "-n", 24, "--greedy"),
                            ("bench", "-p", 16, "-n", 8)):
                with self.subTest(command[0], launches=launches):
                    result = self.check(DEVICE, "--plugin-dir", FAR, "--set",
                                        "device.cpu0.backend=frt.test.far", command[0], manifest,
                                        *command[1:])
                    self.assertIn("lost", result.stderr)
                    if command[0] == "run":
                        self.assertEqual(bool(result.stdout.strip()), said)

    def test_the_automatic_context_shrinks_to_what_fits(self):
        manifest = self.model_manifest(FIXTURES / "demo",
                                       device='[device.cpu0.options]\nmemory = "40M"')
        result = self.check(OK, "run", "--plugin-dir", FAR, "--set",
                            "device.cpu0.backend=frt.test.far", manifest, "-p", "One day", "-n", 4)
        self.assertIn("tok/s", result.stderr)


class Missing(HostTest):
    def test_a_backend_that_is_not_installed(self):
        result = self.check(MANIFEST, "run", self.demo(), "-p", "x", "--set",
                            "device.cpu0.backend=acme.accelerator.9")
        for text in ("acme.accelerator.9", "frt.cpu", "--plugin-dir", str(OWN)):
            self.assertIn(text, result.stderr)

    def test_an_option_that_a_backend_has_no_kernel_for_is_an_error(self):
        for backend in ("frt.cpu", "frt.test.far"):
            settings = ("--plugin-dir", FAR, "--set", f"device.cpu0.backend={backend}",
                        "--set", "device.cpu0.options.activations=fp8")
            for command in (("config", "check", self.demo()), ("run", self.demo(), "-p", "x")):
                with self.subTest(backend, command=command[0]):
                    result = self.check(MANIFEST, *command, *settings)
                    self.assertIn("unknown key `activations`", result.stderr)
                    self.assertIn("known keys", result.stderr)

    def test_the_listing_says_what_auto_would_do(self):
        listing = json.loads(self.check(OK, "devices", "--plugin-dir", FAR, "--json").stdout)
        self.assertTrue(listing["auto"]["backend"])
        self.assertNotEqual(listing["auto"]["backend"], "frt.cpu")


@unittest.skipUnless(CUDA, "built without the CUDA backend")
class NoDriver(HostTest):
    """The CUDA plugins where there is no driver or no device."""

    def setUp(self):
        super().setUp()
        listing = json.loads(self.check(OK, "devices", "--json").stdout)
        self.problems = {row["id"]: row["problem"] for row in listing["backends"]
                         if row["id"].startswith("frt.cuda.")}
        if not all(self.problems.values()):
            self.skipTest("there is a device here")

    def test_every_command_works_and_names_the_problem(self):
        self.assertEqual(len(self.problems), len(CUDA))
        text = self.check(OK, "devices").stdout
        plugins = self.check(OK, "plugins", "ls").stdout
        doctor = self.check(OK, "doctor").stdout
        for plugin, problem in self.problems.items():
            self.assertIn("driver", problem)
            self.assertIn(f"{plugin}: no device: {problem}", text)
            self.assertIn(plugin, plugins)
            self.assertIn(problem, doctor)
            shown = self.check(OK, "plugins", "show", plugin).stdout
            self.assertIn("targets: sm_", shown)

    def test_a_named_backend_is_a_missing_device_with_the_fix(self):
        for plugin, problem in self.problems.items():
            with self.subTest(plugin):
                result = self.check(DEVICE, "run", self.demo(), "-p", "x", "--set",
                                    f"device.cpu0.backend={plugin}")
                self.assertIn(plugin, result.stderr)
                self.assertIn(problem, result.stderr)

    def test_auto_names_every_candidate(self):
        result = self.check(DEVICE, "run", self.demo(), "-p", "x", "--set",
                            "device.cpu0.backend=auto")
        for plugin in self.problems:
            self.assertIn(f"{plugin}: ", result.stderr)
        self.assertIn('backend = "frt.cpu"', result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
