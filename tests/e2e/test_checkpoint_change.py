# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that somebody truncates, overwrites or replaces under a running frt-host: an error or the right text,
never a signal and never text of changed weights. FRT_CHECKPOINT_SEEDS=N tries more moments.

A change is made only once the host has read from the open file, which is after it noted the file's version: what was
changed before that is simply another checkpoint."""
import os
import random
import shutil
import signal
import subprocess
import time
import unittest

from support import FAILED, FIXTURES, HOST, OK, TIMEOUT, HostTest, clean_environment

SEEDS = int(os.environ.get("FRT_CHECKPOINT_SEEDS", "5"))
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

    def start(self):
        return subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=clean_environment(), cwd=self.folder)

    def is_open_in(self, process):
        folder = f"/proc/{process.pid}/fd"
        return any(os.readlink(f"{folder}/{name}") == str(self.weights) for name in os.listdir(folder))

    @staticmethod
    def bytes_read_by(process):
        with open(f"/proc/{process.pid}/io") as file:
            return int(file.readline().split()[1])

    def wait_until_read(self, process):
        """Until the host has read after it opened the weights, or has ended. False: it was never seen to."""
        before = None
        while process.poll() is None:
            try:
                if before is None and self.is_open_in(process):
                    before = self.bytes_read_by(process)
                if before is not None and self.bytes_read_by(process) > before:
                    return True
            except OSError:
                pass  # a descriptor, or the process, went away meanwhile
        return False

    def stopped_early(self, process):
        """Stops it. False: it may have read half of the weights by then, or had ended."""
        process.send_signal(signal.SIGSTOP)
        while process.poll() is None:
            with open(f"/proc/{process.pid}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
            if state == "T":
                return self.bytes_read_by(process) < len(self.good) // 2
        return False

    def start_and_stop(self):
        """A host that has begun to read the weights and cannot be done: it must notice what happens now."""
        for _ in range(50):
            process = self.start()
            if self.wait_until_read(process) and self.stopped_early(process):
                return process
            process.kill()
            process.communicate()
        return self.fail("the weights were always read before the host could be stopped")

    def test_no_moment_gives_a_signal_or_other_text(self):
        process = self.start()
        self.assertTrue(self.wait_until_read(process), "the weights were never seen open")
        begin = time.monotonic()
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
                stopped = seed < len(CHANGES)  # not outrun by a load that takes milliseconds
                if stopped:
                    process = self.start_and_stop()
                    change()
                    process.send_signal(signal.SIGCONT)
                else:
                    process = self.start()
                    self.wait_until_read(process)
                    time.sleep(rng.random() * duration)
                    change()
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
