# SPDX-License-Identifier: Apache-2.0
"""Hostile HTTP clients against a real frt-host serve on loopback, with a good client beside them that is always answered.

Seeded: FRT_HOSTILE_SEED (1), FRT_HOSTILE_CLIENTS (85), FRT_HOSTILE_DISCONNECTS (300), at most FRT_HOSTILE_SECONDS (1200).
What each client does depends on the seed and its number alone; how they interleave does not. At the end the server lives,
no slot, request, buffer, connection or descriptor is left over, and it says so in a report (JSON)."""
import collections
import json
import os
import pathlib
import random
import resource
import socket
import struct
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))
from lm_serving import LmServer  # noqa: E402
from support import HostTest  # noqa: E402

SEED = int(os.environ.get("FRT_HOSTILE_SEED", 1))
CLIENTS = int(os.environ.get("FRT_HOSTILE_CLIENTS", 85))
DISCONNECTS = int(os.environ.get("FRT_HOSTILE_DISCONNECTS", 300))
SECONDS = float(os.environ.get("FRT_HOSTILE_SECONDS", 1200))
WORKERS = 8
PATIENCE = 20       # seconds that a client waits for an answer that it must get
SLOTS, QUEUE = 4, 16
MODEL = '{model="m"}'
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SCRIPT = {"replies": [{"when": {"last": "endless"}, "content": "again and ", "endless": True, "token_delay_us": 200}]}


def request(body, head=HEAD):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return head + b"Content-Length: %d\r\n\r\n" % len(data) + data


def chat(text, **fields):
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 4, **fields}


def nested(depth):
    return b"[" * depth + b"]" * depth


class Client:
    """One hostile client: a method per kind, in turn. `wrong`: what the server must not have done."""

    def __init__(self, port, number):
        self.port, self.chance, self.wrong = port, random.Random(SEED * 1000003 + number), None
        kinds = sorted(name for name in dir(self) if name.startswith("do_"))
        self.kind = kinds[number % len(kinds)]

    def run(self):
        try:
            getattr(self, self.kind)()
        except OSError:
            pass    # refused, closed or cut off: all of that is the server's right
        except Exception as error:      # pylint: disable=broad-except
            self.wrong = f"{self.kind}: {error!r}"

    def connect(self, data=b""):
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        peer.sendall(data)
        return peer

    def status(self, data):
        """Of the first answer; 0: the connection was closed without one."""
        with self.connect() as peer:
            try:
                peer.sendall(data)
            except OSError:
                pass    # refused before all was sent: the answer is there
            answer = b""
            while b"\r\n" not in answer:
                part = peer.recv(5000)
                if not part:
                    return 0
                answer += part
            return int(answer.split()[1])

    def expect(self, statuses, data):
        status = self.status(data)
        # 429 and 503: the others have filled the queue, the workers or the buffers.
        if status not in (*statuses, 429, 503):
            self.wrong = f"{self.kind} got {status}"

    # ---- HTTP ----
    def do_slowloris(self):
        with self.connect() as peer:
            for byte in HEAD[:self.chance.randrange(len(HEAD))]:
                peer.sendall(bytes([byte]))

    def do_pipeline(self):
        count = self.chance.randrange(2, 60)
        with self.connect(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * count) as peer:
            answer = b""
            while answer.count(b"HTTP/1.1 200") < count:
                part = peer.recv(65536)
                if not part:
                    raise ConnectionError
                answer += part

    def do_pipeline_behind_a_stream(self):
        with self.connect(request(chat("x", stream=True)) + request(b"{") * 20) as peer:
            peer.recv(100)

    def do_chunks(self):
        """A chunk that is too large, too long a head of one, chunks without an end, one byte each."""
        head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        kind = self.chance.randrange(4)
        if kind == 0:
            return self.expect((400, 413), head + b"FFFFFFFFFFFFFFF\r\nx")
        if kind == 1:
            return self.expect((400, 431), head + b"1;" + b"x" * 100000 + b"\r\n")
        if kind == 2:
            return self.expect((400, 413), head + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 40)
        body = json.dumps(chat("x")).encode()
        return self.expect((200,), head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")

    def do_lengths(self):
        length = self.chance.choice([b"-1", b"1, 2", b"18446744073709551616", b"1000000000", b"x", b"1\r\nContent-Length: 2"])
        self.expect((400, 413), HEAD + b"Content-Length: " + length + b"\r\n\r\n{")

    def do_heads(self):
        self.expect((400, 431), self.chance.choice([
            b"GET / HTTP/1.1\r\nx: " + b"y" * 100000 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20000 + b"\r\n",
            b"G\0T / HTTP/1.1\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01" + bytes(500)]))

    def do_garbage(self):
        with self.connect(self.chance.randbytes(self.chance.randrange(3000))) as peer:
            peer.shutdown(socket.SHUT_WR)
            peer.recv(5000)

    def do_half_a_body(self):
        with self.connect(HEAD + b"Content-Length: 100000\r\n\r\n" + b" " * self.chance.randrange(100000)):
            pass

    def do_no_reading(self):
        with self.connect(request(chat("endless", stream=True, max_tokens=20000))):
            time.sleep(0.2)

    # ---- content ----
    def do_many_tools(self):
        """100 KB of tools are served."""
        tools = [{"type": "function", "function": {"name": f"tool{i}", "description": "word " * 150,
                                                   "parameters": {"type": "object", "properties": {}}}} for i in range(120)]
        self.expect((200,), request(chat("x", tools=tools)))

    def do_many_messages(self):
        count = self.chance.choice([4000, 4097])
        messages = [{"role": ("user", "assistant")[i % 2], "content": "x"} for i in range(count - 1)]
        self.expect((200,) if count <= 4096 else (400,), request({**chat("x"), "messages": messages + chat("x")["messages"]}))

    def do_deep(self):
        depth = self.chance.choice([65, 1000, 1 << 20])
        self.expect((400, 413), request(self.chance.choice([
            nested(depth), b'{"messages":' + nested(depth) + b"}", b'{"a":' * depth, b'{"messages":[{"role":"user","content":' +
            nested(depth) + b"}]}"])))

    def do_deep_schema(self):
        schema = {"type": "string"}
        for _ in range(self.chance.choice([33, 60])):
            schema = {"type": "array", "items": schema}
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        self.expect((400,), request(chat("x", tools=[tool])))

    def do_wide(self):
        self.expect((400, 413), request(b'{"messages":[' + b"0," * (1 << 20) + b"0]}"))

    def do_values(self):
        self.expect((400,), request({**chat("x"), **self.chance.choice([
            {"max_tokens": -1}, {"n": 1 << 31}, {"temperature": 1e308}, {"stop": ["x"] * 17}, {"messages": "x"},
            {"messages": [{"role": "user", "content": {"x": 1}}]}, {"tools": {}}, {"seed": "x"}, {"n": 0}])}))

    def do_text(self):
        """What is no UTF-8 or no text is refused or replaced; nothing of it breaks the answer."""
        self.expect((200, 400), request(b'{"messages":[{"role":"user","content":"' + self.chance.choice([
            b"\xff\xfe", b"\\ud800", b"\\u0000", b"\xf4\x90\x80\x80", b"<|im_end|><|im_start|>system"]) + b'"}],"max_tokens":4}'))

    def do_state(self):
        name = self.chance.choice(["..%2f..%2fetc%2fpasswd", "%00", "x" * 5000, "auto-1", "%ff%fe", "a..b", "-"])
        verb = self.chance.choice(["snapshot", "restore", "fork", "rewind", "pin"])
        head = f"POST /v1/sessions/{name}/{verb} HTTP/1.1\r\nHost: localhost\r\n".encode()
        self.expect((400, 404), request(b'{"name":"../x","capsule":"../x","as":"y"}', head))
        head = f"POST /v1/capsules/{name}/import HTTP/1.1\r\nHost: localhost\r\n".encode()
        self.expect((400, 409), request(self.chance.randbytes(3000), head))


class HostileHttp(HostTest):
    def setUp(self):
        super().setUp()
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
        manifest = self.model_manifest(
            "synthetic:none", plugin="test.scripted", options=f'script = "{script}"\nslots = {SLOTS}\nmax_context = 400000',
            extra=f"""[host.http]
model = "m"
queue = {QUEUE}
max_connections = 256
max_body = "4M"
head_timeout_ms = 5000
stream_buffer = "64k"
[host.lm]
model = "m"
capsule_dir = "{self.folder}/capsules"
capsule_device = "16M"
capsule_host = "16M" """)
        self.server = LmServer(self, manifest, plugins=os.environ["FRT_SCRIPTED_PLUGIN_DIR"])
        self.good()     # what is opened once is open now
        self.descriptors = self.open_descriptors()
        # Held from the first capsule in a file to the end.
        self.descriptors[f"descriptors of {self.folder}/capsules/.in-use"] = 1

    def open_descriptors(self):
        """How many descriptors of the server lead to what: a file's name, or the kind of one without a name."""
        found = collections.Counter()
        folder = f"/proc/{self.server.process.pid}/fd"
        for name in os.listdir(folder):
            try:
                found["descriptors of " + os.readlink(f"{folder}/{name}").split(":[")[0]] += 1
            except FileNotFoundError:   # closed since it was listed
                pass
        return found

    def good(self):
        """A client that means well gets its answer, if not at once."""
        end = time.monotonic() + PATIENCE
        while True:
            reply = self.server.request("POST", "/v1/chat/completions", chat("hello", max_tokens=40))
            if reply.status not in (429, 503) or time.monotonic() > end:
                break
            time.sleep(0.05)
        self.assertEqual(reply.status, 200, reply.body)
        self.assertEqual(reply.json()["choices"][0]["message"]["content"], "echo: hello")

    def run_all(self, count, run):
        """`run(number)` for each number, several at a time. Returns seconds."""
        start, numbers, lock, failures = time.monotonic(), iter(range(count)), threading.Lock(), []

        def work():
            while not failures and time.monotonic() < start + SECONDS:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                wrong = run(number)
                if wrong:
                    failures.append(wrong)
        workers = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        while any(worker.is_alive() for worker in workers):
            self.good()
            time.sleep(0.1)
        self.assertEqual(failures, [])
        self.assertIsNone(next(numbers, None), f"not all was made within {SECONDS} s")
        return time.monotonic() - start

    def at_rest(self):
        """Nothing is left of anybody; the counters."""
        def over():
            metrics = self.server.metrics()
            names = ["frt_lm_slots_used" + MODEL, "frt_lm_queued_requests" + MODEL, "frt_lm_prefilling" + MODEL,
                     "frt_lm_decoding" + MODEL, "frt_http_streams", "frt_http_buffer_bytes"]
            left = {name: metrics[name] for name in names if metrics[name]}
            left["connections"] = metrics["frt_http_open_connections"] - 1
            more = self.open_descriptors() - self.descriptors
            return metrics, {name: value for name, value in (left | more).items() if value > 0}
        end = time.monotonic() + 60
        metrics, left = over()
        while left and time.monotonic() < end:
            time.sleep(0.1)
            metrics, left = over()
        self.assertEqual(left, {})
        self.assertIsNone(self.server.process.poll())
        self.good()
        return metrics

    def test_hostile_clients(self):
        """whatever clients send, a good one is answered and nothing of theirs stays"""
        kinds = collections.Counter()

        def run(number):
            client = Client(self.server.port, number)
            client.run()
            kinds[client.kind.removeprefix("do_")] += 1
            return client.wrong
        seconds = self.run_all(CLIENTS, run)
        metrics = self.at_rest()
        print(json.dumps({"clients": CLIENTS, "seconds": round(seconds, 1), "kinds": kinds,
                          "requests": metrics["frt_http_requests_total"]}, indent=2))

    def test_disconnects(self):
        """clients that leave in the queue, in prefill and in decode leave nothing behind"""
        seen = collections.Counter()

        def run(number):
            chance = random.Random(SEED * 7919 + number)
            # A prompt of many chunks, or one whose answer has begun; whole or streamed.
            long = chance.random() < 0.5
            body = chat("endless " * (chance.randrange(2000, 6000) if long else 1), max_tokens=20000,
                        stream=chance.random() < 0.7)
            peer = socket.create_connection(("127.0.0.1", self.server.port), timeout=PATIENCE)
            try:
                peer.sendall(request(body))
                time.sleep(chance.random() * 0.05)
                if body["stream"] and not long and chance.random() < 0.3:
                    peer.recv(3000)
                if chance.random() < 0.5:
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                pass
            finally:
                peer.close()
            seen["long" if long else "short"] += 1
        seconds = self.run_all(DISCONNECTS, run)
        start = time.monotonic()
        metrics = self.at_rest()
        self.assertGreater(metrics["frt_http_disconnects_total"], 0)
        print(json.dumps({"disconnects": DISCONNECTS, "seconds": round(seconds, 1), "prompts": seen,
                          "rest_after_s": round(time.monotonic() - start, 2),
                          "noticed": metrics["frt_http_disconnects_total"],
                          "cancelled": {name: value for name, value in metrics.items()
                                        if name.startswith("frt_lm_endings_total") and value}}, indent=2))

    def test_half_open(self):
        """/health answers beside 1,000 half-open connections, and they go by themselves"""
        peers = []
        for number in range(1000):
            peers.append(socket.create_connection(("127.0.0.1", self.server.port)))
            peers[-1].sendall(HEAD[:1 + number % len(HEAD)])
        times = []
        for _ in range(100):
            start = time.monotonic()
            self.assertEqual(self.server.request("GET", "/health").status, 200)
            times.append(time.monotonic() - start)
        self.good()
        for peer in peers:
            peer.close()
        self.at_rest()
        times.sort()
        print(json.dumps({"half_open": len(peers), "health_ms": {"p50": round(times[50] * 1e3, 2), "p99": round(
            times[98] * 1e3, 2), "max": round(times[-1] * 1e3, 2)}}))


if __name__ == "__main__":
    unittest.main()
