# SPDX-License-Identifier: Apache-2.0
"""A folder with a checkpoint where a command wants a manifest."""
import json
import re
import shutil
import subprocess
import unittest
import urllib.request

from support import (DEVICE, FAILED, FIXTURES, HOST, MANIFEST, OK, PLUGIN, TIMEOUT, HostTest,
                     clean_environment)

DEMO, LLAMA = FIXTURES / "demo", FIXTURES / "llama/gqa_llama3"
ON_THE_CPU = ("--set", "device.main.backend=frt.cpu")
WORDS = ("-p", "Once upon a time", "--greedy", "-n", "8")


class CheckpointFolder(HostTest):
    def copy(self, **config):
        folder = self.folder / "a \"model\" of ${mine}"
        shutil.copytree(DEMO, folder)
        folder.chmod(0o755)
        (folder / "config.json").unlink()
        if config:
            (folder / "config.json").write_text(json.dumps({**json.loads((DEMO / "config.json").read_text()), **config}))
        return folder

    def test_a_folder_runs_as_its_manifest_does(self):
        text = self.check(OK, "-q", "run", self.demo(), *WORDS).stdout
        self.assertEqual(self.check(OK, "-q", "run", DEMO, *ON_THE_CPU, *WORDS).stdout, text)
        self.assertEqual(self.check(OK, "-q", "run", ".", *ON_THE_CPU, *WORDS, cwd=DEMO).stdout, text)
        self.assertEqual(self.check(OK, "-q", "run", self.copy(model_type="qwen3_5"), *ON_THE_CPU, *WORDS).stdout, text)
        said = self.check(OK, "-q", "chat", DEMO, *ON_THE_CPU, "--greedy", "--no-thinking", stdin="What is 2 + 2?\n")
        self.assertIn("2 + 2 = 4", said.stdout)

    def test_the_plugin_is_the_one_whose_card_names_the_model_type(self):
        for folder, plugin in ((DEMO, "frt.qwen36"), (LLAMA, "frt.llama")):
            dump = json.loads(self.check(OK, "config", "dump", folder, "--json").stdout)
            self.assertEqual(dump["model"]["main"]["plugin"]["value"], plugin)
            self.assertIn(folder.name, dump["model"]["main"]["plugin"]["source"])
            self.assertEqual(dump["device"]["main"]["backend"]["value"], "auto")

    def test_the_manifest_that_it_stands_for_can_be_written_down(self):
        toml = self.check(OK, "config", "dump", DEMO, *ON_THE_CPU).stdout
        self.assertEqual(self.check(OK, "-q", "run", self.manifest(toml), *WORDS).stdout,
                         self.check(OK, "-q", "run", DEMO, *ON_THE_CPU, *WORDS).stdout)

    def test_a_record_of_a_folder_is_replayed(self):
        self.check(OK, "-q", "run", DEMO, *ON_THE_CPU, *WORDS, "--record", "run.json")
        self.assertIn("the same: 8 tokens", self.check(OK, "replay", "run.json", *ON_THE_CPU).stdout)

    def test_a_folder_is_served_under_every_name(self):
        with subprocess.Popen([HOST, "serve", DEMO, *ON_THE_CPU, "--listen", "127.0.0.1:0"], text=True,
                              stderr=subprocess.PIPE, env=clean_environment(), cwd=self.folder) as server:
            self.addCleanup(server.kill)
            for line in server.stderr:
                if found := re.match(r"serving main on (http://[0-9.:]+)", line):
                    break
            body = json.dumps({"model": "gpt-5", "prompt": "Once", "max_tokens": 3, "temperature": 0}).encode()
            request = urllib.request.Request(found[1] + "/v1/completions", body, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                self.assertEqual(json.load(answer)["usage"]["completion_tokens"], 3)
            server.terminate()
            self.assertEqual(server.wait(TIMEOUT), OK)

    def test_without_another_device_the_processor_must_be_asked_for(self):
        result = self.frt("run", DEMO, *WORDS)
        if result.returncode != OK:
            self.assertEqual(result.returncode, DEVICE, result.stderr)
            self.assertIn("add --set device.main.backend=frt.cpu", result.stderr)

    def test_a_folder_that_is_no_checkpoint_says_what_it_lacks(self):
        empty = self.folder / "empty"
        empty.mkdir()
        for command in (["run", empty, "-p", "x"], ["config", "check", empty], ["serve", empty]):
            self.assertIn("has no config.json", self.check(MANIFEST, *command).stderr)
        for text in ("{}", '{"model_type": 7}', '{"model_type": ""}', "[]", '{"model_type": "%s"}' % ("x" * 1000)):
            (empty / "config.json").write_text(text)
            self.assertIn("without a model_type", self.check(MANIFEST, "config", "check", empty).stderr)
        (empty / "config.json").write_text("{")
        self.assertIn("config.json", self.check(MANIFEST, "config", "check", empty).stderr)
        (empty / "config.json").write_bytes(b" " * (2 << 20))
        self.assertIn("config.json", self.check(MANIFEST, "config", "check", empty).stderr)

    def test_a_model_type_of_no_plugin_is_refused_unless_the_plugin_is_named(self):
        folder = self.copy(model_type="acme\x1b[2J")
        result = self.check(PLUGIN, "run", folder, "-p", "x")
        for part in ("acme\\x1b[2J", "llama", "qwen3_5_moe", "--set model.main.plugin=ID"):
            self.assertIn(part, result.stderr)
        self.check(OK, "config", "check", folder, "--set", "model.main.plugin=frt.qwen36")
        self.assertIn("did you mean", self.check(MANIFEST, "config", "check", folder, "--set",
                                                 "model.main.plugin=frt.qwen35").stderr)
        self.check(FAILED, "run", folder, *ON_THE_CPU, "-p", "x", "--set", "model.main.plugin=frt.llama")


if __name__ == "__main__":
    unittest.main(verbosity=2)
