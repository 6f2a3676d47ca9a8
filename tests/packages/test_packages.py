# SPDX-License-Identifier: Apache-2.0
"""What a user does who has nothing but the Debian packages: the commands of the installed documents, as an ordinary
user, in a root that has never seen this tree. `bare_root` runs this inside."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

PREFIX = pathlib.Path("/usr")
PACKAGES = pathlib.Path(os.environ["FRT_PACKAGES"])
SECONDS = 1200


def installed(path):
    """The text of an installed document, its prefix as it is here."""
    return (PREFIX / path).read_text(encoding="utf-8").replace("~/frt", str(PREFIX))


def commands(text):
    """The commands of a document: lines with four spaces that begin with a word."""
    return [shlex.split(line) for line in text.splitlines() if re.match(r"    [a-z]", line)]


def run(*command, cwd=None, stdin=None, **environment):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=SECONDS, cwd=cwd,
                            input=stdin, env={**os.environ, **environment})
    if result.returncode:
        raise AssertionError(f"{shlex.join(map(str, command))}: {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


class Packages(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="frt-packages-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def template(self, name):
        """A copy, and the commands of its README."""
        folder = self.folder / name
        shutil.copytree(PREFIX / "share/frt-sdk/templates" / name, folder)
        text = (folder / "README.md").read_text(encoding="utf-8")
        for placeholder in ("~/frt", "<where SDK and runtime are>", "<prefix>"):
            text = text.replace(placeholder, str(PREFIX))
        return folder, commands(text)

    def test_the_first_commands_of_the_manual_run(self):
        """every command but `serve`, which does not end"""
        start = re.search(r"## Start\n(.*?)\n## ", installed("share/doc/frt-runtime/README.md"), re.S).group(1)
        said = {}
        for program, command, *rest in commands(start):
            if program == "frt-host" and command != "serve":
                said[command] = run(program, command, *rest, cwd=self.folder, stdin="What is 2 + 2?\n")
        self.assertEqual(set(said), {"doctor", "run", "chat", "rollout"})
        self.assertGreater(len(said["run"]), 40)
        self.assertIn("4", said["chat"])
        self.assertIn("episode", said["rollout"])
        self.assertGreater((self.folder / "reach.svg").stat().st_size, 1000)

    def test_the_server_answers(self):
        manifest = PREFIX / "share/frt/manifests/serve-demo.toml"
        server = subprocess.Popen(["frt-host", "serve", manifest, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE,
                                  text=True, cwd=self.folder)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        address = next(match.group() for match in (re.search(r"http://127\.0\.0\.1:\d+", line) for line in server.stderr)
                       if match)
        with urllib.request.urlopen(address + "/v1/models", timeout=60) as answer:
            self.assertIn("demo", answer.read().decode())
        for _ in range(600):    # 503 while the model is loaded
            try:
                urllib.request.urlopen(address + "/health", timeout=60).close()
                break
            except urllib.error.HTTPError as refused:
                self.assertEqual(refused.code, 503)
                refused.close()
                time.sleep(0.1)
        question = json.dumps({"messages": [{"role": "user", "content": "What is 2 + 2?"}], "temperature": 0}).encode()
        request = urllib.request.Request(address + "/v1/chat/completions", question, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            self.assertIn("4", json.load(answer)["choices"][0]["message"]["content"])

    def test_every_plugin_is_usable(self):
        listed = run("frt-host", "plugins", "ls")
        for plugin in sorted((PREFIX / "lib/frt/plugins").glob("*.so")):
            self.assertRegex(listed, rf"(?m) usable +{re.escape(str(plugin))}$")
        self.assertNotIn("refused", listed)

    def test_the_checker_passes_the_backend(self):
        said = run("frt-plugin-check", PREFIX / "lib/frt/plugins/frt_cpu.so", "--one-of-each")
        self.assertRegex(said, r"(?m)^[1-9]\d* passed, 0 failed")

    def test_the_tutorial_of_the_model_does_what_it_says(self):
        """built, run, saved, continued, checked"""
        folder, steps = self.template("model")
        said = [run(*command, cwd=folder) for command in steps]
        programs = [command[0] for command in steps]
        self.assertEqual(programs.count("cmake"), 2)
        *_, captured, eager, half, rest, checked, _, verified, tests, checks = said
        self.assertTrue(captured)
        self.assertEqual(captured, eager)
        self.assertEqual(captured.rstrip("\n"), half.rstrip("\n") + rest.rstrip("\n"))
        self.assertTrue(checked.rstrip().endswith("PASS"), checked)
        self.assertIn("PASS: 4 passed, 0 failed", verified)
        self.assertIn("100% tests passed, 0 tests failed out of 1", tests)
        self.assertRegex(checks, r"(?m)^[1-9]\d* passed, 0 failed")

    def test_a_program_in_c_runs_the_model(self):
        folder, steps = self.template("embed-c")
        configure, build, embed = steps[:3]
        run(*configure, cwd=folder)
        run(*build, cwd=folder)
        self.assertEqual(run(*embed, cwd=folder).splitlines()[-1], "the same continuation twice")

    def test_the_python_package_runs_its_manual(self):
        """as Debian's Python finds it, without numpy"""
        text = installed("share/doc/python3-frt/README.md")
        code = re.findall(r"```python\n(.*?)```", text, re.S)[0]
        self.assertIn('runtime["demo"]', code)
        said = run(sys.executable, "-c", code, cwd=self.folder)
        self.assertIn("2 + 2 = 4", said)
        self.assertIn("/usr/lib/python3/dist-packages/frt/", run(sys.executable, "-c", "import frt; print(frt.__file__)"))

    def test_pip_installs_the_python_package_whole(self):
        source, target = self.folder / "python", self.folder / "installed"
        shutil.copytree(PACKAGES / "python", source)
        run(sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation", "--no-deps", "--target",
            target, source)
        made = {path.relative_to(target).as_posix() for path in target.glob("frt/**/*")}
        packaged = {path.relative_to(PREFIX / "lib/python3/dist-packages").as_posix()
                    for path in (PREFIX / "lib/python3/dist-packages/frt").glob("**/*")}
        self.assertEqual({path for path in made if "__pycache__" not in path},
                         {path for path in packaged if "__pycache__" not in path})
        self.assertIn(str(target), run(sys.executable, "-c", "import frt; print(frt.__file__, frt.versions())",
                                       PYTHONPATH=str(target)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
