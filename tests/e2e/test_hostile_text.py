# SPDX-License-Identifier: Apache-2.0
"""Texts from outside that are nested too deeply for a stack: an error with the name of the file, wherever they come in."""
import unittest

from support import FAILED, FIXTURES, MANIFEST, OK, PLUGIN, USAGE, HostTest

LEVELS = 300_000


def nested(levels=LEVELS):
    return "[" * levels + "]" * levels


class Nested(HostTest):
    def refused(self, path, *arguments, statuses=(FAILED, USAGE, MANIFEST), stdin=""):
        result = self.frt(*arguments, stdin=stdin)
        self.assertIn(result.returncode, statuses, result.stderr)
        self.assertIn(path.name, result.stderr + result.stdout)
        return result

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_a_manifest_of_50_000_dotted_keys_or_brackets(self):
        for text in ("a." * 50_000 + "b = 1", "[" + "a." * 50_000 + "b]", "a = " + nested(50_000),
                     "a = " + "{a=" * 50_000 + "1" + "}" * 50_000):
            path = self.write("m.toml", text + "\n")
            self.refused(path, "config", "check", path, statuses=(MANIFEST,))

    def test_a_lock(self):
        path = self.write("frt.lock", "a." * 50_000 + "b = 1\n")
        self.refused(path, "--lock", path, "run", self.demo(), "-p", "x", "-n", 1, statuses=(PLUGIN,))

    def test_an_override(self):
        deep = "a." * 50_000 + "b"
        result = self.frt("--set", f"{deep}=1", "config", "check", self.demo())
        self.assertEqual(result.returncode, MANIFEST, result.stderr)

    def test_a_record(self):
        path = self.write("run.json", f'{{"format": {nested(2_000_000)}}}')
        self.refused(path, "replay", path)

    def test_a_bench_to_compare_with(self):
        path = self.write("before.json", nested())
        self.refused(path, "bench", self.demo(), "--prefill", 1, "--decode", 0, "-r", 1, "--compare", path)

    def test_a_conversation_to_import(self):
        for text in (nested(), f'[{{"role": "user", "content": {nested()}}}]'):
            path = self.write("talk.json", text)
            result = self.refused(path, "chat", self.demo(), stdin=f"/import {path}\n/history\n",
                                  statuses=(OK, FAILED, USAGE))
            self.assertIn("nested deeper", result.stderr + result.stdout)

    def test_files_of_a_checkpoint(self):
        folder = self.folder / "checkpoint"
        for name in ("config.json", "tokenizer.json", "generation_config.json"):
            with self.subTest(name):
                folder.mkdir()
                for file in (FIXTURES / "demo").iterdir():
                    if file.is_file() and file.name != name:
                        (folder / file.name).symlink_to(file)
                path = folder / name
                path.write_text(f'{{"x": {nested()}}}')
                self.refused(path, "run", self.model_manifest(folder), "-p", "x", "-n", 1)
                for file in folder.iterdir():
                    file.unlink()
                folder.rmdir()


if __name__ == "__main__":
    unittest.main()
