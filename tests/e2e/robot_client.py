# SPDX-License-Identifier: Apache-2.0
"""An independent client of the openpi websocket protocol: sockets, frames and msgpack by hand."""
import base64
import os
import socket
import struct
import urllib.request


def pack(value):
    """msgpack of None, bool, int, float, str, bytes, list, dict, Array; the shortest forms."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        if value < 0:
            return b"\xd3" + struct.pack(">q", value)
        return b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        size = len(data)
        head = (bytes([0xa0 | size]) if size < 32 else b"\xda" + struct.pack(">H", size) if size < 65536
                else b"\xdb" + struct.pack(">I", size))
        return head + data
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(pack, value))
    if isinstance(value, Array):
        return pack({b"__ndarray__": True, b"data": value.data, b"dtype": value.dtype, b"shape": value.shape})
    return b"\xde" + struct.pack(">H", len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())


class Array:
    def __init__(self, dtype, shape, data):
        self.dtype, self.shape, self.data = dtype, list(shape), bytes(data)

    @staticmethod
    def floats(values, shape=None):
        return Array("<f4", shape or [len(values)], struct.pack(f"<{len(values)}f", *values))

    def values(self):
        kind = {"<f4": "f", "<f8": "d"}[self.dtype]
        return list(struct.unpack(f"<{len(self.data) // struct.calcsize(kind)}{kind}", self.data))


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        part = self.data[self.at:self.at + count]
        assert len(part) == count
        self.at += count
        return part

    def number(self, form):
        return struct.unpack(">" + form, self.take(struct.calcsize(form)))[0]

    def read(self):
        t = self.number("B")
        if t < 0x80:
            return t
        if t >= 0xe0:
            return t - 256
        if t < 0x90 or t in (0xde, 0xdf):
            count = t & 15 if t < 0x90 else self.number("H" if t == 0xde else "I")
            value = {self.read(): self.read() for _ in range(count)}
            if b"__ndarray__" in value:
                return Array(value[b"dtype"], value[b"shape"], value[b"data"])
            return value
        if t < 0xa0 or t in (0xdc, 0xdd):
            count = t & 15 if t < 0xa0 else self.number("H" if t == 0xdc else "I")
            return [self.read() for _ in range(count)]
        if t < 0xc0 or t in (0xd9, 0xda, 0xdb):
            return self.take(t & 31 if t < 0xc0 else self.number("BHI"[t - 0xd9])).decode()
        if t in (0xc4, 0xc5, 0xc6):
            return self.take(self.number("BHI"[t - 0xc4]))
        return {0xc0: lambda: None, 0xc2: lambda: False, 0xc3: lambda: True, 0xca: lambda: self.number("f"),
                0xcb: lambda: self.number("d"), 0xcc: lambda: self.number("B"), 0xcd: lambda: self.number("H"),
                0xce: lambda: self.number("I"), 0xcf: lambda: self.number("Q"), 0xd0: lambda: self.number("b"),
                0xd1: lambda: self.number("h"), 0xd2: lambda: self.number("i"), 0xd3: lambda: self.number("q")}[t]()


def unpack(data):
    reader = Reader(data)
    value = reader.read()
    assert reader.at == len(data), "bytes after the value"
    return value


class Closed(Exception):
    def __init__(self, code):
        super().__init__(f"closed with {code}")
        self.code = code


class Client:
    """One connection. `metadata` is the first frame."""

    def __init__(self, port, headers=(), timeout=60, receive_buffer=None, source=None):
        self.socket = socket.socket()
        if source:
            self.socket.bind((source, 0))
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        lines = ["GET / HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *headers]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while b"\r\n\r\n" not in head:
            part = self.socket.recv(1)
            if not part:
                raise Closed(None)
            head += part
        self.status = int(head.split()[1])
        if self.status == 101:
            self.metadata = unpack(self.receive())

    def send(self, data, opcode=2, fin=True):
        mask = os.urandom(4)
        size = len(data)
        head = bytes([(0x80 if fin else 0) | opcode])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 65536:
            head += bytes([0x80 | 126]) + struct.pack(">H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack(">Q", size)
        repeated = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        self.socket.sendall(head + mask + (int.from_bytes(data, "big") ^ repeated).to_bytes(size, "big"))

    def exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise Closed(None)
            data += part
        return data

    def frame(self):
        """(opcode, payload) of the next frame."""
        first, second = self.exactly(2)
        size = second & 127
        if size == 126:
            size = struct.unpack(">H", self.exactly(2))[0]
        elif size == 127:
            size = struct.unpack(">Q", self.exactly(8))[0]
        return first & 15, self.exactly(size)

    def receive(self):
        """The next message: bytes, or str for a text frame. Answers pings."""
        while True:
            opcode, payload = self.frame()
            if opcode == 9:
                self.send(payload, 10)
            elif opcode == 8:
                raise Closed(struct.unpack(">H", payload[:2])[0] if payload else None)
            elif opcode in (1, 2):
                return payload.decode() if opcode == 1 else payload

    def infer(self, observation):
        self.send(pack(observation))
        answer = self.receive()
        return answer if isinstance(answer, str) else unpack(answer)

    def close(self):
        self.socket.close()

    def __del__(self):
        self.socket.close()


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return answer.status, answer.read().decode()
