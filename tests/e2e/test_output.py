# SPDX-License-Identifier: Apache-2.0
"""What frt-host writes: results that are lost are an error, and no text from outside steers a terminal."""
import os
import pty
import re
import resource
import subprocess
import unittest

from support import FAILED, FIXTURES, HOST, MANIFEST, OK, TIMEOUT, HostTest, clean_environment

GOLDENS = FIXTURES / "qwen36/dense"
# What a terminal would obey: escape sequences, their one-byte forms in UTF-8, carriage returns.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\u009b31m\r\x7f"
# Every command that prints a result, as it is called. The rest print nothing but errors.
SILENT = {"serve", "capsule rm", "capsule pin", "capsule unpin", "capsule export"}
# Slow, or covered by a command beside it.
UNTRIED = {"bench capsule", "bench engine", "bench policy", "rollout", "handoff", "calibrate", "launch", "replay",
           "capsule check", "bench"}


class Full(HostTest):
    def setUp(self):
        super().setUp()
        self.model = self.model_manifest(FIXTURES / "demo",
                                         extra='[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\n')
        self.check(OK, "-q", "run", self.model, "-p", "Once", "-n", 1, "--greedy", "--save-capsule", "a")
        self.check(OK, "capsule", "export", self.model, "a", "a.frtcap")
        dense = self.folder / "dense.toml"
        dense.write_text(self.model.read_text().replace(str(FIXTURES / "demo"), str(GOLDENS)))
        self.commands = {
            "version": [[], ["--json"]], "devices": [[], ["--json"]], "doctor": [[], ["--json"]],
            "plugins ls": [[], ["--json"]], "plugins show": [["frt.cpu"], ["frt.cpu", "--json"]],
            "plugins lock": [[self.folder / "l"]], "plugins verify": [[self.folder / "l"]],
            "config check": [[self.model]], "config dump": [[self.model], [self.model, "--json"]],
            "config default": [[]], "config schema": [[]], "completion": [["bash"], ["zsh"], ["fish"]],
            "capsule ls": [[self.model], [self.model, "--json"]],
            "capsule show": [[self.model, "a"], [self.model, "a", "--json"]],
            "capsule verify": [[self.model], [self.model, "--json"]],
            "capsule import": [[self.model, "a.frtcap", "b"]],
            "run": [[self.model, "-p", "Once", "-n", "3"], [self.model, "-p", "Once", "-n", "3", "--json"]],
            "chat": [[self.model, "-n", "3"]],
            "tokenize": [[self.model, "Once"], [self.model, "Once", "--json"]],
            "verify": [[dense, "--goldens", GOLDENS], [dense, "--goldens", GOLDENS, "--json"]],
        }

    def test_no_command_ends_well_when_its_output_is_lost(self):
        for name, calls in self.commands.items():
            for arguments in calls:
                with self.subTest(f"{name} {' '.join(map(str, arguments))}"), open("/dev/full", "wb") as full:
                    result = subprocess.run([HOST, *name.split(), *map(str, arguments)], stdout=full,
                                            stderr=subprocess.PIPE, input=b"Hello\n", timeout=TIMEOUT,
                                            cwd=self.folder, env=clean_environment())
                    self.assertEqual(result.returncode, FAILED, result.stderr.decode())
                    self.assertIn(b"No space left on device", result.stderr)
        for arguments in (["--help"], ["--help-all"], ["run", "--help"]):
            with open("/dev/full", "wb") as full:
                self.assertEqual(subprocess.run([HOST, *arguments], stdout=full, stderr=subprocess.PIPE,
                                                env=clean_environment()).returncode, FAILED)

    def test_the_table_above_knows_every_command(self):
        script = self.check(OK, "completion", "bash").stdout
        commands = re.findall(r"^    '([^']+)'\) commands='([^']*)' options=", script, flags=re.M)
        self.assertGreater(len(commands), 20)
        leaves = {path for path, below in commands if not below}
        self.assertLessEqual(leaves, set(self.commands) | SILENT | UNTRIED)

    def test_a_stdout_that_is_closed_is_an_error_and_no_file_takes_its_place(self):
        for arguments in (["version"], ["-q", "run", self.model, "-p", "Once", "-n", "2", "--save-capsule", "c"]):
            result = subprocess.run([HOST, *map(str, arguments)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                    cwd=self.folder, env=clean_environment(), preexec_fn=lambda: os.close(1))
            self.assertEqual(result.returncode, FAILED, result.stderr.decode())
            self.assertIn(b"could not be written", result.stderr)

    def test_a_limit_of_file_size_is_an_error_and_no_signal(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))
        with open(self.folder / "out", "wb") as out:
            result = subprocess.run([HOST, "config", "schema"], stdout=out, stderr=subprocess.PIPE,
                                    env=clean_environment(), preexec_fn=limited)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn(b"File too large", result.stderr)
        result = subprocess.run([HOST, "plugins", "lock", "frt.lock"], cwd=self.folder, capture_output=True,
                                env=clean_environment(), preexec_fn=limited)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn(b"File too large", result.stderr)

    def test_a_reader_that_goes_away_ends_the_program_quietly(self):
        command = subprocess.Popen([HOST, "config", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=clean_environment(), restore_signals=True)
        command.stdout.close()
        self.assertEqual(command.stderr.read(), b"")
        command.stderr.close()
        self.assertLess(command.wait(), 0)  # SIGPIPE, as of any filter


class Terminal(HostTest):
    def assert_tame(self, *streams):
        for text in streams:
            for character in ("\x1b", "\x07", "\u009b", "\r", "\x7f"):
                self.assertNotIn(character, text)

    def test_text_of_a_manifest_is_shown_escaped(self):
        escaped = HOSTILE.encode("unicode_escape").decode().replace("\\x", "\\u00")
        for key, status in (("plugin", MANIFEST), ("device", MANIFEST), ("checkpoint", FAILED)):
            values = {"plugin": "frt.qwen36", "device": "cpu0", "checkpoint": "nowhere"}
            values[key] = "x" + escaped
            text = 'schema = 1\n[device.cpu0]\nbackend = "frt.cpu"\n[model.m]\n'
            text += "".join(f'{k} = "{v}"\n' for k, v in values.items())
            with self.subTest(key):
                result = self.frt("run", self.manifest(text), "-p", "a")
                self.assertIn(result.returncode, (FAILED, MANIFEST))
                self.assertIn("owned", result.stderr)
                self.assert_tame(result.stderr, result.stdout)
        dump = self.frt("config", "dump", self.manifest(text))
        self.assertIn("owned", dump.stdout)
        self.assert_tame(dump.stdout, dump.stderr)
        dump = self.frt("config", "dump", self.manifest(text), "--json")
        self.assert_tame(dump.stdout, dump.stderr)

    def test_names_of_files_and_arguments_are_shown_escaped(self):
        folder = self.folder / "plugins"
        folder.mkdir()
        (folder / f"{HOSTILE}\n.so".replace("/", "")).write_text("no plugin")
        for command in (["plugins", "ls"], ["plugins", "ls", "--json"], ["doctor"], ["doctor", "--json"], ["devices"]):
            with self.subTest(command):
                result = self.frt("--plugin-dir", folder, *command)
                self.assert_tame(result.stdout, result.stderr)
        for arguments in (["run", HOSTILE], [HOSTILE], ["config", "check", HOSTILE], ["run", "m", "--seed", HOSTILE],
                          ["--plugin-dir", HOSTILE, "devices"], ["--set", HOSTILE, "run", "x"]):
            with self.subTest(arguments):
                result = self.frt(*arguments)
                self.assertNotEqual(result.returncode, OK)
                self.assert_tame(result.stdout, result.stderr)

    def test_a_terminal_sees_the_text_of_a_run(self):
        """The same text, whether it goes to a pipe or to a terminal."""
        arguments = ["-q", "run", self.demo(), "-p", "Once upon a time", "-n", "8", "--greedy"]
        piped = self.check(OK, *arguments).stdout
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        result = subprocess.run([HOST, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=theirs,
                                stderr=subprocess.PIPE, env=clean_environment(), timeout=TIMEOUT)
        self.assertEqual(result.returncode, OK, result.stderr)
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        self.assertEqual(shown.decode().replace("\r\n", "\n"), piped)


if __name__ == "__main__":
    unittest.main(verbosity=2)
