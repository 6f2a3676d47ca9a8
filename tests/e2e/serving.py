# SPDX-License-Identifier: Apache-2.0
"""frt-host serve as a process of a test: started on a free port, watched, stopped."""
import os
import re
import resource
import signal
import subprocess

from robot_client import get
from support import HOST, clean_environment


class Server:
    """A server of `manifest`. `limits`: resource -> value, e.g. {resource.RLIMIT_NOFILE: 40}."""

    def __init__(self, manifest, folder, plugins, limits=None, environment=None):
        def limit():
            for which, value in (limits or {}).items():
                resource.setrlimit(which, (value, value))
        self.process = subprocess.Popen(
            [str(HOST), "--plugin-dir", plugins, "serve", str(manifest), "--listen", "127.0.0.1:0"],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=folder, preexec_fn=limit if limits else None,
            env={**clean_environment(), **(environment or {})})
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            found = re.search(r"ws://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self.said = "".join(lines)      # until it listened
                return
        raise RuntimeError("frt-host serve did not start:\n" + "".join(lines))

    def metrics(self):
        """name -> value of every counter, without the prefix."""
        return {name: int(value) for name, value in
                re.findall(r"^frt_robot_(\w+) (\d+)$", get(self.port, "/metrics")[1], re.M)}

    def resident(self):
        """MB in memory: now, and at most so far."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status.read(), re.M))
        return int(found["VmRSS"]) / 1024, int(found["VmHWM"]) / 1024

    def processor_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        """Asks it to end, as a service manager does; the exit status and what it said at the end."""
        self.process.send_signal(signal.SIGTERM)
        text = self.process.stderr.read()
        self.process.stderr.close()
        return self.process.wait(120), text

    def kill(self):
        """Ends it, if it still runs; what it said that nobody has read."""
        self.process.kill()
        self.process.wait()
        text = "" if self.process.stderr.closed else self.process.stderr.read()
        self.process.stderr.close()
        return text
