# SPDX-License-Identifier: Apache-2.0
"""What serving costs the host, without a GPU: prints one JSON object for each measurement, and a table of what must hold.

    FRT_HOST=build/release/bin/frt-host FRT_MAKE_CHECKPOINT=build/release/bin/make-checkpoint FRT_FIXTURES=tests/fixtures \\
      FRT_SCRIPTED_PLUGIN_DIR=build/release/tests/scripted_plugins python3 tools/bench/http_bench.py [NAME...]

  body       a body of 80 KB: time and processor time from its first byte to the answer of count_tokens, which reads, parses,
             renders and tokenizes it, and generates nothing. With the demo checkpoint's tokenizer. Cold: each differs from its
             beginning on; known: each is the one before and a turn more, as an agent sends it, or a turn less; same: each is the one
             before. The processor time is that of the thread that did most of it, and that of all of the server's, by the
             kernel's count (schedstat); what is demanded is compared with the time, which other programs of the machine lengthen,
             and with the thread's processor time.
  events     events of many streams at a time, and what a CPU-second of the thread that sends them sends
  half_open  /health while 1,000 connections have sent half of a head
  leavers    what 10,000 clients that leave at random leave: slots, descriptors, bytes of bodies
  turn       the time to the first token of an agent's second turn behind 20,000 tokens, against the first one, with the demo
             checkpoint
"""
import http.client
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/e2e"))
from lm_serving import LmServer  # noqa: E402
from support import FIXTURES, HostTest  # noqa: E402

REQUESTS, STREAMS, SECONDS = 200, 32, 5
HALF_OPEN, LEAVERS, LEAVER_THREADS, HISTORY_TOKENS = 1000, 10000, 8, 20000


def percentiles(seconds):
    ordered = sorted(seconds)
    return {"p50_ms": round(statistics.median(ordered) * 1e3, 2),
            "p99_ms": round(ordered[int(len(ordered) * 0.99) - 1] * 1e3, 2), "max_ms": round(ordered[-1] * 1e3, 2)}


def conversation(size, tools):
    """A conversation of an agent: tools, and turns with the text of files, `size` bytes in all."""
    tools = [{"name": f"tool{i}", "description": "Reads a file of the project and tells what is in it. " * 8,
              "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}} for i in range(tools)]
    messages = []
    while len(json.dumps([messages, tools])) < size:
        number = len(messages)
        messages += [{"role": "user", "content": f"Look at part {number}.\n" + "int value = compute(first, second);\n" * 40},
                     {"role": "assistant", "content": f"Part {number} computes a value. " * 6}]
    return {"messages": messages + [{"role": "user", "content": "Go on."}], "tools": tools, "max_tokens": 16}


class HttpBench(HostTest):
    rows = []

    @classmethod
    def tearDownClass(cls):
        print("\n| | measured | must be |\n|---|---|---|")
        for row in cls.rows:
            print("| {} | {} | {} |".format(*row))

    def server_of_demo(self, context=4096):
        """With the demo checkpoint, made for as many positions."""
        checkpoint = self.folder / "demo"
        shutil.copytree(FIXTURES / "demo", checkpoint)
        config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
        config.get("text_config", config)["max_position_embeddings"] = context
        (checkpoint / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return LmServer(self, self.model_manifest(checkpoint, options=f"slots = 2\nmax_context = {context}", extra="""[host.http]
model = "m"
[host.lm]
model = "m" """))

    def test_body(self):
        server = self.server_of_demo()
        asked = conversation(80_000, 14)
        first_text = asked["messages"][0]["content"]
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.addCleanup(connection.close)
        for kind, most in (("cold", 10), ("known", 2), ("same", 2)):
            taken, of_thread, of_all = [], [], []
            for number in range(REQUESTS):
                if kind == "cold":
                    asked["messages"][0]["content"] = f"{number:04} {first_text}"
                elif kind == "known" and number % 10 == 9:
                    del asked["messages"][-18:]
                elif kind == "known":
                    asked["messages"] += [{"role": "assistant", "content": f"Part {number} is done. " * 4},
                                          {"role": "user", "content": "Go on with the next part of it.\n" * 4}]
                body = json.dumps(asked).encode()
                before, start = self.run_time(server), time.monotonic()
                connection.request("POST", "/v1/messages/count_tokens", body, {"Content-Type": "application/json"})
                answer = json.loads(connection.getresponse().read())
                taken.append(time.monotonic() - start)
                used = [after - before.get(thread, 0) for thread, after in self.run_time(server).items()]
                of_thread.append(max(used))
                of_all.append(sum(used))
            shares, thread = percentiles(taken), percentiles(of_thread)
            print(json.dumps({"name": f"body_{kind}", "bytes": len(body), "tokens": answer["input_tokens"], "requests": REQUESTS,
                              **shares, "thread_cpu": thread, "server_cpu": percentiles(of_all), "load": os.getloadavg()[0]}))
            self.rows.append((f"a body of 80 KB, {kind}, p99", f"{shares['p99_ms']} ms, processor {thread['p99_ms']} ms", f"<= {most} ms"))

    @staticmethod
    def run_time(server):
        """Seconds on a processor by thread."""
        used = {}
        for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
            used[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
        return used

    def test_events(self):
        script = json.dumps({"replies": [{"content": "again and ", "endless": True}]})
        server = LmServer(self, self.model_manifest(
            "synthetic:none", plugin="test.scripted",
            options=f"script = '{script}'\nslots = {STREAMS}\nmax_context = 65536",
            extra='[host.http]\nmodel = "m"\nmax_tokens = "60k"\nstream_buffer = "16M"'),
            plugins=os.environ["FRT_SCRIPTED_PLUGIN_DIR"])
        over, counts = threading.Event(), [0] * STREAMS

        def read(index):
            body = {"messages": [{"role": "user", "content": "x"}], "stream": True}
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            while not over.is_set():
                part = answer.read1(1 << 20)
                if not part:
                    break
                counts[index] += part.count(b"\n\n")
            connection.close()
        readers = [threading.Thread(target=read, args=(index,)) for index in range(STREAMS)]
        for reader in readers:
            reader.start()
        time.sleep(1)
        before, cpu, start = sum(counts), self.threads(server), time.monotonic()
        time.sleep(SECONDS)
        events, seconds = sum(counts) - before, time.monotonic() - start
        self.rows.append(("events of all streams", f"{round(events / seconds)} /s", ">= 50,000 /s of a thread"))
        used = [after - cpu.get(thread, 0) for thread, after in self.threads(server).items()]
        over.set()
        for reader in readers:
            reader.join()
        print(json.dumps({"name": "events", "streams": STREAMS, "events_per_s": round(events / seconds),
                          "cpu_s_of_threads": sorted((round(each, 2) for each in used), reverse=True)[:6],
                          "events_per_cpu_s_of_the_sender": round(events / max(max(used), 0.01)),
                          "events_per_cpu_s_of_the_server": round(events / max(sum(used), 0.01))}))

    @staticmethod
    def threads(server):
        """CPU-seconds by thread."""
        used = {}
        for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            used[task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return used

    def scripted(self, http=""):
        script = json.dumps({"replies": [{"content": "again and ", "endless": True}]})
        return LmServer(self, self.model_manifest(
            "synthetic:none", plugin="test.scripted", options=f"script = '{script}'\nslots = 4\nmax_context = 65536",
            extra=f'[host.http]\nmodel = "m"\n{http}'), plugins=os.environ["FRT_SCRIPTED_PLUGIN_DIR"])

    def test_half_open(self):
        server = self.scripted(f"max_connections = {HALF_OPEN + 64}\nhead_timeout_ms = 60000")
        for _ in range(HALF_OPEN):
            server.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Le")
        taken = []
        for _ in range(REQUESTS):
            start = time.monotonic()
            self.assertEqual(server.request("GET", "/health").status, 200)
            taken.append(time.monotonic() - start)
        self.assertGreaterEqual(server.metrics()["frt_http_open_connections"], HALF_OPEN)
        shares = percentiles(taken)
        print(json.dumps({"name": "half_open", "connections": HALF_OPEN, "requests": REQUESTS, **shares}))
        self.rows.append((f"/health beside {HALF_OPEN:,} half-open connections, slowest", f"{shares['max_ms']} ms", "<= 100 ms"))

    def held(self, server):
        metrics = server.metrics()
        return {"slots": metrics['frt_lm_slots_used{model="m"}'], "bytes_of_bodies": metrics["frt_http_buffer_bytes"],
                "descriptors": min(self.descriptors(server) for _ in range(20))}

    @staticmethod
    def descriptors(server):
        """Once the connection that asked for the metrics may be gone."""
        time.sleep(0.02)
        return len(os.listdir(f"/proc/{server.process.pid}/fd"))

    def test_leavers(self):
        server = self.scripted()
        self.assertEqual(server.request("GET", "/health").status, 200)
        before, start = self.held(server), time.monotonic()

        def leave(seed):
            chance = random.Random(seed)
            body = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            for _ in range(LEAVERS // LEAVER_THREADS):
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as peer:
                    whole = head + body
                    peer.sendall(whole[:chance.randrange(1, len(whole) + 1)] if chance.random() < 0.5 else whole)
                    time.sleep(chance.random() * 0.01)
        threads = [threading.Thread(target=leave, args=(seed,)) for seed in range(LEAVER_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end = time.monotonic() + 30
        while self.held(server) != before and time.monotonic() < end:
            time.sleep(0.1)
        left = {what: size - before[what] for what, size in self.held(server).items()}
        print(json.dumps({"name": "leavers", "clients": LEAVERS, "seconds": round(time.monotonic() - start, 1), "left": left,
                          "left_in_all": sum(abs(size) for size in left.values())}))
        self.rows.append((f"{LEAVERS:,} clients leave at random: slots, bytes of bodies, descriptors left",
                          ", ".join(f"{size:g}" for size in left.values()), "0, 0, 0"))

    def test_turn(self):
        server = self.server_of_demo(HISTORY_TOKENS + 4096)
        body, size = None, 20_000
        while body is None or tokens < HISTORY_TOKENS:
            body = conversation(size, 1)
            tokens = server.request("POST", "/v1/messages/count_tokens", body).json()["input_tokens"]
            size += 2_000
        turns = []
        for _ in range(2):
            reply = server.request("POST", "/v1/messages", {**body, "temperature": 0}, {"X-Session-Id": "agent"})
            self.assertEqual(reply.status, 200, reply.body)
            reply = reply.json()
            frt = reply["frt"]
            turns.append({"prompt_tokens": frt["reused_tokens"] + frt["new_prefill_tokens"], "action": frt["prefix_action"],
                          "new_tokens": frt["new_prefill_tokens"], "template_ms": frt["template_ms"],
                          "first_token_ms": round(sum(frt.get(part, 0) for part in (
                              "template_ms", "queue_ms", "restore_ms", "prefill_ms")), 1)})
            text = "".join(block.get("text", "") for block in reply["content"])
            body["messages"] += [{"role": "assistant", "content": text or "I see."},
                                 {"role": "user", "content": "And the next part?"}]
        share = turns[1]["first_token_ms"] / turns[0]["first_token_ms"]
        print(json.dumps({"name": "turn", "first": turns[0], "second": turns[1], "share": round(share, 4)}))
        self.rows.append((f"first token behind a history of {tokens:,} tokens, of the cold one", f"{share:.1%}", "<= 10 %"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(f"HttpBench.test_{name}" for name in sys.argv[1:])])
