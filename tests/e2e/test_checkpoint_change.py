# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that somebody truncates, overwrites or replaces under a running frt-host: an error or the right text,
never a signal and never text of changed weights. FRT_CHECKPOINT_SEEDS=N tries more moments."""
import os
import random
import shutil
import subprocess
import time
import unittest

from support import FAILED, FIXTURES, HOST, OK, TIMEOUT, HostTest, clean_environment

SEEDS = int(os.environ.get("FRT_CHECKPOINT_SEEDS", "16"))
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
                          "-n", "48", "--greedy", "--ignore-eos"]

    def change(self, how, rng):
        if how == "truncate":
            os.truncate(self.weights, rng.randrange(len(self.good)))
        elif how in ("overwrite", "zero"):
            start = rng.randrange(len(self.good) // 2)
            with open(self.weights, "r+b", buffering=0) as file:
                file.seek(start)
                file.write(rng.randbytes(len(self.good) - start) if how == "overwrite" else bytes(len(self.good) - start))
        elif how == "replace":
            other = self.checkpoint / "other"
            other.write_bytes(self.good[:len(self.good) // 2] + rng.randbytes(len(self.good) - len(self.good) // 2))
            os.replace(other, self.weights)
        else:
            self.weights.unlink()

    def start(self):
        return subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=clean_environment(), cwd=self.folder)

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
                process = self.start()
                time.sleep(rng.random() * duration)
                self.change(how, rng)
                text, errors = process.communicate(timeout=TIMEOUT)
                if process.returncode == OK:
                    self.assertEqual(text, expected)
                else:
                    self.assertEqual(process.returncode, FAILED, errors)
                    # The file, or its folder where the file was gone before anybody looked.
                    name = b"checkpoint" if how == "remove" else b"model.safetensors"
                    self.assertIn(name, errors)
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
                self.change(how, random.Random(1))
            process.stdin.write(b"Hello\n/back\n")
            process.stdin.flush()
            answers.append(process.stdout.readline())
        text, errors = process.communicate(timeout=TIMEOUT)
        self.assertEqual(process.returncode, OK, errors)
        self.assertEqual(answers[1], answers[0], errors)
        self.assertEqual(answers[2], answers[0], errors)


if __name__ == "__main__":
    unittest.main(verbosity=2)
