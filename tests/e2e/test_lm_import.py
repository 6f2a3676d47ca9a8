# SPDX-License-Identifier: Apache-2.0
"""frt-host serve: capsules that are imported, longer than any other body may be, and uploads that go wrong."""
import itertools
import json
import os
import re
import resource
import time
import unittest

from lm_serving import LmServer
from test_lm_serve import ALICE, LmServeTest

BODY = 16 << 10     # max_body
HEAD = "POST /v1/capsules/{} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"


class ImportTest(LmServeTest):
    def import_server(self, http="", limits=None):
        self.capsules = self.folder / "capsules"
        server = LmServer(self, self.http_manifest(f'max_body = "{BODY}"\nbuffer_memory = "{BODY}"\n{http}',
                                                   "slots = 3\nmax_context = 512", f'capsule_dir = "{self.capsules}"'), limits=limits)
        if "key_file" in http:
            server.key = ALICE
        return server

    def exported(self, server):
        """The bytes of a capsule, more than a body may have."""
        body = {"prompt": list(range(100, 160)), "max_tokens": 1}
        self.assertEqual(server.request("POST", "/v1/completions", body, {"X-Session-Id": "talk"}).status, 200)
        self.assertEqual(server.request("POST", "/v1/sessions/talk/snapshot", {"name": "first"}).status, 200)
        file = server.request("GET", "/v1/capsules/first/export").body
        self.assertGreater(len(file), 4 * BODY)
        return file

    def upload(self, server, length=None, name="second", more=""):
        """A connection that has sent the head of an import."""
        headers = f"Content-Length: {length}\r\n" if length is not None else "Transfer-Encoding: chunked\r\n"
        key = f"Authorization: Bearer {server.key}\r\n" if server.key else ""
        return server.raw(HEAD.format(f"{name}/import", headers + key + more).encode())

    def answer(self, peer):
        """Status and body of the answer that the connection gets."""
        got = b""
        while b"\r\n\r\n" not in got:
            part = peer.recv(65536)
            self.assertTrue(part, got)
            got += part
        head, body = got.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        while len(body) < length:
            body += peer.recv(65536)
        return int(head.split()[1]), json.loads(body)

    def one_more(self, server, known):
        """Whether a request has come beside those that ask for it; `known`: of them all, when they were counted last."""
        asked = itertools.count(1)
        return lambda: server.metrics()["frt_http_requests_total"] > known + next(asked)

    def nothing_is_left(self, server):
        def rest():
            metrics = server.metrics()
            left = [str(path) for path in self.capsules.glob(".import-*")]
            return left, metrics["frt_http_buffer_bytes"], metrics["frt_http_open_connections"]
        self.until(lambda: rest() == ([], 0, 1))
        self.assertEqual(server.request("GET", "/v1/capsules/second").status, 404)


class Uploads(ImportTest):
    def test_above_max_body(self):
        """a capsule longer than max_body is imported: whole, in chunks, and behind 100 Continue; other bodies are not"""
        server = self.import_server()
        file = self.exported(server)
        self.assertEqual(server.request("POST", "/tokenize", {"content": "x" * 2 * BODY}).status, 413)
        self.assertEqual(server.request("POST", "/v1/capsules/second/import", file).status, 200)
        self.assertEqual(server.request("GET", "/v1/capsules/second/export").body, file)
        peer = self.upload(server, name="chunked")
        for start in range(0, len(file), 5000):
            part = file[start:start + 5000]
            peer.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        peer.sendall(b"0\r\n\r\n")
        self.assertEqual(self.answer(peer)[0], 200)
        peer = self.upload(server, len(file), "waited", "Expect: 100-continue\r\n")
        self.assertIn(b"100 Continue", peer.recv(1000))
        peer.sendall(file)
        self.assertEqual(self.answer(peer)[0], 200)
        # The connection goes on with the next request.
        peer.sendall(b"GET /v1/capsules/waited HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.assertEqual(self.answer(peer)[1]["id"], "waited")
        self.assertEqual(server.request("POST", "/v1/capsules/second/import", file).status, 409)
        restored = server.request("POST", "/v1/sessions/other/restore", {"capsule": "chunked"})
        self.assertEqual(restored.status, 200, restored.body)
        self.assertEqual(list(self.capsules.glob(".import-*")), [])

    def test_memory(self):
        """an upload of any length costs little memory, and the server answers meanwhile; it needs no folder before it"""
        # Freed memory that address sanitizer keeps would count as the server's.
        asan = os.environ.get("ASAN_OPTIONS", "")
        self.addCleanup(os.environ.__setitem__, "ASAN_OPTIONS", asan)
        os.environ["ASAN_OPTIONS"] = asan + ":quarantine_size_mb=8"
        server = self.import_server('max_import = "256M"')
        self.assertFalse(self.capsules.exists())
        self.assertEqual(server.request("POST", "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 1}).status, 200)
        before = self.resident(server)
        peer, part, slowest = self.upload(server, 96 << 20), bytes(1 << 20), 0.0
        for _ in range(96):
            peer.sendall(part)
            start = time.monotonic()
            self.assertEqual(server.request("GET", "/health").status, 200)
            slowest = max(slowest, time.monotonic() - start)
        self.assertEqual(self.answer(peer)[0], 400)
        self.assertLess(self.resident(server) - before, 24)
        self.assertLess(slowest, 5)
        peer.close()    # or it stays as long as an idle connection may
        self.nothing_is_left(server)

    def resident(self, server):
        """MB."""
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024

    def test_cut(self):
        """an upload whose client leaves, or that is cut by the end of the server, leaves nothing"""
        server = self.import_server()
        file = self.exported(server)
        for length, sent in ((len(file), b""), (len(file), file[:1]), (len(file), file[:BODY]), (len(file), file[:-1]),
                             (None, b"5\r\nabc")):
            known = server.metrics()["frt_http_requests_total"]
            peer = self.upload(server, length)
            peer.sendall(sent)
            if sent:
                self.until(lambda: list(self.capsules.glob(".import-*")))
            else:       # its file is made with its first byte
                self.until(self.one_more(server, known))
            peer.close()
            self.nothing_is_left(server)
        peer = self.upload(server, len(file))
        peer.sendall(file[:-1])
        self.until(lambda: list(self.capsules.glob(".import-*")))
        server.terminate()
        self.assertEqual(server.wait(), 0)
        self.assertEqual(list(self.capsules.glob(".import-*")), [])

    def test_wrong(self):
        """what cannot be an import is refused, as soon as it shows"""
        server = self.import_server('max_import = "1M"')
        file = self.exported(server)
        for wrong in (b"", b"x", bytes(3 * BODY), file[:-1], file + b"x", file[:BODY] + b"!" + file[BODY + 1:]):
            self.assertEqual(server.request("POST", "/v1/capsules/second/import", wrong).status, 400, len(wrong))
            self.nothing_is_left(server)
        self.assertEqual(self.answer(self.upload(server, (1 << 20) + 1))[0], 413)
        peer = self.upload(server)
        for _ in range(5):
            peer.sendall(b"%x\r\n%b\r\n" % (1 << 18, bytes(1 << 18)))
        self.assertEqual(self.answer(peer)[0], 413)
        # Said before the body is over.
        for name, status in (("auto-1", 400), ("first", 409), ("a..b", 400)):
            peer = self.upload(server, 1 << 20, name)
            peer.sendall(bytes(BODY))
            status_of, error = self.answer(peer)
            self.assertEqual((status_of, "error" in error), (status, True))
        self.nothing_is_left(server)

    def test_slow(self):
        """an upload may take long as long as it goes on, and ends when it does not"""
        server = self.import_server("body_timeout_ms = 5000")
        file = self.exported(server)
        start, peer = time.monotonic(), self.upload(server, len(file))
        for at in range(0, 4 * BODY, BODY):
            peer.sendall(file[at:at + BODY])
            time.sleep(2)
        peer.sendall(file[4 * BODY:])
        self.assertGreater(time.monotonic() - start, 5)
        self.assertEqual(self.answer(peer)[0], 200)
        peer.close()
        server.request("DELETE", "/v1/capsules/second")
        peer = self.upload(server, len(file))
        peer.sendall(file[:BODY + 1])
        self.assertEqual(self.answer(peer)[0], 408)
        peer.close()
        self.assertEqual(server.metrics()['frt_http_refusals_total{reason="body_timeout"}'], 1)
        self.nothing_is_left(server)

    def test_full_disk(self):
        """where the disk takes no more, the client is told, the operator is told why, and the rest goes on"""
        server = self.import_server(limits={resource.RLIMIT_FSIZE: 8 << 20})
        file = self.exported(server)
        peer = self.upload(server, 64 << 20)
        try:
            for _ in range(64):
                peer.sendall(bytes(1 << 20))
        except OSError:
            pass    # it was refused before
        status, error = self.answer(peer)
        self.assertEqual(status, 503)
        self.assertIn("no room", error["error"]["message"])
        self.assertNotIn(str(self.folder), json.dumps(error))
        self.until(lambda: "File too large" in "".join(server.said))
        self.nothing_is_left(server)
        self.assertEqual(server.request("POST", "/v1/capsules/second/import", file).status, 200)

    def test_places(self):
        """four uploads go on at a time, two of a key; the next one is told to come again"""
        for http, most in (("", 4), (self.key_file(), 2)):
            server = self.import_server(http)
            file = self.exported(server)
            peers = [self.upload(server, len(file), f"at-once-{number}") for number in range(most)]
            for peer in peers:
                peer.sendall(file[:-1])
            self.until(lambda: len(list(self.capsules.glob(".import-*"))) == len(peers))
            self.assertEqual(self.answer(self.upload(server, len(file)))[0], 429)
            for peer in peers:
                peer.sendall(file[-1:])
                self.assertEqual(self.answer(peer)[0], 200)
            peer = self.upload(server, len(file))
            peer.sendall(file)
            self.assertEqual(self.answer(peer)[0], 200)
            server.terminate()
            server.wait()
            for path in self.capsules.iterdir():
                path.unlink()


if __name__ == "__main__":
    unittest.main()
