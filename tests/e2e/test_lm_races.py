# SPDX-License-Identifier: Apache-2.0
"""frt-host serve: connections close, sessions go and the server stops while capsules are saved, read and moved between tiers.

Seeded: FRT_HOSTILE_SEED (1). The tiers have room for a few capsules alone, so that every request moves some."""
import http.client
import json
import os
import random
import threading
import time
import unittest

from support import OK
from test_lm_state import StateTest

SEED = int(os.environ.get("FRT_HOSTILE_SEED", 1))
CLIENTS, SECONDS = 4, 3
# Another client has the session, the capsule or its name, or the server stops.
MAY_BE = (200, 404, 409, 429, 503)


class Races(StateTest):
    def small_server(self, environment=None):
        return self.server("", "slots = 3\nmax_context = 512", environment=environment, lm=
                           f'capsule_dir = "{self.folder}/capsules"\ncapsule_device = "1M"\ncapsule_host = "1M"\ncapsule_disk = "4M"')

    def work(self, server, number, over, kept):
        """Requests of one client until `over`; `kept`: the capsules that were promised, by name."""
        chance = random.Random(SEED * 1009 + number)
        while not over.is_set():
            session = f"s{chance.randrange(3)}"
            name = f"k{number}-{len(kept)}" if chance.random() < 0.3 and len(kept) < 8 else f"k{chance.randrange(CLIENTS)}-{chance.randrange(4)}"
            method, path, body = chance.choice((
                ("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "the sea " * chance.randrange(1, 60)}],
                                                  "max_tokens": 4, "stream": chance.random() < 0.5}),
                ("POST", f"/v1/sessions/{session}/snapshot", {"name": name}),
                ("POST", f"/v1/sessions/{session}/restore", {"capsule": name}),
                ("POST", f"/v1/sessions/{session}/fork", {"as": f"{session}-b"}),
                ("DELETE", f"/v1/sessions/{session}", None),
                ("GET", f"/v1/capsules/{name}/export", None)))
            connection = server.connection()
            try:
                connection.request(method, path, json.dumps(body) if body else None,
                                   {"Content-Type": "application/json", "X-Session-Id": session})
                if chance.random() < 0.3:     # leaves, at once or in the middle of the answer
                    time.sleep(chance.random() * 0.02)
                    if chance.random() < 0.5:
                        connection.getresponse().read(chance.randrange(1, 400))
                    continue
                answer = connection.getresponse()
                status, text = answer.status, answer.read()
                if status not in MAY_BE:
                    self.failures.append((method, path, status, text[:300]))
                if path.endswith("/snapshot") and status == 200:
                    kept.add(name)
            except (OSError, http.client.HTTPException) as error:
                if not over.is_set():
                    self.failures.append((method, path, repr(error)))
            finally:
                connection.close()

    def test_races(self):
        """whatever ends while capsules move, the server stops well, and what it said was kept is there for the next one"""
        kept = [set() for _ in range(CLIENTS)]
        self.failures = []
        for _ in range(2):
            server, over = self.small_server(), threading.Event()
            threads = [threading.Thread(target=self.work, args=(server, number, over, kept[number])) for number in range(CLIENTS)]
            for thread in threads:
                thread.start()
            time.sleep(SECONDS)
            over.set()
            server.terminate()      # in the middle of all
            self.assertEqual(server.wait(), OK, "".join(server.said))
            for thread in threads:
                thread.join()
            self.assertEqual(self.failures, [])
        self.assertGreater(len(set.union(*kept)), 0)
        server = self.small_server()
        names = self.names(server)
        for name in sorted(set.union(*kept)):
            self.assertIn(name, names)
            self.post(server, "/v1/sessions/last/restore", {"capsule": name})
        server.terminate()
        self.assertEqual(server.wait(), OK)

    def test_a_slow_disk_is_waited_for(self):
        """SIGTERM while a capsule whose client has left is on its way to a slow disk: the server ends well with the file"""
        server = self.small_server({"LD_PRELOAD": os.environ["FRT_SLOW_SYNC"], "FRT_TEST_SYNC_MS": "1500",
                                    "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.turn(server, "a", [])
        before = self.files()
        connection = server.connection()
        connection.request("POST", "/v1/sessions/a/snapshot", json.dumps({"name": "kept"}), {"Content-Type": "application/json"})
        self.until(lambda: self.files() != before)      # it is being written
        connection.close()
        server.terminate()
        self.assertEqual(server.wait(), OK, "".join(server.said))
        self.assertEqual(self.names(self.small_server()), ["kept"])

    def files(self):
        return sorted(str(path) for path in (self.folder / "capsules").rglob("*"))


if __name__ == "__main__":
    unittest.main()
