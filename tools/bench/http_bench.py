# SPDX-License-Identifier: Apache-2.0
"""What serving costs the host, without a GPU: prints one JSON object for each measurement.

    FRT_HOST=build/release/bin/frt-host FRT_MAKE_CHECKPOINT=build/release/bin/make-checkpoint FRT_FIXTURES=tests/fixtures \\
      FRT_SCRIPTED_PLUGIN_DIR=build/release/tests/scripted_plugins python3 tools/bench/http_bench.py [NAME...]

  body       a body of 80 KB: time and the server's CPU time from its first byte to the answer of count_tokens, which reads, parses,
             renders and tokenizes it, and generates nothing. With the demo checkpoint's tokenizer.
  events     events of many streams at a time, and what a CPU-second of the thread that sends them sends
  turn       the time to the first token of an agent's second turn, against the first one, with the demo checkpoint
"""
import http.client
import json
import os
import pathlib
import statistics
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tests/e2e"))
from lm_serving import LmServer  # noqa: E402
from support import HostTest  # noqa: E402

REQUESTS, STREAMS, SECONDS = 200, 32, 5


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
    def server_of_demo(self):
        return LmServer(self, self.demo(options="slots = 2\nmax_context = 4096", extra="""[host.http]
model = "m"
[host.lm]
model = "m" """))

    def test_body(self):
        server = self.server_of_demo()
        body = json.dumps(conversation(80_000, 14)).encode()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.addCleanup(connection.close)
        taken, cpu = [], sum(self.threads(server).values())
        for _ in range(REQUESTS):
            start = time.monotonic()
            connection.request("POST", "/v1/messages/count_tokens", body, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
            taken.append(time.monotonic() - start)
        cpu = sum(self.threads(server).values()) - cpu
        print(json.dumps({"name": "body", "bytes": len(body), "tokens": answer["input_tokens"], "requests": REQUESTS,
                          "first_ms": round(taken[0] * 1e3, 2), "cpu_ms_of_one": round(cpu / REQUESTS * 1e3, 2), **percentiles(taken)}))

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
        used = [after - cpu.get(thread, 0) for thread, after in self.threads(server).items()]
        over.set()
        for reader in readers:
            reader.join()
        print(json.dumps({"name": "events", "streams": STREAMS, "events_per_s": round(events / seconds),
                          "cpu_s_of_threads": sorted((round(each, 2) for each in used), reverse=True)[:6],
                          "events_per_cpu_s_of_the_server": round(events / max(sum(used), 0.01))}))

    @staticmethod
    def threads(server):
        """CPU-seconds by thread."""
        used = {}
        for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            used[task.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return used

    def test_turn(self):
        server = self.server_of_demo()
        body = conversation(6_000, 1)
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
        print(json.dumps({"name": "turn", "first": turns[0], "second": turns[1],
                          "share": round(turns[1]["first_token_ms"] / turns[0]["first_token_ms"], 4)}))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *(f"HttpBench.test_{name}" for name in sys.argv[1:])])
