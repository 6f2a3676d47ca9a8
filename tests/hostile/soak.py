# SPDX-License-Identifier: Apache-2.0
"""frt-host serve under a mixed load for long: all protocols, sessions, clients that leave, capsules. What it takes must not grow.

FRT_SOAK_MINUTES (5; a release wants 120), FRT_HOSTILE_SEED (1). The first half warms up: it ends no sooner than every tier of
capsules, the one cache that the load fills, is as full as its budget lets it be. Prints and asserts: the slope of the resident
memory over the second half, no answer that must not be, as many threads, descriptors and slots at the end as in the middle, each
time at rest, and that every page is free when sessions and capsules are deleted. Most of the load goes to a model that follows a
script, and has no pages; a part of it to the demo checkpoint."""
import collections
import http.client
import json
import os
import pathlib
import random
import re
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))
from lm_serving import LmServer  # noqa: E402
from support import FIXTURES, HostTest  # noqa: E402

SEED = int(os.environ.get("FRT_HOSTILE_SEED", 1))
MINUTES = float(os.environ.get("FRT_SOAK_MINUTES", 5))
CLIENTS, SLOTS, SAMPLE_SECONDS = 6, 4, 2
# MiB an hour, and for a run below two hours what the allocator's half a MiB to and fro makes of a second half that short.
MOST_SLOPE = 1 + (0.5 / (MINUTES / 120) if MINUTES < 120 else 0)
TIERS_MB = {"device": 4, "host": 4, "disk": 8}   # about a thousand capsules
FULL = 0.7      # a tier is: the next capsule may be larger than the rest of it
SCRIPT = {"replies": [
    {"when": {"last": "endless"}, "content": "again and ", "endless": True, "token_delay_us": 500},
    {"when": {"last": "weather"}, "content": "I look.", "calls": [{"name": "weather", "arguments": {"city": "Kyoto"}}]}]}
TOOL = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
BUSY = (429, 503)


class Client:
    """One client: a method per kind of work, chosen at random. What must not be raises AssertionError."""

    def __init__(self, server, number):
        self.server, self.number, self.chance = server, number, random.Random(SEED * 1000003 + number)
        self.done, self.statuses = collections.Counter(), collections.Counter()
        self.kinds = sorted(name for name in dir(self) if name.startswith("do_"))
        self.file = None    # of a capsule that was exported

    def step(self):
        kind = self.chance.choice(self.kinds)
        getattr(self, kind)()
        self.done[kind.removeprefix("do_")] += 1

    def ask(self, method, path, body=None, also=(), session=None):
        reply = self.server.request(method, path, body, {"X-Session-Id": session} if session else None)
        self.statuses[reply.status] += 1
        assert reply.status in (200, *BUSY, *also), (method, path, reply.status, reply.body[:300])
        return reply

    def words(self, most):
        return " ".join(self.chance.choice(("sea", "wind", "ship", "sail")) for _ in range(self.chance.randrange(1, most)))

    def body(self, path, text):
        stream = {"stream": self.chance.random() < 0.5}
        if path == "/v1/responses":
            return {"input": text, **stream}
        if path == "/v1/completions":
            return {"prompt": text, "max_tokens": 16, **stream}
        return {"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": text}], **stream}

    # ---- protocols ----
    def do_answer(self):
        path = self.chance.choice(("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/completions"))
        self.ask("POST", path, self.body(path, self.words(60)))

    def do_conversation(self):
        session, history = f"talk-{self.number}-{self.chance.randrange(8)}", []
        for _ in range(self.chance.randrange(1, 5)):
            history.append({"role": "user", "content": self.words(100)})
            reply = self.ask("POST", "/v1/chat/completions", {"messages": history, "max_tokens": 600}, session=session)
            if reply.status != 200:
                return
            content = reply.json()["choices"][0]["message"]["content"]
            assert content == "echo: " + history[-1]["content"], (content, history[-1])
            history.append({"role": "assistant", "content": content})

    def do_tools(self):
        reply = self.ask("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "weather"}], "tools": [{"type": "function", "function": TOOL}]})
        assert reply.status != 200 or reply.json()["choices"][0]["message"]["tool_calls"], reply.body

    def do_leave(self):
        path = self.chance.choice(("/v1/chat/completions", "/v1/messages"))
        self.leave(path, {**self.body(path, "endless"), "max_tokens": 9000})

    def leave(self, path, body, session=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"X-Session-Id": session} if session else {})
            if self.chance.random() < 0.7:
                answer = connection.getresponse()
                answer.read(self.chance.randrange(1, 3000))
                answer.close()
        finally:
            connection.close()

    def do_text(self):
        ids = self.ask("POST", "/tokenize", {"content": self.words(30)})
        if ids.status == 200:
            self.ask("POST", "/detokenize", {"tokens": ids.json()["tokens"]})
        self.ask("POST", "/apply-template", {"messages": [{"role": "user", "content": "x"}]})
        self.ask("POST", "/v1/messages/count_tokens", {"model": "m", "messages": [{"role": "user", "content": "x"}]})

    def do_look(self):
        for path in ("/health", "/metrics", "/v1/models", "/v1/sessions", "/v1/capsules"):
            self.ask("GET", path)

    def do_wrong(self):
        self.ask("POST", "/v1/chat/completions", b"{" * self.chance.randrange(1, 2000), (400,))
        self.ask("GET", "/none", None, (404,))
        self.ask("POST", "/v1/messages", {"messages": 1}, (400,))

    def do_pages(self):
        """Two turns of a model with pages, or one that is left."""
        session, history = f"page-{self.number}-{self.chance.randrange(2)}", []
        for _ in range(2):
            history.append({"role": "user", "content": self.words(200)})
            body = {"model": "d", "messages": history, "max_tokens": self.chance.randrange(1, 24)}
            if self.chance.random() < 0.3:
                return self.leave("/v1/chat/completions", body, session)
            reply = self.ask("POST", "/v1/chat/completions", body, session=session)
            if reply.status != 200:
                return None
            history.append({"role": "assistant", "content": reply.json()["choices"][0]["message"]["content"]})
        return None

    # ---- state: others may have taken the session's slot, its name or its capsule ----
    RACES = (404, 409)

    def do_session(self):
        session = f"talk-{self.number}-{self.chance.randrange(8)}"
        name = f"kept-{self.number}-{self.chance.randrange(4)}"
        self.ask("POST", "/v1/chat/completions", self.body("/v1/chat/completions", self.words(80)), session=session)
        base = f"/v1/sessions/{session}"
        for verb, body in self.chance.sample((("pin", None), ("fork", {"as": session + "-b"}), ("rewind", {}),
                                              ("snapshot", {"name": name}), ("restore", {"capsule": name})), 3):
            self.ask("POST", f"{base}/{verb}", body, self.RACES)
        self.ask("POST", f"{base}/unpin", None, self.RACES)
        if self.chance.random() < 0.5:
            self.ask("DELETE", base, None, self.RACES)

    def do_capsule(self):
        name = f"kept-{self.number}-{self.chance.randrange(4)}"
        base = f"/v1/capsules/{name}"
        reply = self.ask("GET", f"{base}/export", None, self.RACES)
        if reply.status == 200:
            self.file = reply.body
        for verb in ("pin", "unpin"):
            self.ask("POST", f"{base}/{verb}", None, self.RACES)
        self.ask("DELETE", base, None, self.RACES)
        if self.file:
            self.ask("POST", f"{base}/import", self.file, self.RACES)
            self.ask("POST", f"{base}/import", self.file[:self.chance.randrange(len(self.file))], (400, *self.RACES))


class Soak(HostTest):
    def setUp(self):
        super().setUp()
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        manifest = self.model_manifest(
            "synthetic:none", plugin="test.scripted", options=f'script = "{script}"\nslots = {SLOTS}\nmax_context = 16384',
            extra=f"""[device.cpu1]
backend = "frt.cpu"
[model.d]
plugin = "frt.qwen36"
device = "cpu1"
checkpoint = "{FIXTURES / "demo"}"
[model.d.options]
slots = {SLOTS}
max_context = 2048
[host.http]
model = "m"
more_models = "d"
queue = 64
request_log = "{self.folder}/log"
[host.lm]
model = "m"
capsule_dir = "{self.folder}/capsules"
capsule_device = "{TIERS_MB["device"]}M"
capsule_host = "{TIERS_MB["host"]}M"
capsule_disk = "{TIERS_MB["disk"]}M"
[host.pages]
type = "lm"
model = "d"
capsule_device = "{TIERS_MB["device"]}M"
capsule_host = "{TIERS_MB["host"]}M" """)
        self.server = LmServer(self, manifest, plugins=os.environ["FRT_SCRIPTED_PLUGIN_DIR"])
        # What is opened once is open now: the capsules' folder is, from the first capsule in a file to the end.
        client = Client(self.server, 0)
        client.ask("POST", "/v1/chat/completions", client.body("/v1/chat/completions", "x"), session="first")
        self.assertEqual(client.ask("POST", "/v1/sessions/first/snapshot", {"name": "first"}).status, 200)
        self.go, self.over, self.idle = threading.Event(), False, threading.Semaphore(0)
        self.failures = []

    def resident(self):
        """MiB, without pages of files, which come and go with the system's needs."""
        with open(f"/proc/{self.server.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"RssAnon:\s+(\d+)", status.read())[1]) / 1024

    def capsules(self, model):
        return json.loads(self.server.request("GET", f"/v1/capsules?model={model}").body)["data"]

    def filled(self):
        """Of each tier of capsules, the part of its budget that is used."""
        found = {"disk": sum(capsule["file_bytes"] for capsule in self.capsules("m") if capsule["kind"] != "named")}
        for tier in ("device", "host"):
            found[tier] = min(sum(capsule[f"{tier}_bytes"] for capsule in self.capsules(model)) for model in "md")
        return {tier: round(size / (TIERS_MB[tier] << 20), 2) for tier, size in found.items()}

    def forget_all(self):
        """Every session and capsule of the model with pages is deleted, in every slot; what moves from tier to tier, or falls out, at the next go."""
        for number in range(SLOTS):     # a request beside its session's has a slot without a name: now each slot has one
            body = {"model": "d", "messages": [{"role": "user", "content": f"{number} last"}], "max_tokens": 1}
            self.assertEqual(self.server.request("POST", "/v1/chat/completions", body, {"X-Session-Id": f"last-{number}"}).status, 200)
        left, end = True, time.monotonic() + 60
        while left and time.monotonic() < end:
            left = False
            for kind in ("sessions", "capsules"):
                for item in json.loads(self.server.request("GET", f"/v1/{kind}?model=d").body)["data"]:
                    left = True
                    self.server.request("DELETE", f"/v1/{kind}/{item['id']}?model=d")
        self.assertFalse(left, "what was deleted is there still")

    def held(self):
        """What the server holds once nobody is served."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            metrics = self.server.metrics()
            busy = [name for name in ("frt_http_streams", 'frt_lm_slots_used{model="m"}', 'frt_lm_slots_used{model="d"}',
                                      "frt_http_buffer_bytes") if metrics[name]]
            if not busy and metrics["frt_http_open_connections"] == 1:
                break
            time.sleep(0.1)
        self.assertEqual((busy, metrics["frt_http_open_connections"]), ([], 1))
        return {"threads": len(os.listdir(f"/proc/{self.server.process.pid}/task")), "descriptors": self.descriptors()}

    def descriptors(self):
        """What they are of -> how many: the fewest that are seen, as capsules are on their way to the disk still."""
        folder, fewest = pathlib.Path(f"/proc/{self.server.process.pid}/fd"), None
        for _ in range(30):
            seen = collections.Counter()
            for entry in folder.iterdir():
                try:
                    seen[re.sub(r"\d+|-\w{6}\b", "", os.readlink(entry)).replace(str(self.folder), "")] += 1
                except FileNotFoundError:   # closed meanwhile
                    continue
            if fewest is None or seen.total() < fewest.total():
                fewest = seen
            time.sleep(0.1)
        return dict(sorted(fewest.items()))

    def work(self, client):
        while not self.over:
            if not self.go.is_set():
                self.idle.release()
                self.go.wait()
            try:
                client.step()
            except Exception as error:      # pylint: disable=broad-except
                self.failures.append(f"client {client.number}: {error!r}")
                if len(self.failures) > 20:
                    return

    def rest(self):
        """No client works."""
        self.go.clear()
        for _ in range(CLIENTS):
            self.assertTrue(self.idle.acquire(timeout=120), self.failures)

    def sample(self, until):
        samples = []
        while time.monotonic() < until and not self.failures:
            samples.append((time.monotonic() / 3600, self.resident()))
            time.sleep(SAMPLE_SECONDS)
        return samples

    @staticmethod
    def slope(samples):
        """Least squares, MiB an hour."""
        times, sizes = zip(*samples)
        time_mean, size_mean = sum(times) / len(times), sum(sizes) / len(sizes)
        spread = sum((at - time_mean) ** 2 for at in times)
        return sum((at - time_mean) * (size - size_mean) for at, size in samples) / spread

    def test_soak(self):
        """what the server takes does not grow, and every answer is as it should be"""
        clients = [Client(self.server, number) for number in range(CLIENTS)]
        threads = [threading.Thread(target=self.work, args=(client,), daemon=True) for client in clients]
        start = time.monotonic()
        self.go.set()
        for thread in threads:
            thread.start()
        self.sample(start + MINUTES * 30)
        self.rest()
        filled, middle = self.filled(), self.held()
        self.go.set()
        samples = self.sample(start + MINUTES * 60)
        self.rest()
        end = self.held()
        self.over = True
        self.go.set()
        for thread in threads:
            thread.join(60)
        self.assertEqual(self.failures, [])
        self.forget_all()
        metrics = self.server.metrics()
        pages_lost = metrics['frt_lm_pages{model="d"}'] - metrics['frt_lm_pages_free{model="d"}']
        done = sum((client.done for client in clients), collections.Counter())
        slope = self.slope(samples)
        print(json.dumps({
            "name": "soak", "minutes": round((time.monotonic() - start) / 60, 1), "work": done, "requests": metrics["frt_http_requests_total"],
            "disconnects": metrics["frt_http_disconnects_total"], "errors": len(self.failures), "filled": filled, "middle": middle, "end": end,
            "pages": metrics['frt_lm_pages{model="d"}'], "pages_lost": pages_lost,
            "resident_mib": {"middle": round(samples[0][1], 2), "end": round(samples[-1][1], 2),
                             "slope_per_hour": round(slope, 2), "limit_per_hour": round(MOST_SLOPE, 2)}}, indent=2))
        answered = sum(client.statuses[200] for client in clients)
        self.assertGreater(answered, sum(sum(client.statuses.values()) for client in clients) / 2, "most were refused")
        self.assertEqual((metrics["frt_http_failures_total"], metrics["frt_http_worker_failures_total"]), (0, 0))
        self.assertGreaterEqual(min(filled.values()), FULL, "the warm-up was too short: FRT_SOAK_MINUTES")
        self.assertEqual(end, middle)
        self.assertEqual(pages_lost, 0)
        self.assertLess(slope, MOST_SLOPE)
        self.server.terminate()
        self.assertEqual(self.server.wait(), 0)


if __name__ == "__main__":
    unittest.main()
