# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that somebody truncates, overwrites or replaces under a running frt-host: an error or the right text,
never a signal and never text of changed weights. FRT_CHECKPOINT_SEEDS=N tries more moments.

A change is made only once the host has read from the open file, which is after it noted the file's version: what was
changed before that is simply another checkpoint. stop_at_read.c stops the host there."""
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from support import FAILED, FIXTURES, HOST, OK, TIMEOUT, HostTest, clean_environment

SEEDS = int(os.environ.get("FRT_CHECKPOINT_SEEDS", "5"))
STOP_AT_READ = os.environ["FRT_STOP_AT_READ"]
CHANGES = ("truncate", "overwrite", "zero", "replace", "remove")


class Changed(HostTest):
    def setUp(self):
        super().setUp()
        self.checkpoint = self.folder / "checkpoint"
        shutil.copytree(FIXTURES / "demo", self.checkpoint)
        self.checkpoint.chmod(0o755)
        for path in self.checkpoint.iterdir():
            path.chmod(0o644)
        self.weights = self.checkpoint / "model.safetensors"
        self.good = self.weights.read_bytes()
        self.arguments = [str(HOST), "-q", "run", str(self.model_manifest(self.checkpoint)), "-p", "Once upon a time",
                          "-n", "4", "--greedy", "--ignore-eos"]

    def change(self, how, rng):
        """The change as a function that has nothing left to prepare: a load takes milliseconds."""
        start = rng.randrange(len(self.good) // 2)
        rest = bytes(len(self.good) - start) if how == "zero" else rng.randbytes(len(self.good) - start)

        def overwrite():
            with open(self.weights, "r+b", buffering=0) as file:
                file.seek(start)
                file.write(rest)

        if how == "truncate":
            return lambda: os.truncate(self.weights, start)
        if how == "replace":
            other = self.checkpoint / "other"
            other.write_bytes(self.good[:start] + rest)
            return lambda: os.replace(other, self.weights)
        return self.weights.unlink if how == "remove" else overwrite

    def start(self, stop_after=None):
        """`stop_after`: the host stops itself when it has read so many bytes of the weights, or more."""
        environment = clean_environment()
        if stop_after is not None:
            environment |= {"LD_PRELOAD": STOP_AT_READ, "FRT_TEST_STOP_AT": str(self.weights),
                            "FRT_TEST_STOP_AFTER": str(stop_after), "ASAN_OPTIONS": "verify_asan_link_order=0"}
        return subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=environment, cwd=self.folder)

    def stopped_host(self, rng):
        """A host that has begun to read the weights: it must notice what happens now."""
        process = self.start(rng.randrange(1, len(self.good) * 3 // 4))
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self.fail(f"the host ended before it had read that much: {process.stderr.read()}")
        return process

    def test_no_moment_gives_a_signal_or_other_text(self):
        begin = time.monotonic()
        process = self.start()
        expected, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, OK, errors)
        duration = time.monotonic() - begin
        refused = 0
        for seed in range(SEEDS):
            rng = random.Random(seed)
            how = CHANGES[seed % len(CHANGES)]
            self.weights.write_bytes(self.good)
            with self.subTest(seed=seed, how=how):
                change = self.change(how, rng)
                stopped = seed % 4 < 3 or seed < len(CHANGES)
                process = self.stopped_host(rng) if stopped else self.start(0)
                if not stopped:  # stops at its first read, goes on, and may be done when the change comes
                    os.waitpid(process.pid, os.WUNTRACED)
                    process.send_signal(signal.SIGCONT)
                    time.sleep(rng.random() * duration)
                change()
                if stopped:
                    process.send_signal(signal.SIGCONT)
                text, errors = process.communicate(timeout=TIMEOUT)
                if process.returncode == OK:
                    self.assertFalse(stopped, "a change in the middle of the load went unnoticed")
                    self.assertEqual(text, expected)
                else:
                    self.assertEqual(process.returncode, FAILED, errors)
                    self.assertIn(b"model.safetensors", errors)
                    self.assertEqual(text, b"")
                    refused += 1
        print(f"{refused} of {SEEDS} refused")

    def test_weights_that_are_loaded_no_longer_depend_on_the_file(self):
        """Everything is read before the first token: what happens to the file afterwards changes nothing."""
        process = subprocess.Popen([*self.arguments[:2], "chat", self.arguments[3], "-n", "8", "--greedy"],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=clean_environment(), cwd=self.folder)
        answers = []
        for how in (None, "zero", "truncate"):
            if how:
                self.change(how, random.Random(1))()
            process.stdin.write(b"Hello\n/back\n")
            process.stdin.flush()
            answers.append(process.stdout.readline())
        text, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, OK, errors)
        self.assertEqual(answers[1], answers[0], errors)
        self.assertEqual(answers[2], answers[0], errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
