# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: the real frt-host, manifests in a temporary folder."""
import fcntl
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import one_core  # noqa: E402

one_core.take()
HOST = pathlib.Path(os.environ["FRT_HOST"])
MAKE_CHECKPOINT = pathlib.Path(os.environ["FRT_MAKE_CHECKPOINT"])
FIXTURES = pathlib.Path(os.environ["FRT_FIXTURES"])
SOURCE = FIXTURES.parent.parent
TIMEOUT = 300  # seconds; generous, for sanitizer builds on busy machines

OK, FAILED, USAGE, MANIFEST, PLUGIN, DEVICE = range(6)
INTERRUPTED = 128 + signal.SIGINT


def clean_environment():
    """The environment without the user's own settings of frt-host."""
    return {k: v for k, v in os.environ.items() if not k.startswith("FRT_") and k != "NO_COLOR"}


# For python_with(): the folder's name, and the packages. litellm wants an openai of its own.
SDKS = ("lm_sdks", "anthropic==2.10.0", "litellm==1.106.2")


def python_with(test, name, *packages):
    """A Python that has these packages of PyPI (name==version), made once beside the build; where they cannot be
    installed, the test is skipped with the reason."""
    folder = HOST.parent.parent / name
    python, ready = folder / "bin/python", folder / "ready"
    with open(f"{folder}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)    # tests beside this one may want the same
        if ready.exists():
            return python
        try:
            for command in ([sys.executable, "-m", "venv", "--clear", folder],
                            [python, "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "10",
                             "--only-binary", ":all:", *packages]):
                subprocess.run(command, check=True, timeout=300, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        except (OSError, subprocess.SubprocessError) as error:
            lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            test.skipTest(f"{packages[0]} cannot be installed: {lines[-1] if lines else error}")
        ready.touch()
    return python


def interruptible():
    """In a child: SIGINT as a terminal leaves it. Background jobs and nohup hand it down ignored, and
    then the line editor rightly ignores it, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """frt-host on a terminal of its own."""

    def __init__(self, test, *arguments, env=None, size=None):
        """size: rows and columns."""
        self.test, self.seen = test, b""
        self.controller, terminal = pty.openpty()
        if size:
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        test.addCleanup(os.close, self.controller)
        self.process = subprocess.Popen(
            [str(HOST), *map(str, arguments)], stdin=terminal, stdout=terminal, stderr=terminal,
            env={**clean_environment(), "TERM": "xterm", "XDG_STATE_HOME": str(test.folder), **(env or {})},
            cwd=test.folder, start_new_session=True, preexec_fn=interruptible)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)
        os.close(terminal)

    def type(self, text):
        os.write(self.controller, text.encode())

    def _read(self, seconds):
        """False: the program has closed the terminal."""
        if select.select([self.controller], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.controller, 65536)
            except OSError:
                return False
        return True

    def expect(self, text):
        """Waits until the text was shown; what was shown before it is dropped and returned."""
        end = time.monotonic() + TIMEOUT
        while text not in self.seen:
            self.test.assertLess(time.monotonic(), end, f"{text} did not come: {self.seen}")
            self.test.assertTrue(self._read(1), f"the program ended before {text}: {self.seen}")
        before, _, self.seen = self.seen.partition(text)
        return before

    def wait(self):
        """The exit status, when the program has ended; `seen` is what it showed until then."""
        end = time.monotonic() + TIMEOUT
        while self._read(0.1) and self.process.poll() is None:
            self.test.assertLess(time.monotonic(), end, f"the program does not end: {self.seen}")
        return self.process.wait(timeout=TIMEOUT)


class HostTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="frt-e2e-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def frt(self, *arguments, stdin=None, env=None, cwd=None, deadline=TIMEOUT):
        """Runs frt-host, in the test's folder or in `cwd`; stdin is text or None for no input.
        TimeoutExpired after `deadline` seconds."""
        result = subprocess.run(
            [str(HOST), *map(str, arguments)], input=stdin if stdin is not None else "",
            capture_output=True, text=True, timeout=deadline, cwd=cwd or self.folder,
            env={**clean_environment(), **(env or {})}, encoding="utf-8", errors="replace")
        self.assertGreaterEqual(result.returncode, 0, f"died of a signal: {result.stderr}")
        for word in ("AddressSanitizer", "LeakSanitizer", "runtime error:",
                     "terminate called", "ThreadSanitizer"):
            self.assertNotIn(word, result.stderr)
        return result

    def check(self, status, *arguments, **options):
        result = self.frt(*arguments, **options)
        self.assertEqual(result.returncode, status,
                         f"frt-host {' '.join(map(str, arguments))}\n"
                         f"stdout: {result.stdout}\nstderr: {result.stderr}")
        return result

    def manifest(self, text):
        path = self.folder / "manifest.toml"
        path.write_text(text, encoding="utf-8")
        return path

    def model_manifest(self, checkpoint, options="", device="", extra="", backend="frt.cpu", plugin="frt.qwen36"):
        return self.manifest(f"""schema = 1
[device.cpu0]
backend = "{backend}"
{device}
[model.m]
plugin = "{plugin}"
device = "cpu0"
checkpoint = "{checkpoint}"
[model.m.options]
{options}
{extra}""")

    def demo(self, **options):
        return self.model_manifest(FIXTURES / "demo", **options)

    def run_json(self, manifest, *arguments, **options):
        return json.loads(self.check(OK, "-q", "run", manifest, "--json", *arguments,
                                     **options).stdout)
