# SPDX-License-Identifier: Apache-2.0
"""A plugin that hangs in a call which a command makes is named in the log with the call. It hangs until the log says so.
One that ends the process of its trial is told with the signal, whatever frt-host inherited."""
import json
import os
import signal
import subprocess
import unittest

from support import HOST, OK, TIMEOUT, HostTest, clean_environment

PLUGINS = os.environ["FRT_DEFECT_PLUGIN_DIR"]


class Hanging(HostTest):
    def hangs(self, call, plugin, *arguments):
        log = self.folder / "log"
        environment = {**clean_environment(), "FRT_TEST_DEFECT": f"{call}_hangs", "FRT_TEST_LOG": str(log)}
        with self.subTest(call=call, command=arguments[0]), open(log, "wb") as stderr:
            result = subprocess.run(
                [HOST, "--plugin-dir", PLUGINS, "--setup-patience", "0.02", *map(str, arguments)], env=environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, cwd=self.folder, timeout=TIMEOUT)
            said = log.read_text(encoding="utf-8", errors="replace")
            self.assertEqual(result.returncode, OK, said)
            self.assertIn(f"{plugin}: its `{call}` has not returned for 0.02 s", said)

    def test_a_survey_of_devices(self):
        for call in ("open", "device_count", "device_info"):
            self.hangs(call, "test.device", "devices")
        self.hangs("report", "test.device", "doctor")

    def test_what_a_plugin_offers(self):
        for call in ("device_count", "device_open", "list", "device_close"):
            self.hangs(call, "test.device", "plugins", "show", "test.device")

    def test_a_model_is_checked_and_calibrated(self):
        manifest = self.model_manifest("synthetic:x", backend="test.device", plugin="test.roles")
        self.hangs("run", "test.roles", "verify", manifest, "--goldens", self.folder)
        for call in ("begin", "note", "write"):
            self.hangs(call, "test.roles", "calibrate", manifest, "--synthetic", 1)


class Trials(HostTest):
    def test_a_parent_that_ignores_its_children_takes_no_verdict(self):
        environment = {**clean_environment(), "FRT_TEST_DEFECT": "constructor_aborts", "XDG_CACHE_HOME": str(self.folder)}
        result = subprocess.run(
            [HOST, "--plugin-dir", PLUGINS, "doctor", "--json"], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.folder, timeout=TIMEOUT,
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        facts = [finding["fact"] for finding in json.loads(result.stdout)["findings"]
                 if finding["subject"] == "plugin test.device"]
        self.assertEqual(len(facts), 1, result.stdout)
        self.assertIn("ended the process with signal Aborted", facts[0])


if __name__ == "__main__":
    unittest.main()
