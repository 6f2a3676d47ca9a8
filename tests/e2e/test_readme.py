# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md and of hosts/lm/EXAMPLES.md runs, and shows what the page says.

In a console block, a line after "$ " is a command, one after "> " is what is typed into it, and the others are shown,
whatever their numbers and the spaces between words; "..." stands for the rest of a line. What serves goes on until the
page has been read."""
import os
import re
import subprocess
import unittest

from support import FIXTURES, HOST, MAKE_CHECKPOINT, MANIFEST, OK, SOURCE, TIMEOUT, HostTest, clean_environment

README = (SOURCE / "README.md").read_text(encoding="utf-8")
EXAMPLES = (SOURCE / "hosts/lm/EXAMPLES.md").read_text(encoding="utf-8")
FAILS = {"slotz": MANIFEST}   # a word of a command, and the status that it ends with


def blocks(page, language):
    return [block.splitlines() for block in re.findall(rf"^```{language}\n(.*?)^```", page, re.M | re.S)]


def comparable(line):
    """Without numbers, and with one space between words."""
    return " ".join(re.sub(r"\d+(\.\d+)*", "#", line).split())


class Page(HostTest):
    def setUp(self):
        super().setUp()
        for name in ("hosts", "tests"):
            (self.folder / name).symlink_to(SOURCE / name)
        # The user's own model, and an agent.
        (self.folder / "models").mkdir()
        (self.folder / "models/Qwen3.6-27B-FP8").symlink_to(FIXTURES / "demo")
        (self.folder / "bin").mkdir()
        agent = self.folder / "bin/aider"
        agent.write_text("#!/bin/sh\necho \"agent of $OPENAI_API_BASE\"\n")
        agent.chmod(0o755)
        path = [self.folder / "bin", HOST.parent, MAKE_CHECKPOINT.parent, os.environ["PATH"]]
        self.environment = {**clean_environment(), "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder),
                            "PATH": ":".join(map(str, path)), "FRT_DEVICE_MAIN_BACKEND": "frt.cpu"}
        self.urls, self.servers = [], []

    def serve(self, command, shown):
        """Until the test ends; on a port of its own."""
        server = subprocess.Popen(f"exec {command} --listen 127.0.0.1:0", shell=True, text=True, cwd=self.folder,
                                  env=self.environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        said = ""
        for line in server.stderr:
            said += line
            if line.startswith("serving "):
                self.urls += re.findall(r"http://[0-9.:]+", line)
                break
        self.assert_shown(command, shown, said)
        self.servers.append(server)

    def assert_shown(self, command, expected, said):
        lines = [comparable(line) for line in said.splitlines()]
        for line in expected:
            wanted = comparable(line)
            found = any(each.startswith(wanted[:-3]) if wanted.endswith("...") else each == wanted for each in lines)
            self.assertTrue(found, f"{command}\ndoes not show\n{line}\nbut\n{said}")

    def run_block(self, lines):
        steps = re.split(r"^\$ ", "\n".join(lines), flags=re.M)
        self.assertEqual(steps[0], "")
        for step in steps[1:]:
            command, *rest = step.splitlines()
            typed = "".join(line[2:] + "\n" for line in rest if line.startswith("> "))
            shown = [line for line in rest if line.strip() and not line.startswith("> ")]
            if " serve " in command:
                self.serve(command, shown)
                continue
            if " launch " in command:
                command += f" --url {self.urls[0]}"
            result = subprocess.run(["bash", "-c", command], input=typed, capture_output=True, text=True, timeout=TIMEOUT,
                                    cwd=self.folder, env=self.environment)
            expected = next((status for word, status in FAILS.items() if word in command), OK)
            self.assertEqual(result.returncode, expected, f"{command}\n{result.stdout}{result.stderr}")
            self.assert_shown(command, shown, result.stdout + result.stderr)

    def run_page(self, page):
        for lines in blocks(page, "console"):
            with self.subTest(lines[0]):
                self.run_block(lines)
        for server in self.servers:
            server.terminate()
            self.assertEqual(server.wait(TIMEOUT), OK)


class Readme(Page):
    def test_every_command_runs_and_shows_what_the_page_says(self):
        self.run_page(README)

    def test_the_programs_that_build_and_test_are_there(self):
        [lines] = blocks(README, "sh")
        programs = [line.split()[0] for line in lines if line.startswith("tools/")]
        self.assertEqual(programs, ["tools/quickstart", "tools/test"])
        for program in programs:
            self.assertTrue(os.access(SOURCE / program, os.X_OK), program)


class Examples(Page):
    def test_every_command_runs_and_shows_what_the_page_says(self):
        [manifest] = blocks(EXAMPLES, "toml")
        (self.folder / "demo.toml").write_text("\n".join(manifest), encoding="utf-8")
        self.run_page(EXAMPLES)
        self.assertTrue((self.folder / "capsules/sums.capsule").exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
