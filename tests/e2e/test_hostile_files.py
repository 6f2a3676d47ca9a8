# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in place of a file that frt-host opens: it says so at once, waits for nothing and does not die.

FRT_FILE_KINDS=all tries every kind in every place; else a pipe, which is what waits longest."""
import os
import shutil
import socket
import subprocess
import unittest

from support import FAILED, FIXTURES, MANIFEST, OK, PLUGIN, USAGE, HostTest

DEADLINE = 60  # seconds; a command that waits for a pipe never ends


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


KINDS = {
    "pipe": os.mkfifo,
    "socket": make_socket,
    "folder": os.mkdir,
    "device": lambda path: os.symlink("/dev/zero", path),
    "loop": lambda path: os.symlink(path, path),
}
if os.environ.get("FRT_FILE_KINDS") != "all":
    KINDS = {"pipe": KINDS["pipe"]}

REFUSED = (FAILED, USAGE, MANIFEST, PLUGIN)


class Place(HostTest):
    """One test per place; `at` puts each kind there in turn and runs the command."""

    def at(self, path, *arguments, statuses=REFUSED, named=True, stdin=""):
        for kind, make in KINDS.items():
            with self.subTest(kind):
                self.clear(path)
                make(path)
                try:
                    result = self.frt(*arguments, stdin=stdin, deadline=DEADLINE)
                except subprocess.TimeoutExpired:
                    self.fail(f"frt-host {' '.join(map(str, arguments))} waits for a {kind}")
                self.assertIn(result.returncode, statuses, result.stderr)
                if named:
                    self.assertIn(path.name, result.stderr + result.stdout)
        self.clear(path)

    def clear(self, path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)

    def checkpoint(self, name):
        """A manifest whose checkpoint lacks one file, and that file's path."""
        folder = self.folder / "checkpoint"
        folder.mkdir()
        for file in (FIXTURES / "demo").iterdir():
            if file.is_file() and file.name != name:
                (folder / file.name).symlink_to(file)
        return self.model_manifest(folder), folder / name

    def capsules(self):
        """A manifest with a folder of capsules that holds `a`."""
        manifest = self.model_manifest(FIXTURES / "demo",
                                       extra='[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\n')
        self.check(OK, "run", manifest, "-p", "x", "-n", 0, "--save-capsule", "a")
        return manifest, self.folder / "capsules"

    def test_a_manifest(self):
        path = self.folder / "m.toml"
        self.at(path, "config", "check", path)

    def test_a_lock(self):
        path = self.folder / "frt.lock"
        self.at(path, "--lock", path, "run", self.demo(), "-p", "x", "-n", 1)

    def test_a_plugin(self):
        folder = self.folder / "plugins"
        folder.mkdir()
        self.at(folder / "other.so", "--plugin-dir", folder, "plugins", "ls", statuses=(OK, PLUGIN), named=False)

    def test_files_of_a_checkpoint(self):
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
                     "model.safetensors", "model.safetensors.index.json"):
            with self.subTest(name):
                manifest, path = self.checkpoint(name)
                self.at(path, "run", manifest, "-p", "x", "-n", 1)
                shutil.rmtree(path.parent)

    def test_a_prompt(self):
        path = self.folder / "prompt.txt"
        self.at(path, "run", self.demo(), "--prompt-file", path, "-n", 1, statuses=(USAGE,))

    def test_a_record_to_replay(self):
        path = self.folder / "run.json"
        self.at(path, "replay", path)

    def test_a_record_to_write(self):
        path = self.folder / "run.json"
        replaced = "device" in KINDS  # a link is: by the file, and what it leads to stays
        self.at(path, "run", self.demo(), "-p", "x", "-n", 1, "--record", path,
                statuses=(*REFUSED, OK) if replaced else REFUSED, named=not replaced)

    def test_a_bench_to_compare_with(self):
        path = self.folder / "before.json"
        self.at(path, "bench", self.demo(), "--prefill", 1, "--decode", 0, "-r", 1, "--compare", path)

    def test_an_index_of_capsules(self):
        manifest, folder = self.capsules()
        (folder / "index.sqlite").unlink(missing_ok=True)
        for name in ("index.sqlite", "index.sqlite-wal", "index.sqlite-journal"):
            with self.subTest(name):
                self.at(folder / name, "capsule", "ls", manifest, statuses=(OK, FAILED), named=False)

    def test_a_pin(self):
        manifest, folder = self.capsules()
        self.at(folder / "a.pin", "capsule", "pin", manifest, "a", statuses=(FAILED,))

    def test_a_capsule(self):
        manifest, folder = self.capsules()
        self.at(folder / "b.capsule", "run", manifest, "--from-capsule", "b", "-n", 1, statuses=(FAILED,), named=False)
        self.at(folder / "b.capsule", "capsule", "ls", manifest, statuses=(OK,), named=False)

    def test_a_capsule_to_import(self):
        manifest, _ = self.capsules()
        path = self.folder / "b.capsule"
        self.at(path, "capsule", "import", manifest, path, statuses=(FAILED,))

    def test_a_conversation_to_import_and_to_export(self):
        path = self.folder / "talk.json"
        self.at(path, "chat", self.demo(), stdin=f"/import {path}\n", statuses=(OK, *REFUSED))
        self.at(path, "chat", self.demo(), stdin=f"/export {path}\n", statuses=(OK, *REFUSED), named=False)


if __name__ == "__main__":
    unittest.main()
