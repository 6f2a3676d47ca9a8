# SPDX-License-Identifier: Apache-2.0
"""Files that somebody changed, under the real frt-host: it answers or refuses, in time and without a trace of a
sanitizer, and a good capsule beside them stays as it is.

FRT_HOSTILE_FILES=N tries N files (14), FRT_HOSTILE_SEED=S others (1); the same numbers are the same files."""
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import shutil
import socket
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).parents[1]
sys.path += [str(TESTS / "e2e"), str(TESTS / "fuzz/mutators")]

import change
from forged_capsule import ForgedCapsule
from support import DEVICE, FIXTURES, HOST, HostTest, clean_environment

CASES = int(os.environ.get("FRT_HOSTILE_FILES", "14"))
SEED = int(os.environ.get("FRT_HOSTILE_SEED", "1"))
DEADLINE = 120  # seconds; a command that waits for a pipe never ends
TRACE = re.compile(r"Sanitizer|runtime error:|terminate called|Assertion")
CHECKPOINT = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors")


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


FILE_KINDS = {"pipe": os.mkfifo, "socket": make_socket, "folder": os.mkdir,
              "device": lambda path: os.symlink("/dev/zero", path), "loop": lambda path: os.symlink(path, path)}


class World(HostTest):
    """A folder of good files of every kind, made once, and a copy of it per case."""

    def prepare(self):
        for name in CHECKPOINT:
            shutil.copy(FIXTURES / "demo" / name, self.folder / name)
        self.manifest(self.text(self.folder))
        self.check(0, "run", "manifest.toml", "-p", "x", "-n", 2, "--save-capsule", "a", "--record", "run.json",
                   cwd=self.folder)
        self.check(0, "capsule", "ls", "manifest.toml", cwd=self.folder)
        (self.folder / "talk.json").write_text(json.dumps([
            {"role": "user", "content": "pay"},
            {"role": "assistant", "content": "x", "reasoning_content": None, "tool_calls": [
                {"type": "function", "function": {"name": "pay", "arguments": {"amount": 0}}}]}]))

    @staticmethod
    def text(folder):
        return f"""schema = 1
[device.cpu0]
backend = "frt.cpu"
[model.m]
plugin = "frt.qwen36"
device = "cpu0"
checkpoint = "{folder}"
[model.m.options]
max_context = 128
[host.lm]
model = "m"
capsule_dir = "capsules"
"""


def changed_capsule(data, rng):
    """Right digests over what a stranger likes, or plain damage."""
    if rng.randrange(4) == 0:
        return change.bits(data, rng)
    forged = ForgedCapsule(data)
    how = rng.randrange(4)
    if how == 0:
        change.value(forged.manifest, rng)
    elif how == 1:
        forged.payload = change.text(forged.payload, rng)
    elif how == 2:
        forged.header[rng.randrange(1, 9)] = rng.choice((0, 1, 4095, 4096, 2**31, 2**32 - 1))
    else:
        forged.metadata = change.document(forged.metadata, rng)
    return forged.bytes()


# Kind: the file, its change, and the commands that read it.
KINDS = {
    "manifest": ("manifest.toml", change.text, [("config", "check", "manifest.toml"),
                                                ("config", "dump", "manifest.toml")]),
    "record": ("run.json", change.document, [("replay", "run.json", "--anyway")]),
    "capsule": ("capsules/b.capsule", changed_capsule,
                [("capsule", "ls", "manifest.toml"), ("capsule", "verify", "manifest.toml", "b"),
                 ("capsule", "show", "manifest.toml", "b", "--json"),
                 ("capsule", "export", "manifest.toml", "b", "copy"),
                 ("run", "manifest.toml", "--from-capsule", "b", "-n", "1"),
                 ("chat", "manifest.toml", "--from-capsule", "b")]),
    "index": ("capsules/index.sqlite", change.bits, [("capsule", "ls", "manifest.toml"),
                                                     ("run", "manifest.toml", "-p", "xy", "-n", "1")]),
    "conversation": ("talk.json", change.document, [("chat", "manifest.toml")]),
    "checkpoint": (CHECKPOINT, lambda data, rng: change.bits(data, rng), [("run", "manifest.toml", "-p", "x", "-n", "1")]),
    "checkpoint text": (CHECKPOINT[:4], change.document, [("run", "manifest.toml", "-p", "x", "-n", "1")]),
}


class HostileFiles(unittest.TestCase):
    def make_case(self, number):
        rng = random.Random(SEED * 1_000_003 + number)
        kind = sorted(KINDS)[number % len(KINDS)]
        names, mutate, commands = KINDS[kind]
        name = names if isinstance(names, str) else rng.choice(names)
        folder = self.world.folder.parent / f"{self.world.folder.name}-{number}"
        shutil.copytree(self.world.folder, folder)
        try:
            (folder / "manifest.toml").write_text(World.text(folder))
            (folder / "run.json").write_text((folder / "run.json").read_text().replace(
                json.dumps(str(self.world.folder))[1:-1], json.dumps(str(folder))[1:-1]))
            shutil.copy(folder / "capsules/a.capsule", folder / "capsules/b.capsule")
            path = folder / name
            if rng.randrange(10) == 0:
                kind = rng.choice(sorted(FILE_KINDS))
                path.unlink()
                FILE_KINDS[kind](path)
            elif name == "model.safetensors":  # the header, and some of the rest
                data = path.read_bytes()
                path.write_bytes(mutate(data[:4096], rng) + data[4096:])
            else:
                data = mutate(path.read_bytes(), rng)
                if path.exists():
                    path.chmod(0o600)
                path.write_bytes(data)
            return kind, self.run_case(folder, rng.choice(commands))
        finally:
            shutil.rmtree(folder)

    def run_case(self, folder, command):
        """What is wrong, or an empty text; and the exit status."""
        good = (folder / "capsules/a.capsule").read_bytes()
        stdin = b"/import talk.json\n/export out.json\n/back\nhi\n/exit\n" if command[0] == "chat" else b""
        try:
            result = subprocess.run([str(HOST), "-q", *command], cwd=folder, input=stdin, capture_output=True,
                                    timeout=DEADLINE, env=clean_environment())
        except subprocess.TimeoutExpired:
            return f"{' '.join(command)}: still waits", None
        errors = result.stderr.decode(errors="replace")
        wrong = []
        if not 0 <= result.returncode <= DEVICE:
            wrong.append(f"status {result.returncode}")
        if "Run with --help" in errors:
            wrong.append("the command is wrong, not the file")
        if TRACE.search(errors):
            wrong.append("a trace of a sanitizer")
        if result.returncode != 0 and not errors and not result.stdout:
            wrong.append("no word of why")
        if (folder / "capsules/a.capsule").read_bytes() != good:
            wrong.append("the good capsule has changed")
        left = [path.name for path in (folder / "capsules").iterdir() if path.name.startswith((".import-", ".tmp-"))]
        if left:
            wrong.append(f"left behind: {left}")
        return (f"{' '.join(command)}: {', '.join(wrong)}\n{errors[-4000:]}" if wrong else ""), result.returncode

    def test_whatever_a_file_holds_frt_host_answers_or_refuses(self):
        self.world = World()
        self.world.setUp()
        self.addCleanup(self.world.doCleanups)
        self.world.prepare()
        counts = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for number, (kind, (problem, status)) in enumerate(pool.map(self.make_case, range(CASES))):
                with self.subTest(number=number, kind=kind, seed=SEED):
                    self.assertEqual(problem, "")
                counts[kind, "answered" if status == 0 else "refused"] += 1
        print(f"{CASES} files:", ", ".join(f"{kind} {what} {count}" for (kind, what), count in sorted(counts.items())))


if __name__ == "__main__":
    unittest.main(verbosity=2)
