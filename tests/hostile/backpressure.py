# SPDX-License-Identifier: Apache-2.0
"""Readers of streamed answers that read at random speeds, stop, shrink their buffers or leave, against a real frt-host serve.

Seeded: FRT_HOSTILE_SEED (1), FRT_HOSTILE_STREAMS (21) in plain and as many by TLS, at most FRT_HOSTILE_SECONDS (1200). How a
stream is read depends on the seed and its number alone. Whoever reads to the end gets what the unstreamed answer says, byte for
byte; whoever is cut off got a beginning of it; whoever reads nothing of a stream without an end is cut off; and the server never
holds more than its settings say."""
import collections
import http.client
import json
import os
import pathlib
import random
import re
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))
from lm_serving import LmServer  # noqa: E402
from support import HostTest  # noqa: E402
from tls_files import certificate, client, manifest_lines  # noqa: E402

SEED = int(os.environ.get("FRT_HOSTILE_SEED", 1))
STREAMS = int(os.environ.get("FRT_HOSTILE_STREAMS", 21))
SECONDS = float(os.environ.get("FRT_HOSTILE_SECONDS", 1200))
READERS, SLOTS = 12, 6
STREAM_BUFFER_KB = 256
# Of each reader at a time: what waits for it, being written, and written next; and the text of its request and answer.
GROWTH_MB = 16 + READERS * 4 * STREAM_BUFFER_KB / 1024
WRITE_TIMEOUT_MS = 2000
# Of 200 bytes: more than may wait for a client and the server's system holds for it (4 MiB), whose own takes 8 KiB.
ENDLESS_TOKENS = 100000
SCRIPT = {"replies": [{"when": {"last": "endless"}, "content": "again and ", "endless": True}]}


def chat_text(event):
    return event["choices"][0]["delta"].get("content") or "" if event.get("choices") else ""


def messages_text(event):
    return event["delta"].get("text", "") if event.get("type") == "content_block_delta" else ""


def responses_text(event):
    return event["delta"] if event.get("type") == "response.output_text.delta" else ""


# Path, the request's body, the text of the whole answer, the text of an event, what the stream ends with.
PROTOCOLS = (
    ("/v1/chat/completions", lambda text: {"messages": [{"role": "user", "content": text}]},
     lambda answer: answer["choices"][0]["message"]["content"], chat_text, "[DONE]"),
    ("/v1/messages", lambda text: {"model": "m", "max_tokens": 30000, "messages": [{"role": "user", "content": text}]},
     lambda answer: answer["content"][0]["text"], messages_text, '"type":"message_stop"'),
    ("/v1/responses", lambda text: {"input": text},
     lambda answer: answer["output"][-1]["content"][0]["text"], responses_text, '"type":"response.completed"'))


class Reader:
    """One stream and how it is read: a method per kind, in turn, which yields how many bytes to read next."""

    def __init__(self, server, number):
        self.server, self.chance = server, random.Random(SEED * 7919 + number)
        kinds = sorted(name for name in dir(self) if name.startswith("read_"))
        self.kind = kinds[number % len(kinds)].removeprefix("read_")
        self.protocol = PROTOCOLS[number // len(kinds) % len(PROTOCOLS)]
        letters = "".join(self.chance.choice("abcdefghij klmnopqrst\u00e9\u4e2d") for _ in range(self.chance.randrange(100, 1200)))
        self.text = f"<{letters}>"
        self.must_end = self.kind in ("at_once", "pieces")
        self.socket = None

    # ---- kinds ----
    def read_at_once(self):
        while True:
            yield 1 << 20

    def read_pieces(self):
        while True:
            yield self.chance.choice([1, 10, 1000, 50000])

    def read_slowly(self):
        pause = self.chance.choice([0.0005, 0.002, 0.01])
        while True:
            time.sleep(pause)
            yield self.chance.randrange(1, 5000)

    def read_stop_and_go(self):
        while True:
            for _ in range(self.chance.randrange(1, 200)):
                yield self.chance.randrange(1, 5000)
            time.sleep(self.chance.random() * 1.2)

    def read_shrinking(self):
        while True:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.chance.choice([4096, 8192, 65536]))
            for _ in range(self.chance.randrange(1, 100)):
                yield self.chance.randrange(1, 3000)
            time.sleep(self.chance.random() * 0.3)

    def read_a_little(self):
        """Then nothing, until the server gives up."""
        yield self.chance.randrange(1, 3000)
        time.sleep(WRITE_TIMEOUT_MS / 1000 * 2)
        while True:
            yield 1 << 16

    def read_and_leave(self):
        for _ in range(self.chance.randrange(1, 30)):
            yield self.chance.randrange(1, 3000)

    # ---- the stream ----
    def connect(self, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer is None and self.chance.random() < 0.6:
            receive_buffer = self.chance.choice([8192, 16384, 65536])
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(60)
        self.socket.connect(("127.0.0.1", self.server.port))
        if self.server.tls:
            self.socket = self.server.tls.wrap_socket(self.socket, server_hostname="127.0.0.1")
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        connection.sock = self.socket
        return connection

    def run(self):
        """What became of it: "whole", "cut", "left" or "busy"; raises what must not be."""
        path, body, whole_text, event_text, last = self.protocol
        connection = self.connect()
        got, ended = b"", False
        try:
            connection.request("POST", path, json.dumps({**body(self.text), "stream": True}).encode())
            answer = connection.getresponse()
            if answer.status in (429, 503):
                return "busy"
            assert answer.status == 200, answer.status
            for size in getattr(self, "read_" + self.kind)():
                part = answer.read(size)
                got += part
                if not part:
                    ended = True
                    break
        except (OSError, http.client.HTTPException):
            pass    # cut off
        finally:
            self.socket.close()
            connection.close()
        records = got.decode("utf-8", "ignore").split("\n\n")
        records = records[:-1]      # the last one is not over, or nothing
        events = [line[6:] for record in records for line in record.split("\n") if line.startswith("data: ")]
        streamed = "".join(event_text(json.loads(event)) for event in events if event != "[DONE]")
        reply = self.server.request("POST", path, body(self.text))
        while reply.status in (429, 503):
            time.sleep(0.05)
            reply = self.server.request("POST", path, body(self.text))
        expected = whole_text(reply.json())
        assert expected == "echo: " + self.text, (self.kind, expected[:100], self.text[:100])
        if ended:
            assert last in events[-1], (self.kind, events[-1])
            assert streamed == expected, (self.kind, path, len(streamed), len(expected))
            return "whole"
        assert expected.startswith(streamed), (self.kind, path, len(streamed))
        assert not self.must_end, f"{self.kind} was cut off after {len(got)} bytes"
        return "left" if self.kind == "and_leave" else "cut"


class BackPressure(HostTest):
    def serve(self, tls):
        lines, context = "", None
        if tls:
            files = certificate(self.folder, "server")
            lines, context = manifest_lines(*files), client(files[0])
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        manifest = self.model_manifest(
            "synthetic:none", plugin="test.scripted",
            options=f'script = "{script}"\nslots = {SLOTS}\nmax_context = {ENDLESS_TOKENS + 1000}\ntoken_delay_us = 20',
            extra=f"""[host.http]
model = "m"
queue = 64
stream_buffer = "{STREAM_BUFFER_KB}k"
write_timeout_ms = {WRITE_TIMEOUT_MS}
{lines}
[host.lm]
model = "m"
capsule_device = "4M"
capsule_host = "4M" """)
        return LmServer(self, manifest, plugins=os.environ["FRT_SCRIPTED_PLUGIN_DIR"], tls=context)

    def resident(self, server):
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024

    def check_streams(self, tls):
        # Freed memory that address sanitizer keeps would count as the server's.
        asan = os.environ.get("ASAN_OPTIONS", "")
        self.addCleanup(os.environ.__setitem__, "ASAN_OPTIONS", asan)
        os.environ["ASAN_OPTIONS"] = asan + ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
        server = self.serve(tls)
        for _ in range(SLOTS):      # what is allocated once is there
            self.assertEqual(server.chat("warm " * 100, max_tokens=30000).status, 200)
        before, most = self.resident(server), 0.0
        outcomes, failures, numbers, lock = collections.Counter(), [], iter(range(STREAMS)), threading.Lock()
        start = time.monotonic()

        def work():
            while not failures and time.monotonic() < start + SECONDS / 2:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                try:
                    reader = Reader(server, number)
                    outcome = reader.run()
                    while outcome == "busy":
                        time.sleep(0.05)
                        outcome = Reader(server, number).run()
                    outcomes[f"{reader.kind}: {outcome}"] += 1
                except Exception as error:      # pylint: disable=broad-except
                    failures.append(f"stream {number}: {error!r}")
        workers = [threading.Thread(target=work, daemon=True) for _ in range(READERS)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            most = max(most, self.resident(server))
            time.sleep(0.05)
        self.assertEqual(failures, [])
        self.assertIsNone(next(numbers, None), f"not all was read within {SECONDS / 2} s")
        metrics, end = server.metrics(), time.monotonic() + 30
        while metrics["frt_http_streams"] and time.monotonic() < end:
            time.sleep(0.05)
            metrics = server.metrics()
        self.assertEqual((metrics["frt_http_streams"], metrics["frt_http_buffer_bytes"], metrics["frt_http_failures_total"]), (0, 0, 0))
        cut = self.cut_off(server)
        print(json.dumps({"tls": tls, "streams": STREAMS, "seconds": round(time.monotonic() - start, 1), "outcomes": outcomes,
                          "cut_off": cut, "resident_mb": {"before": round(before, 1), "most": round(most, 1)}}, indent=2))
        self.assertLess(most - before, GROWTH_MB)
        self.assertGreaterEqual(cut, sum(count for what, count in outcomes.items() if what.endswith(": cut")))
        self.assertGreaterEqual(sum(count for what, count in outcomes.items() if what.endswith(": whole")), STREAMS // 4)
        self.check_cut_off(server)
        self.assertLess(self.resident(server) - before, GROWTH_MB)

    @staticmethod
    def cut_off(server):
        metrics = server.metrics()
        return sum(metrics[f'frt_http_refusals_total{{reason="{reason}"}}'] for reason in ("slow_client", "write_timeout"))

    def check_cut_off(self, server):
        """Who reads nothing of a stream without an end, and what the others have is a beginning of it. How soon the buffers of
        the system are full depends on the machine's speed, so the first one ends the wait."""
        before, peers, end = self.cut_off(server), [], time.monotonic() + 300
        for number, (path, body, _, event_text, _) in enumerate(PROTOCOLS):
            limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
            connection = Reader(server, number).connect(8192)
            self.addCleanup(connection.close)
            connection.request("POST", path, json.dumps({**body("endless"), limit: ENDLESS_TOKENS, "stream": True}).encode())
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            peers.append((answer, event_text))
        while self.cut_off(server) == before and time.monotonic() < end:
            time.sleep(0.1)
        self.assertGreater(self.cut_off(server), before, "no client that reads nothing was cut off")
        for answer, event_text in peers:    # the rest of what the systems hold would take long to read
            got = answer.read(1 << 14)
            events = [line[6:] for line in got.decode("utf-8", "ignore").split("\n") if line.startswith("data: ")][:-1]
            text = "".join(event_text(json.loads(event)) for event in events)
            self.assertTrue(text and ("again and " * len(text)).startswith(text), text[:100])

    def test_plain(self):
        """in plain"""
        self.check_streams(False)

    def test_tls(self):
        """by TLS"""
        self.check_streams(True)


if __name__ == "__main__":
    unittest.main()
