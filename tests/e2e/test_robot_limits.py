# SPDX-License-Identifier: Apache-2.0
"""frt-host serve under clients that want more than their share: of time, memory, places, file descriptors. A good client
beside them is answered throughout. Deadlines are short where they must pass, and long where they must not."""
import os
import pathlib
import re
import resource
import socket
import struct
import time
import unittest

from robot_client import Array, Client, Closed, get, pack
from support import MANIFEST
from test_robot_serve import PLUGINS, Serving

WAIT = 60       # seconds until a state that is sure to come is given up
UPGRADE = (b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n")


def ended(peer):
    """What a peer is sent until the server closes."""
    data = b""
    try:
        while part := peer.recv(4096):
            data += part
    except ConnectionError:
        pass
    peer.close()
    return data


def frame_head(size, opcode=2, fin=True):
    """The head of a masked frame of so many bytes, 64 KiB or more; the mask is zero."""
    return bytes([(0x80 if fin else 0) | opcode, 0x80 | 127]) + struct.pack(">Q", size) + bytes(4)


class Limits(Serving):
    """The tests of a class share a server with the limits ROBOT, which each of them leaves without connections."""
    ROBOT = ""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls is Limits:
            raise unittest.SkipTest("for others to derive from")
        cls.starter = cls()
        cls.addClassCleanup(cls.starter.doCleanups)
        Serving.setUp(cls.starter)
        cls.starter.serve(cls.ROBOT)

    def setUp(self):
        super().setUp()
        self.server, self.port = self.starter.server, self.starter.port
        self.addCleanup(self.check_alive)
        self.wait_until("open_connections", 1)      # the one that asks

    def check_alive(self):
        if not self.server.alive():
            self.end_server()

    def connect(self, data=b""):
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT)
        self.addCleanup(peer.close)
        peer.sendall(data)
        return peer

    def client(self, **options):
        client = Client(self.port, **options)
        self.addCleanup(client.close)
        return client

    def answered(self, client):
        self.assertIn("actions", client.infer(self.observation()))

    def flood(self, client, size):
        """All of a message but its last byte, as far as the server lets it."""
        try:
            client.socket.sendall(frame_head(size) + bytes(size - 1))
        except ConnectionError:
            pass

    def wait_for(self, name, least):
        """Until the counter is there."""
        end = time.monotonic() + WAIT
        while (value := self.server.metrics()[name]) < least:
            self.assertLess(time.monotonic(), end, f"{name} is {value}, expected {least}")
            time.sleep(0.02)

    def wait_until(self, name, most):
        """Until the gauge is down."""
        end = time.monotonic() + WAIT
        while (value := self.server.metrics()[name]) > most:
            self.assertLess(time.monotonic(), end, f"{name} is {value}, expected {most}")
            time.sleep(0.02)

    def rests(self):
        """The server does nothing: a loop that spins takes all of the time."""
        before = self.server.processor_seconds()
        time.sleep(0.3)
        self.assertLess(self.server.processor_seconds() - before, 0.15)


class Deadlines(Limits):
    ROBOT = "handshake_timeout_ms = 1000\nreceive_timeout_ms = 300\nping_ms = 700\nmax_clients = 3"

    def test_a_handshake_that_never_ends_is_given_up(self):
        good = self.client()
        slow = [self.connect(), self.connect(b"GET / HT"), self.connect(UPGRADE)]
        for peer in slow:
            self.assertIn(b"408", ended(peer))
        self.wait_for("handshake_timeout_total", 3)
        self.answered(good)

    def test_a_message_that_never_ends_is_given_up_and_says_which_limit_it_was(self):
        good, slow = self.client(), self.client()
        slow.socket.sendall(frame_head(1 << 20) + bytes(10))
        self.assertIn("receive_timeout_ms", slow.receive())
        self.assertEqual(self.server.metrics()["receive_timeout_total"], 1)
        self.answered(good)

    def test_a_peer_that_vanished_loses_its_place_and_one_that_answers_pings_keeps_it(self):
        gone = [self.client(), self.client()]       # they never read again, as if their machine had no power
        resting = self.client()
        for _ in range(2):
            opcode, payload = resting.frame()       # it rests, and answers pings as the websockets library does
            self.assertEqual(opcode, 9)
            resting.send(payload, 10)
        for peer in gone:
            with self.assertRaises(Closed):
                while True:
                    peer.frame()
        self.answered(resting)
        self.answered(self.client())


class Places(Limits):
    ROBOT = "max_clients = 3\nmax_clients_per_address = 2\nmax_connections = 20\nping_ms = 0\nreceive_timeout_ms = 100"

    def test_with_ping_ms_0_a_silent_client_keeps_its_place(self):
        client = self.client()
        time.sleep(0.25)
        self.answered(client)

    def test_many_unfinished_handshakes_keep_no_client_out(self):
        good = self.client()
        slow = [self.connect(b"GET / HTTP/1.1\r\n") for _ in range(60)]
        self.answered(good)
        for _ in range(3):
            other = self.client()
            self.answered(other)
            other.close()
            self.wait_until("clients", 1)
        self.assertIn(b"503", ended(slow[0]))
        self.assertGreaterEqual(self.server.metrics()["displaced_total"], 40)
        self.assertLessEqual(self.server.metrics()["open_connections"], 20)

    def test_no_address_takes_all_places(self):
        clients = [self.client(), self.client()]
        answer = ended(self.connect(UPGRADE + b"\r\n"))
        self.assertIn(b"503", answer)
        self.assertIn(b"max_clients_per_address", answer)
        other = self.client(source="127.0.0.2")
        for client in [*clients, other]:
            self.answered(client)

    def test_one_client_too_many_is_told_the_reason(self):
        good = [self.client(source=f"127.0.0.{i}") for i in (2, 3, 4)]
        answer = ended(self.connect(UPGRADE + b"\r\n"))
        for word in (b"503", b"Retry-After", b"(max_clients)"):
            self.assertIn(word, answer)
        for client in good:
            self.answered(client)


class Idle(Limits):
    ROBOT = "max_clients = 3\nmax_clients_per_address = 2\nidle_ms = 300"

    def full(self):
        """A client that asked nothing for longer than idle_ms, one of its address that did, one of another address."""
        idle, active = self.client(), self.client()
        other = self.client(source="127.0.0.2")
        time.sleep(0.35)
        for client in (active, other):
            self.answered(client)
        return idle, active, other

    def test_a_client_that_asks_nothing_keeps_its_place_while_nobody_needs_it(self):
        for client in self.full():
            self.answered(client)

    def test_a_client_that_asks_nothing_gives_its_place_to_a_newcomer_whose_address_is_full(self):
        idle, active, other = self.full()
        for client in (self.client(), active, other):
            self.answered(client)
        with self.assertRaisesRegex(Closed, "1001"):
            idle.receive()

    def test_a_client_that_asks_nothing_gives_its_place_to_a_newcomer_where_all_places_are_taken(self):
        idle, active, other = self.full()
        for client in (self.client(source="127.0.0.3"), active, other):
            self.answered(client)
        with self.assertRaisesRegex(Closed, "1001"):
            idle.receive()
        self.assertGreaterEqual(self.server.metrics()["idle_client_total"], 1)


class Descriptors(Limits):
    ROBOT = "max_clients = 60\nmax_connections = 64\nhandshake_timeout_ms = 3600000"

    def setUp(self):
        """From now on the server has descriptors for 20 connections. Until then it has done all that it will have to do
        without one: UBSan opens a pipe when it checks a type that is new to it, and where it cannot, calls the type wrong."""
        super().setUp()
        good = self.client()
        self.answered(good)
        slow = [self.connect(b"GET") for _ in range(70)]
        self.assertIn(b"503", ended(slow[0]))
        self.assertEqual(get(self.port, "/healthz"), (200, "OK\n"))
        for peer in [*slow, good]:
            peer.close()
        self.wait_until("open_connections", 1)
        process = self.server.process.pid
        soft, hard = resource.prlimit(process, resource.RLIMIT_NOFILE)
        self.addCleanup(resource.prlimit, process, resource.RLIMIT_NOFILE, (soft, hard))
        resource.prlimit(process, resource.RLIMIT_NOFILE, (max(map(int, os.listdir(f"/proc/{process}/fd"))) + 21, hard))

    def test_running_out_of_file_descriptors_neither_spins_nor_keeps_a_client_out(self):
        good = self.client()
        before = self.server.metrics()["displaced_total"]
        for _ in range(60):
            self.connect(b"GET")
        self.answered(good)
        self.answered(self.client())
        for _ in range(10):
            self.assertEqual(get(self.port, "/healthz"), (200, "OK\n"))
        self.rests()
        self.assertGreaterEqual(self.server.metrics()["displaced_total"] - before, 40)

    def test_without_a_descriptor_to_win_back_a_newcomer_gets_503(self):
        clients, refusal = [], b""
        while not refusal:
            self.assertLess(len(clients), 60)
            peer = self.connect(UPGRADE + b"\r\n")
            head = peer.recv(12)
            if head == b"HTTP/1.1 101":
                clients.append(peer)
            else:
                refusal = head + ended(peer)
        self.assertIn(b"503", refusal)
        self.assertIn(b"descriptors", refusal)
        self.connect()
        self.rests()
        for peer in clients:
            peer.close()
        end = time.monotonic() + WAIT
        while True:
            try:
                self.answered(self.client())
                break
            except (ConnectionError, Closed, AttributeError):
                self.check_alive()
                self.assertLess(time.monotonic(), end)
                time.sleep(0.02)


class Memory(Limits):
    ROBOT = 'max_message = "2M"\nbuffer_memory = "4M"\nreceive_timeout_ms = 3600000'

    def test_unfinished_messages_beyond_the_budget_cost_the_largest_and_never_the_good_client(self):
        good = self.client()
        before = self.server.metrics()["out_of_memory_total"]
        greedy = [self.client() for _ in range(6)]
        for client in greedy:
            self.flood(client, 2 << 20)
            self.answered(good)
        self.wait_for("out_of_memory_total", before + 4)
        self.assertLessEqual(self.server.metrics()["buffer_bytes"], 4 << 20)
        self.answered(good)
        for client in greedy:
            client.close()
        self.wait_until("clients", 1)
        self.answered(good)
        self.assertLess(self.server.metrics()["buffer_bytes"], 1 << 20)

    def test_a_message_that_is_given_up_for_memory_says_so(self):
        before = self.server.metrics()["out_of_memory_total"]
        greedy = [self.client() for _ in range(4)]
        for client in greedy:
            self.flood(client, 2 << 20)
        self.wait_for("out_of_memory_total", before + 2)
        texts = []
        for client in greedy:
            client.socket.settimeout(0.2)
            try:
                texts.append(client.receive())
            except (Closed, OSError):
                pass
        self.assertTrue(any("buffer_memory" in text for text in texts), texts)


class SystemMemory(Limits):
    ROBOT = 'max_message = "16M"\nbuffer_memory = "64M"\nreceive_timeout_ms = 3600000'

    def test_out_of_memory_closes_the_connection_that_wants_it_and_never_ends_the_server(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text(encoding="ascii")
        size = int(re.search(r"VmSize:\s+(\d+) kB", status)[1])
        limit = (size << 10) + (24 << 20)       # the budget is 64M, the system has 24M more
        resource.prlimit(self.server.process.pid, resource.RLIMIT_AS, (limit, limit))
        good = self.client()
        greedy = [self.client() for _ in range(6)]
        for client in greedy:
            self.flood(client, (16 << 20) - 1)
            self.answered(good)
        self.wait_for("out_of_memory_total", 5)
        newcomer = self.client()
        for client in (good, newcomer):
            self.answered(client)
        for client in (good, newcomer, *greedy):
            client.close()
        self.stop()


class Refused(Serving):
    def test_limits_that_contradict_each_other_or_do_nothing_are_refused(self):
        for robot, word in (('max_message = "32M"\nbuffer_memory = "60M"', "two messages"),
                            ("max_clients = 8\nmax_connections = 8", "leaves no room"),
                            ("max_clients = 2\nmax_clients_per_address = 3", "no effect")):
            with self.subTest(word):
                result = self.check(MANIFEST, "--plugin-dir", PLUGINS, "serve", self.policy_manifest(robot))
                self.assertIn(word, result.stderr)


class Echo(Limits):
    """What a client sent comes back in errors: short, as text, and never as it was."""

    def refusal(self, observation):
        client = Client(self.port)
        client.send(observation if isinstance(observation, bytes) else pack(observation))
        opcode, payload = client.frame()
        client.close()
        self.assertEqual(opcode, 1)
        self.assertLessEqual(len(payload), 1100)
        text = payload.decode()     # a text frame is UTF-8
        self.assertFalse([c for c in text if ord(c) < 32 or ord(c) == 127], text)
        return text

    def test_errors_show_names_and_values_cut_and_escaped(self):
        good = self.observation()
        for more, word in (({"a" * (10 << 20): 1.0}, "at most 256"), ({b"\xff\x1b[2J": 1.0}, r"\xff"),
                           ({"rl": {"\x1b[2J": 1.0}}, r"\x1b"), ({"x": {"a" * 200: {"b" * 200: 1.0}}}, "at most 256"),
                           ({"a\0b": 1.0}, "no UTF-8 text in one line"),
                           ({"rtc": {"mode": b"\xff" * 50000}}, "UTF-8"), ({"rtc": {"mode": "x" * 60000}}, "guided, locked"),
                           ({"image": {b"__ndarray__": True, b"data": b"", b"dtype": "\x1b" * 200, b"shape": [0]}}, "dtype")):
            with self.subTest(word):
                self.assertIn(word, self.refusal({**good, **more}))
        self.assertIn("twice", self.refusal({**good, "a": {"b": 1.0}, "a/b": 2.0}))

    def test_values_out_of_range_are_refused(self):
        good = self.observation()
        for more, word in (({"prompt": b"pick \xff up"}, "UTF-8"), ({"prompt": "x" * 5000}, "at most"),
                           ({"prompt": "x " * (1 << 20)}, "at most"), ({"rl": {"beta": 1e30}}, "1 (none) to 100"),
                           ({"rl": {"beta": 1e300}}, "not finite"), ({"rl": {"beta": [1.5] * 5000}}, "rl/beta"),
                           ({"prompt_token_ids": Array("|u1", [70000], bytes(70000))}, "at most 65536"),
                           ({"rtc": {"prev": Array.floats([0.0] * 2, [1, 2]), "delay": 0, "max_guidance": 1e6}}, "above 1000"),
                           ({"rl": {"bta": 2.0}}, "rl/beta"), ({"rl": 5}, "no map"), ({"rtc": {"dely": 3}}, "rtc/delay"),
                           ({"rtc": {"delay": 3}}, "'rtc/prev', which is not there"),
                           ({f"a{i}": 1.0 for i in range(300)}, "256 others")):
            with self.subTest(word):
                self.assertIn(word, self.refusal({**good, **more}))
        self.assertIn("actions", Client(self.port).infer(good))


if __name__ == "__main__":
    unittest.main()
