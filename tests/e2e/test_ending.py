# SPDX-License-Identifier: Apache-2.0
"""SIGTERM ends the program soon, whatever a plugin does: in a step, while a model is made, while it is destroyed.
Requests in flight may go on for drain_s."""
import json
import os
import signal
import subprocess
import threading
import time
import unittest

from lm_serving import LmServer
from support import HOST, OK, TIMEOUT, HostTest, clean_environment

TERMINATED = 128 + signal.SIGTERM
PLUGINS = os.environ["FRT_SCRIPTED_PLUGIN_DIR"]
HANGS = 600     # seconds, longer than any test waits
AT_ONCE = 1     # seconds, on an idle machine
SOON = 30       # seconds, on a busy machine; a program that waits for the plugin takes HANGS
SCRIPT = {"replies": [
    {"when": {"last": "endless"}, "content": "on and on ", "endless": True, "token_delay_us": 5000},
    {"when": {"last": "hang"}, "content": "a text that does not end, because a step of the model never comes back",
     "fault": {"after": 40, "kind": "stall", "seconds": HANGS}},
    {"when": {"last": "slow"}, "content": "a slow answer", "token_delay_us": 100000}]}


class Ending(HostTest):
    def scripted(self, options="", http=None):
        (self.folder / "script.json").write_text(json.dumps(SCRIPT), encoding="utf-8")
        self.stalled = self.folder / "stalled"      # the model makes it when it stalls
        self.stalled.unlink(missing_ok=True)
        return self.model_manifest("synthetic:none", plugin="test.scripted",
                                   options=f'script = "{self.folder}/script.json"\nslots = 2\nstall_file = "{self.stalled}"\n'
                                           f'{options}',
                                   extra="" if http is None else f'[host.http]\nmodel = "m"\n{http}')

    def start(self, *arguments):
        """A command whose first output is there, or whose text on stderr says that it loads."""
        process = subprocess.Popen([str(HOST), "--plugin-dir", PLUGINS, *map(str, arguments)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, cwd=self.folder, env=clean_environment())
        self.addCleanup(self.finish, process)
        return process

    @staticmethod
    def finish(process):
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def run_on(self, message, options=""):
        process = self.start("run", self.scripted(options), "--chat", "-p", message, "-n", 100000)
        self.assertTrue(process.stdout.read(3))     # the model writes
        return process

    def wait_for_stall(self, process):
        end = time.monotonic() + TIMEOUT
        while not self.stalled.exists():
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)

    def assert_ends(self, process, status, least=0.0, most=SOON):
        """SIGTERM now ends it after `least` to `most` seconds with this status; how many they were."""
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        found = process.wait(TIMEOUT)
        seconds = time.monotonic() - start
        self.assertEqual(found, status)
        self.assertGreaterEqual(seconds, least)
        self.assertLess(seconds, most)
        return seconds

    def test_a_run_ends(self):
        self.assert_ends(self.run_on("endless"), TERMINATED)

    def test_a_step_that_hangs(self):
        process = self.run_on("hang")
        self.wait_for_stall(process)
        self.assert_ends(process, TERMINATED)
        self.assertIn(b"a plugin did not come back in time", process.stderr.read())

    def test_a_second_is_enough(self):
        """The fastest of ten ends counts: a busy machine makes each of them slower."""
        fastest = SOON
        for _ in range(10):
            process = self.run_on("hang")
            self.wait_for_stall(process)
            fastest = min(fastest, self.assert_ends(process, TERMINATED))
            if fastest < AT_ONCE:
                return
        self.fail(f"the fastest end took {fastest:.2f} s")

    def test_a_model_that_hangs_while_it_is_made(self):
        process = self.start("run", self.scripted(f"create_seconds = {HANGS}"), "-p", "x")
        self.wait_for_stall(process)
        self.assert_ends(process, TERMINATED)

    def test_a_model_that_hangs_while_it_is_destroyed(self):
        self.assert_ends(self.run_on("endless", f"destroy_seconds = {HANGS}"), TERMINATED)
        process = self.start("run", self.scripted(f"destroy_seconds = {HANGS}"), "-p", "x", "-n", 1)
        self.assertTrue(process.stdout.readline())      # it is done, and closes its model
        self.wait_for_stall(process)
        self.assert_ends(process, TERMINATED)

    def test_the_log_as_json_lines_stays_json(self):
        process = self.start("--log-format", "jsonl", "run", self.scripted(), "--chat", "-p", "hang", "-n", 1000)
        self.assertTrue(process.stdout.read(3))
        self.wait_for_stall(process)
        self.assert_ends(process, TERMINATED)
        for line in process.stderr.read().decode().splitlines():
            json.loads(line)

    # ---- serve ----
    def serve(self, http="", options=""):
        return LmServer(self, self.scripted(options, http), plugins=PLUGINS)

    def ask(self, server, message):
        """Starts an answer and waits for its first text."""
        connection, answer = server.open("/v1/chat/completions", {
            "messages": [{"role": "user", "content": message}], "stream": True})
        while b"content" not in answer.readline():
            pass
        return connection, answer

    def test_an_idle_server_whose_model_hangs_at_the_end(self):
        self.assert_ends(self.serve().process, OK)
        self.assert_ends(self.serve(options=f"destroy_seconds = {HANGS}").process, TERMINATED)

    def test_an_answer_ends_while_the_server_drains(self):
        server = self.serve("drain_s = 30")
        _, answer = self.ask(server, "slow")
        received = []
        reader = threading.Thread(target=lambda: received.append(answer.read()))
        reader.start()
        self.assert_ends(server.process, OK)
        reader.join()
        self.assertIn(b"[DONE]", received[0])

    def test_an_answer_that_hangs_has_the_drain_time_and_no_more(self):
        server = self.serve("drain_s = 2")
        self.ask(server, "hang")
        self.wait_for_stall(server.process)
        self.assert_ends(server.process, TERMINATED, least=1.9)
        server = self.serve("drain_s = 0")
        self.ask(server, "hang")
        self.wait_for_stall(server.process)
        self.assert_ends(server.process, TERMINATED)

    def test_a_server_whose_model_hangs_while_it_is_made(self):
        server = LmServer(self, self.scripted(f"create_seconds = {HANGS}", ""), wait=False, plugins=PLUGINS)
        self.wait_for_stall(server.process)
        self.assertEqual(server.request("GET", "/health").status, 503)
        self.assert_ends(server.process, TERMINATED)


if __name__ == "__main__":
    unittest.main(verbosity=2)
