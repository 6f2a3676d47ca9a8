# SPDX-License-Identifier: Apache-2.0
"""Hostile connections against a real frt-host serve on loopback, with a good client beside them that is always answered.

Seeded: FRT_HOSTILE_SEED (1), FRT_HOSTILE_CONNECTIONS (300), at most FRT_HOSTILE_SECONDS (1200), FRT_HOSTILE_MEMORY_MB (150).
What each connection does depends on the seed and its number alone; how they interleave does not. At the end the server
lives, never took more memory than the limit above what it took before, has given every buffer and place back, and says so in a report (JSON)."""
import collections
import contextlib
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
from robot_client import Array, Client, Closed, pack, unpack  # noqa: E402
from test_robot_serve import Serving  # noqa: E402

CONNECTIONS = int(os.environ.get("FRT_HOSTILE_CONNECTIONS", 300))
SEED = int(os.environ.get("FRT_HOSTILE_SEED", 1))
SECONDS = float(os.environ.get("FRT_HOSTILE_SECONDS", 1200))
MEMORY_MB = float(os.environ.get("FRT_HOSTILE_MEMORY_MB", 150))
WORKERS = 12
PATIENCE = 2        # seconds that a hostile client waits for an answer
# A good answer takes milliseconds; a server that stalls does so for one of its timeouts, 20 s and more. Between the two.
LATE = 10           # seconds
ENOUGH = 3          # attacks of a kind, one of which reaches its end
LINGERING = 40      # connections that are left open, the oldest of which is closed for the next one
MESSAGE = 32 << 20  # max_message
SENT_AT_ONCE = 16 << 10     # bytes that a socket takes without its peer
# Deadlines that a good client keeps on the slowest machine; hostile ones are closed before, as LINGERING says.
ROBOT = """max_clients = 64
max_connections = 128
deadline_ms = 60000
handshake_timeout_ms = 20000
receive_timeout_ms = 20000
ping_ms = 20000"""
UPGRADE = (b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n")


class Refused(Exception):
    """The server has no place for one more client, and says so."""


class Attack:
    """One hostile connection: a method per kind, in turn. What it leaves open is in `left`; `ended`: it was made to its
    end, and not cut off before."""

    def __init__(self, port, number, good):
        self.port, self.good = port, good
        self.chance = random.Random(SEED * 1000003 + number)
        self.left, self.wrong, self.ended = None, None, False
        kinds = sorted(name for name in dir(self) if name.startswith("do_"))
        self.kind = kinds[number % len(kinds)]

    def run(self):
        try:
            getattr(self, self.kind)()
            self.ended = True
        except (OSError, Closed, Refused):
            pass    # refused, closed or cut off: all of that is the server's right
        except Exception as error:      # pylint: disable=broad-except
            self.wrong = f"{self.kind}: {error!r}"

    # ---- means ----
    def connect(self, data=b""):
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        peer.sendall(data)
        return peer

    def client(self):
        client = Client(self.port, timeout=PATIENCE)
        if client.status != 101:
            raise Refused(client.status)
        return client

    def bytes(self, most):
        return self.chance.randbytes(self.chance.randrange(most))

    def answer(self, client):
        """None: the server says nothing, or closes."""
        try:
            return client.receive()
        except (OSError, Closed):
            return None
        finally:
            client.close()

    def head(self, size, opcode=2, fin=True, mask=True, shortest=True):
        """Of a frame. A length in more bytes than it needs is refused at once, whatever follows."""
        form = "" if size < 126 else ">H" if size < 65536 else ">Q"
        if not shortest:
            form = ">Q"
        code = {"": size, ">H": 126, ">Q": 127}[form]
        length = struct.pack(form, size) if form else b""
        return bytes([(0x80 if fin else 0) | opcode, (0x80 if mask else 0) | code]) + length + (bytes(4) if mask else b"")

    def spoiled(self):
        data = bytearray(pack(self.good))
        for _ in range(self.chance.randrange(1, 6)):
            data[self.chance.randrange(len(data) if self.chance.random() < 0.3 else 400)] = self.chance.randrange(256)
        return bytes(data)

    # ---- HTTP ----
    def do_handshake_cut(self):
        self.left = self.connect(UPGRADE[:self.chance.randrange(len(UPGRADE))])

    def do_handshake_garbage(self):
        peer = self.connect(self.bytes(3000))
        if self.chance.random() < 0.5:
            peer.recv(1000)
        self.left = peer

    def do_handshake_spoiled(self):
        data = bytearray(UPGRADE)
        for _ in range(self.chance.randrange(1, 5)):
            data[self.chance.randrange(len(data))] = self.chance.randrange(256)
        self.left = self.connect(bytes(data))
        self.left.recv(1000)

    def do_header_without_end(self):
        peer = self.connect(b"GET / HTTP/1.1\r\n")
        for _ in range(self.chance.randrange(1, 40)):
            peer.sendall(b"x: " + b"y" * 1000 + b"\r\n")
        self.left = peer

    def do_http(self):
        line = self.chance.choice([b"GET /metrics", b"GET /healthz", b"POST /healthz", b"GET /" + b"a" * 5000, b"PUT /", b"GET *"])
        body = b"Content-Length: 100000000000\r\n" if self.chance.random() < 0.3 else b""
        peer = self.connect(line + b" HTTP/1.1\r\nHost: x\r\n" + body + b"\r\n" + self.bytes(100))
        peer.recv(5000)
        peer.close()

    def do_handshake_by_bytes(self):
        peer = self.connect()
        for byte in UPGRADE[:self.chance.randrange(len(UPGRADE) + 1)]:
            peer.sendall(bytes([byte]))
        self.left = peer

    def do_huge_head(self):
        peer = self.connect(b"GET / HTTP/1.1\r\nHost: x\r\n" + self.chance.choice([
            b"x: " + b"y" * (1 << 20), b"x" * (1 << 16) + b": y", b"x: y\r\n" * 20000, b"x: y\r\n " * 5000]) + b"\r\n\r\n")
        answer = peer.recv(5000)
        peer.close()
        if answer and not answer.startswith(b"HTTP/1.1 4"):
            self.wrong = f"a huge head got {answer[:60]!r}"

    def do_requests_in_a_row(self):
        """The first is answered, and nothing else."""
        peer = self.connect(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * self.chance.randrange(2, 200))
        answer = b""
        while part := peer.recv(5000):
            answer += part
        peer.close()
        if answer.count(b"HTTP/1.1") != 1:
            self.wrong = f"requests in a row got {answer!r:.200}"

    def do_frames_before_the_upgrade_is_answered(self):
        peer = self.connect(UPGRADE + self.head(3) + b"abc")
        answer = peer.recv(5000)    # both pieces may come apart: then it is a client
        if not answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 101", b"HTTP/1.1 503")):
            self.wrong = f"early frames got {answer[:60]!r}"
        self.left = peer

    # ---- ends ----
    STATES = ("connected", "handshake", "open", "message", "fragment", "waiting", "closing")

    def client_in(self, state):
        """A socket, and what else must live as long, in a state of the connection."""
        if state == "connected":
            return self.connect(), None
        if state == "handshake":
            return self.connect(UPGRADE[:self.chance.randrange(1, len(UPGRADE))]), None
        client = self.client()
        if state == "message":
            client.socket.sendall(self.head(5000) + bytes(self.chance.randrange(5000)))
        elif state == "fragment":
            client.send(b"x" * self.chance.randrange(5000), 2, fin=False)
        elif state == "waiting":
            client.send(pack(self.good))
        elif state == "closing":
            client.send(b"\x03\xe8", 8)
        return client.socket, client

    def do_reset(self):
        peer, _ = self.client_in(self.chance.choice(self.STATES))
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    def do_half_close(self):
        """It sends no more, and reads; a request that was complete may be answered or not."""
        peer, client = self.client_in(self.chance.choice(self.STATES))
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(5000):
            pass
        del client
        peer.close()

    def do_vanish(self):
        """As if its machine had no power: nothing goes out any more, in whichever state."""
        peer, client = self.client_in(self.chance.choice(self.STATES))
        self.left = client or peer

    # ---- frames ----
    def do_frames_garbage(self):
        client = self.client()
        client.socket.sendall(self.bytes(2000))
        self.left = client

    def do_frame_bad_head(self):
        client = self.client()
        client.socket.sendall(self.chance.choice([
            self.head(10, mask=False) + bytes(10), self.head(10, shortest=False) + bytes(10),
            bytes([0xf2, 0x80]) + bytes(4), bytes([0x83, 0x80]) + bytes(4),
            self.head(1000, opcode=9) + bytes(1000), bytes([0x09, 0x80]) + bytes(4), bytes([0x80, 0x80]) + bytes(4),
            bytes([0x88, 0x81]) + bytes(5), bytes([0x88, 0x82]) + bytes(4) + b"\xff\xff"]))
        self.refused(client)

    def refused(self, client):
        """After this frame the server says nothing but why, and closes."""
        try:
            client.receive()
            client.receive()
            self.wrong = "the connection goes on after a frame that is wrong"
        except (Closed, OSError):
            pass
        finally:
            client.close()

    def do_reserved_bits(self):
        client = self.client()
        first = self.chance.choice([0x10, 0x20, 0x40, 0x70]) | self.chance.choice([0x80, 0x81, 0x82, 0x88, 0x89, 0x8a, 0x02])
        client.socket.sendall(bytes([first, 0x80]) + bytes(4))
        self.refused(client)

    def do_reserved_opcode(self):
        client = self.client()
        client.socket.sendall(bytes([0x80 | self.chance.choice([3, 4, 5, 6, 7, 11, 12, 13, 14, 15]), 0x80]) + bytes(4))
        self.refused(client)

    def do_other_mask(self):
        """Masked otherwise than its head says: bytes that are no request."""
        client = self.client()
        data = pack(self.good)
        client.socket.sendall(self.head(len(data))[:-4] + self.chance.randbytes(4) + data)
        self.refused(client)

    def do_control_frames_between_fragments(self):
        """That is allowed: a good request, however it is cut, is answered."""
        client = self.client()
        data = pack(self.good)
        cuts = sorted(self.chance.randrange(len(data)) for _ in range(self.chance.randrange(1, 30)))
        for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, len(data)])):
            client.send(data[start:end], 0 if number else 2, fin=end == len(data) and number == len(cuts))
            for _ in range(self.chance.randrange(3)):
                client.send(self.bytes(126), self.chance.choice([9, 10]))
        if isinstance(self.answer(client), str):
            self.wrong = "a request in fragments was refused"

    def do_frame_by_bytes(self):
        client = self.client()
        for byte in self.head(200) + bytes(self.chance.randrange(200)):
            client.socket.sendall(bytes([byte]))
        self.left = client

    def do_fragment_of_another_kind(self):
        client = self.client()
        client.send(b"x", 2, fin=False)
        client.send(b"y", self.chance.choice([1, 2]))
        self.refused(client)

    def do_fragment_of_nothing(self):
        client = self.client()
        client.send(b"x", 0)
        self.refused(client)

    def do_huge_length(self):
        client = self.client()
        client.socket.sendall(self.head(self.chance.choice([MESSAGE + 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])))
        client.socket.sendall(bytes(self.chance.randrange(1 << 16)))
        self.left = client

    def do_unfinished_message(self):
        client = self.client()
        size = self.chance.choice([1 << 10, 1 << 16, 1 << 20, 4 << 20] + [MESSAGE - (1 << 20)] * (self.chance.random() < 0.2))
        client.socket.sendall(self.head(size))
        piece = bytes(1 << 16)
        for _ in range(size // len(piece)):
            client.socket.sendall(piece)
        self.left = client

    def do_too_large_message(self):
        client = self.client()
        for _ in range(self.chance.randrange(1, 40)):
            client.socket.sendall(self.head(1 << 20, opcode=0 if _ else 2, fin=False) + bytes(1 << 20))
        self.answer(client)

    def do_slow_message(self):
        client = self.client()
        data = pack(self.good)
        client.socket.sendall(self.head(len(data)))
        for byte in data[:self.chance.randrange(30)]:
            client.socket.sendall(bytes([byte]))
            time.sleep(0.01)
        self.left = client

    def do_empty_fragments(self):
        client = self.client()
        client.send(b"", 2, fin=False)
        for _ in range(self.chance.randrange(500)):
            client.send(b"", 0, fin=False)
        self.left = client

    def do_empty_messages(self):
        client = self.client()
        for _ in range(self.chance.randrange(1, 200)):
            client.send(b"", 2)
        self.refused(client)

    def do_pongs_nobody_asked_for(self):
        client = self.client()
        for _ in range(self.chance.randrange(2000)):
            client.send(b"x" * 100, 10)
        self.left = client

    def do_pings_and_slow_reading(self):
        """Frames come whole, whatever is between them."""
        client = self.client()
        client.socket.setblocking(False)
        ping = bytes([0x89, 0xfd]) + bytes(4) + bytes(125)
        try:
            for _ in range(500):
                client.socket.sendall(ping * 100)
        except OSError:
            pass
        client.socket.settimeout(PATIENCE)
        for _ in range(self.chance.randrange(300)):
            opcode, payload = client.frame()
            if (opcode, payload) != (10, bytes(125)) and opcode not in (8, 9):
                self.wrong = f"a frame {opcode} of {payload[:20]!r} among pongs"
        self.left = client

    def do_pings_and_no_reading(self):
        client = self.client()
        for _ in range(self.chance.randrange(2000)):
            client.send(b"x" * 100, 9)
        self.left = client

    def do_requests_and_no_reading(self):
        client = self.client()
        for _ in range(self.chance.randrange(1, 50)):
            client.send(pack(self.good))
        self.left = client

    def do_text(self):
        client = self.client()
        client.send(self.bytes(500), 1)
        self.answer(client)

    def do_close_and_go_on(self):
        """Frames come with the close and behind it. The server may hang up as soon as it has read the close."""
        client = self.client()
        data = self.head(2, opcode=8) + b"\x03\xe8"
        for _ in range(self.chance.randrange(50)):
            payload = self.chance.choice([pack(self.good), b"x"])
            data += self.head(len(payload), opcode=self.chance.choice([2, 8, 9])) + payload
        client.socket.sendall(data[:SENT_AT_ONCE])
        with contextlib.suppress(OSError):
            client.socket.sendall(data[SENT_AT_ONCE:])
        self.left = client

    def do_no_end_of_the_close(self):
        """The server closes, and the client reads that and stays."""
        client = self.client()
        client.send(b"no request", 1)
        client.receive()
        self.left = client

    def do_close_badly(self):
        client = self.client()
        client.send(self.chance.choice([b"", b"\x03\xe8bye", b"\x03\xf3" + bytes(123)]), 8)
        self.left = client

    # ---- content ----
    def ask(self, data):
        client = self.client()
        client.send(data if isinstance(data, bytes) else pack(data))
        answer = self.answer(client)
        if isinstance(answer, str) and len(answer) > 1200:
            self.wrong = f"an error of {len(answer)} bytes"

    def do_garbage_message(self):
        self.ask(self.bytes(3000))

    def do_spoiled_message(self):
        self.ask(self.spoiled())

    def do_deep_message(self):
        depth = self.chance.choice([17, 1000, 1 << 20])
        self.ask(self.chance.choice([b"\x91", b"\x81\xa1a"]) * depth + b"\x00")

    def do_wide_message(self):
        count = self.chance.choice([300, 70000])
        self.ask({**self.good, "x": [0] * min(count, 65535), **{f"k{i}": 0 for i in range(min(count, 400))}})

    def do_long_names(self):
        size = self.chance.choice([257, 1 << 16, 4 << 20])
        self.ask({**self.good, "n" * size: {"m" * size: 1.0}})

    def do_hostile_values(self):
        nan, infinity = float("nan"), float("inf")
        self.ask({**self.good, **self.chance.choice([
            {"observation/state": Array.floats([nan, 0, 0])}, {"observation/state": [infinity] * 3}, {"rl": {"beta": 1e30}},
            {"prompt": b"\xff\xfe"}, {"prompt": "x" * self.chance.choice([100, 1 << 20, 8 << 20])}, {"num_steps": 1 << 63},
            {"prompt_token_ids": [2 ** 31 - 1] * self.chance.randrange(1, 60000)}, {"seed": nan}, {"noise": []},
            {"observation/image": Array("|u1", [1 << 32, 1 << 32, 3], b"")},
            {"observation/image": Array("<f4", [1 << 20, 1, 3], bytes(12 << 20))},
            {"rtc": {"prev": Array.floats([nan] * 20, [10, 2]), "delay": 1 << 40}}, {"\x1b[2J\xff": 1}])})

    def do_good_and_gone(self):
        client = self.client()
        client.send(pack(self.good))
        client.close()


class GoodClient(threading.Thread):
    """Asks without a pause on one connection; every answer is the same, bit for bit."""

    def __init__(self, port, observation):
        super().__init__(daemon=True)
        self.data = pack(observation)
        self.client = Client(port, timeout=120)
        self.expected = self.ask()
        if not isinstance(self.expected, bytes):
            raise RuntimeError(f"refused before any attack: {self.expected:.200}")
        self.answers, self.slowest, self.failure = 0, 0.0, None
        self.over = threading.Event()

    def ask(self):
        self.client.send(self.data)
        answer = self.client.receive()
        return answer if isinstance(answer, str) else unpack(answer)["actions"].data

    def run(self):
        try:
            while not self.over.is_set():
                start = time.monotonic()
                answer = self.ask()
                self.slowest = max(self.slowest, time.monotonic() - start)
                if answer != self.expected:
                    raise RuntimeError(f"another answer: {answer!r:.200}")
                self.answers += 1
                self.over.wait(0.002)
        except Exception as error:      # pylint: disable=broad-except
            self.failure = repr(error)


class HostileConnections(Serving):
    def test_a_good_client_is_answered_whatever_the_others_do(self):
        # Freed memory that address sanitizer keeps would count as the server's.
        os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 1024), hard), hard))
        port = self.serve(ROBOT)
        good = GoodClient(port, self.observation())
        quiet = self.server.resident()[0]
        good.start()
        end = time.monotonic() + SECONDS
        numbers = iter(range(CONNECTIONS))
        lock = threading.Lock()
        kinds, ended, lingering = collections.Counter(), collections.Counter(), collections.deque()
        newcomers, failures = [0], []

        def work():
            while good.is_alive() and time.monotonic() < end and not failures:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                attack = Attack(port, number, self.observation())
                attack.run()
                with lock:
                    kinds[attack.kind.removeprefix("do_")] += 1
                    ended[attack.kind.removeprefix("do_")] += attack.ended
                    if attack.wrong:
                        failures.append(attack.wrong)
                    if attack.left:
                        lingering.append(attack.left)
                    old = lingering.popleft() if len(lingering) > LINGERING else None
                if old:
                    old.close()
                if number % 25 == 0:
                    self.newcomer(port, newcomers, failures)
        workers = [threading.Thread(target=work, daemon=True) for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        good.over.set()
        good.join(180)
        self.assertTrue(self.server.alive(), "the server is dead")
        for peer in lingering:
            peer.close()
        good.client.close()
        numbers = self.at_rest()
        resident, peak = self.server.resident()
        report = {"seed": SEED, "connections": sum(kinds.values()),
                  "kinds": {kind: f"{ended[kind]} of {count}" for kind, count in sorted(kinds.items())},
                  "good": {"answers": good.answers, "slowest_s": round(good.slowest, 3), "newcomers": newcomers[0]},
                  "quiet_mb": round(quiet), "resident_mb": round(resident), "peak_mb": round(peak), "server": numbers}
        print(json.dumps(report, indent=2))
        self.assertIsNone(good.failure)
        self.assertEqual(failures, [])
        self.assertEqual(sum(kinds.values()), CONNECTIONS, f"the rest was not made within {SECONDS} s")
        never = [kind for kind, count in kinds.items() if count >= ENOUGH and not ended[kind]]
        self.assertEqual(never, [], "these kinds attacked nothing: each was cut off before its end")
        self.assertGreater(good.answers, 0)
        self.assertLess(good.slowest, LATE, "the good client waited, so the server stood still")
        self.assertEqual(numbers["deadline_miss_total"], 0)
        self.assertLess(peak - quiet, MEMORY_MB)
        self.assertEqual(numbers["clients"], 0)
        self.assertEqual(numbers["buffer_bytes"], 0)
        text = self.stop()
        for word in ("Sanitizer", "runtime error:"):
            self.assertNotIn(word, text)

    def newcomer(self, port, newcomers, failures):
        """A good client that comes now; it is displaced only by a flood that this is not."""
        try:
            client = Client(port, timeout=120)
            answer = client.infer(self.observation()) if client.status == 101 else {}
            if "actions" not in answer:
                failures.append(f"a newcomer got {client.status}: {answer!r:.200}")
            client.close()
            newcomers[0] += 1
        except (OSError, Closed) as error:
            failures.append(repr(error))

    def at_rest(self):
        """The counters when all connections have gone, or after a minute."""
        end = time.monotonic() + 60
        while True:
            numbers = self.server.metrics()
            if (numbers["clients"] == 0 and numbers["buffer_bytes"] == 0) or time.monotonic() > end:
                return numbers
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()
