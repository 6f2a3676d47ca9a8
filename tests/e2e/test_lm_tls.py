# SPDX-License-Identifier: Apache-2.0
"""frt-host serve by TLS: what clients get, what hostile ones do not, and files that are wrong."""
import json
import signal
import socket
import ssl
import struct
import subprocess
import time
import unittest

from lm_serving import LmServer
from support import MANIFEST, OK, TIMEOUT
from test_lm_serve import LmServeTest
from tls_files import certificate, client, manifest_lines, openssl


def refusals(server, reason):
    return server.metrics()[f'frt_http_refusals_total{{reason="{reason}"}}']


class TlsTest(LmServeTest):
    def setUp(self):
        super().setUp()
        self.certificate, self.secret = certificate(self.folder, "first")
        self.lines = manifest_lines(self.certificate, self.secret)

    def secure(self, http=""):
        return self.server(f"{self.lines}\n{http}", tls=client(self.certificate))

    def shake(self, server, context=None):
        """A connection whose handshake is over."""
        peer = (context or server.tls).wrap_socket(server.raw(), server_hostname="127.0.0.1", suppress_ragged_eofs=False)
        self.addCleanup(peer.close)
        return peer

    def counted(self, server, reason, count):
        self.until(lambda: refusals(server, reason) >= count)
        self.assertEqual(refusals(server, reason), count)


class Answers(TlsTest):
    def test_answers(self):
        """answers, streams, bodies of every size and connections that are kept: as without TLS"""
        server = self.secure()
        self.assertIn("loading; https://127.0.0.1:", "".join(server.said))
        self.assertIn(f"on https://127.0.0.1:{server.port}", "".join(server.said))
        plain = server.chat("Hello", max_tokens=40)
        self.assertEqual(plain.status, 200)
        streamed = server.chat("Hello", max_tokens=40, stream=True)
        text = "".join(event["choices"][0]["delta"].get("content") or "" for event in streamed.events()
                       if event != "[DONE]" and event["choices"])
        self.assertEqual(text, plain.json()["choices"][0]["message"]["content"])
        connection = server.connection()
        for size in (0, 1, 16383, 16384, 16385, 300000):
            connection.request("POST", "/tokenize", json.dumps({"content": "x", "padding": "y" * size}))
            answer = connection.getresponse()
            self.assertEqual((answer.status, json.loads(answer.read())["count"]), (200, 1))
        connection.close()
        metrics = server.metrics()
        self.assertGreaterEqual(metrics["frt_http_tls_handshakes_total"], 4)
        self.assertAlmostEqual(metrics["frt_http_tls_certificate_expiry_seconds"], time.time() + 2 * 86400, delta=3600)
        server.terminate()
        self.assertEqual(server.wait(), OK)

    def test_streams(self):
        """a stream comes as it is made, its client's leaving is noticed, and its end by force is no whole answer"""
        server = self.scripted(self.lines, tls=client(self.certificate))
        connection, answer = self.endless(server)
        answer.close()      # it holds the socket, too
        connection.close()
        self.until(lambda: server.metrics()["frt_http_disconnects_total"] == 1)
        self.until(lambda: server.metrics()["frt_http_streams"] == 0)
        peer = self.shake(server)
        body = b'{"messages": [{"role": "user", "content": "endless"}], "stream": true}'
        peer.sendall(b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.assertIn(b"200 OK", peer.recv(1000))
        server.kill()
        with self.assertRaises((ssl.SSLEOFError, ConnectionResetError)):
            while peer.recv(65536):
                pass

    def test_slow_reader(self):
        """a client that does not read its stream is cut off beyond stream_buffer, and others are not"""
        server = self.scripted(f'{self.lines}\nstream_buffer = "64k"\nwrite_timeout_ms = 3000', slots=2,
                               tls=client(self.certificate))
        peer = self.shake(server)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = json.dumps({"messages": [{"role": "user", "content": "endless"}], "stream": True, "logprobs": True,
                           "top_logprobs": 0}).encode()
        peer.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        self.until(lambda: refusals(server, "slow_client") + refusals(server, "write_timeout") == 1)
        self.assertEqual(server.chat("hello", max_tokens=40).json()["choices"][0]["message"]["content"], "echo: hello")

    def test_ends(self):
        """a connection ends as TLS wants it: after an answer, and when it was idle for too long"""
        server = self.secure("idle_timeout_ms = 300")
        for head in (b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            peer, answer = self.shake(server), b""
            peer.sendall(head)
            while part := peer.recv(1000):      # without the end of TLS this raises SSLEOFError
                answer += part
            self.assertIn(b"200 OK", answer)

    def test_origins(self):
        """the server's own pages are those of https"""
        server = self.secure()
        host = f"127.0.0.1:{server.port}"
        for origin, status in ((f"https://{host}", 200), (f"http://{host}", 403), ("https://evil.example", 403)):
            self.assertEqual(server.request("GET", "/v1/models", headers={"Origin": origin}).status, status, origin)

    def test_versions(self):
        """TLS 1.2 and 1.3, with forward secrecy; nothing older, and no protocol but HTTP/1.1"""
        server = self.secure()
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = client(self.certificate)
            context.minimum_version = context.maximum_version = version
            peer = self.shake(server, context)
            self.assertEqual(peer.selected_alpn_protocol(), "http/1.1")
            self.assertFalse(peer.session_reused)
            if version == ssl.TLSVersion.TLSv1_2:
                self.assertTrue(peer.cipher()[0].startswith("ECDHE-"), peer.cipher())
        for change in (lambda c: c.set_ciphers("AES128-SHA:@SECLEVEL=0") or setattr(c, "maximum_version", ssl.TLSVersion.TLSv1_2),
                       lambda c: (setattr(c, "maximum_version", ssl.TLSVersion.TLSv1_2), c.set_ciphers("AES128-SHA256:@SECLEVEL=0")),
                       lambda c: c.set_alpn_protocols(["h2"])):
            context = client(self.certificate)
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            change(context)
            with self.assertRaises(ssl.SSLError):
                self.shake(server, context)
        self.counted(server, "tls_handshake", 3)
        silent = client(self.certificate)       # says nothing of protocols
        silent.set_alpn_protocols([])
        self.shake(server, silent)


class Hostile(TlsTest):
    def test_plain_http(self):
        """HTTP without TLS gets no byte, and a clean end"""
        server = self.secure()
        peer = server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 100000)
        self.assertEqual(peer.recv(1000), b"")
        self.counted(server, "plain_http", 1)

    def test_garbage(self):
        """what is no handshake, or one that is cut or changed, ends that connection alone"""
        server = self.secure("head_timeout_ms = 2000")
        hello = self.hello()
        for data in (b"\x00" * 500, b"SSH-2.0-x\r\n", b"\x16\x03\x01\xff\xff" + b"x" * 70000, hello[:50] + b"\xff" * 200):
            peer = server.raw(data)
            while peer.recv(1000):      # an alert, then the end
                pass
        self.assertGreaterEqual(refusals(server, "tls_handshake"), 3)
        before = refusals(server, "tls_handshake_timeout")
        peers = [server.raw(data) for data in (b"", hello[:1], hello[:100], hello)]
        for peer in peers:
            while peer.recv(65536):
                pass
        self.assertEqual(refusals(server, "tls_handshake_timeout"), before + 4)
        reset = server.raw(hello)
        reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()
        self.assertEqual(server.chat("Hello").status, 200)

    def hello(self):
        """The first message of a handshake."""
        out = ssl.MemoryBIO()
        session = client(self.certificate).wrap_bio(ssl.MemoryBIO(), out, server_hostname="127.0.0.1")
        self.assertRaises(ssl.SSLWantReadError, session.do_handshake)
        return out.read()

    def test_slow_handshake(self):
        """a handshake byte by byte is a handshake, if it is over in time"""
        server = self.secure()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = client(self.certificate).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        peer = server.raw()
        done = False
        while not done:
            try:
                session.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            for byte in outgoing.read():
                peer.sendall(bytes([byte]))
            if not done:
                incoming.write(peer.recv(65536))
        session.write(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        peer.sendall(outgoing.read())
        incoming.write(peer.recv(65536))
        self.assertIn(b"200 OK", session.read(1000))

    def test_half_open(self):
        """200 half-open handshakes are displaced by those who go on, and none is left"""
        server = self.secure("max_connections = 64\nhead_timeout_ms = 60000")
        hello = self.hello()
        peers = [server.raw(hello[:number % len(hello)]) for number in range(200)]
        for _ in range(20):
            self.assertEqual(server.request("GET", "/health").status, 200)
        self.assertGreaterEqual(refusals(server, "displaced"), 200 - 64)
        for peer in peers:
            peer.close()
        self.until(lambda: server.metrics()["frt_http_open_connections"] == 1)

    def test_renegotiation(self):
        """who begins a second handshake on a connection is cut off"""
        server = self.secure()
        before = refusals(server, "tls_protocol")
        program = subprocess.Popen(
            ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{server.port}"], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(program.kill)
        self.until(lambda: server.metrics()["frt_http_open_connections"] == 2)
        time.sleep(0.5)
        program.stdin.write(b"R\n")
        program.stdin.flush()
        self.assertNotEqual(program.wait(TIMEOUT), 0)
        program.stdin.close()
        self.counted(server, "tls_protocol", before + 1)

    def test_spoiled_record(self):
        """a record that was changed on its way ends the connection"""
        server = self.secure()
        peer = self.shake(server)
        raw = socket.socket(fileno=socket.dup(peer.fileno()))
        self.addCleanup(raw.close)
        raw.settimeout(TIMEOUT)
        raw.sendall(b"\x17\x03\x03\x00\x30" + b"x" * 48)
        while raw.recv(1000):
            pass
        self.counted(server, "tls_protocol", 1)


class Files(TlsTest):
    def refused(self, lines, *words):
        result = self.check(MANIFEST, "serve", self.http_manifest(lines), "--listen", "127.0.0.1:0")
        for word in words:
            self.assertIn(str(word), result.stderr)

    def test_wrong_files(self):
        """files that cannot serve are refused at the start, with their names and what to do"""
        one, key = self.certificate, self.secret
        other, other_key = certificate(self.folder, "other")
        old, old_key = certificate(self.folder, "old", dates=("20200101000000Z", "20200201000000Z"))
        early, early_key = certificate(self.folder, "early", dates=("20980101000000Z", "20990101000000Z"))
        weak, weak_key = certificate(self.folder, "weak", key=("rsa:1024",))
        self.refused(f'tls_certificate = "{one}"', "tls_key", "name both")
        self.refused(f'tls_key = "{key}"', "tls_certificate", "name both")
        self.refused(manifest_lines(one, other_key), other_key, one, "made together")
        self.refused(manifest_lines(old, old_key), old, "expired on 2020-02-01", "renew")
        self.refused(manifest_lines(early, early_key), early, "valid from 2098-01-01")
        self.refused(manifest_lines(weak, weak_key), weak, "2048 bits")
        self.refused(manifest_lines(self.folder / "none", key), self.folder / "none")
        self.refused(manifest_lines(one, self.folder / "none"), self.folder / "none")
        self.refused(manifest_lines(key, key), key, "holds no certificate")
        both = self.folder / "both.pem"
        both.write_text(other.read_text() + one.read_text(), encoding="utf-8")
        self.refused(manifest_lines(both, key), both, "certificate 2", "first")
        both.write_text(one.read_text() + other.read_text()[:300], encoding="utf-8")
        self.refused(manifest_lines(both, key), both, "damaged at certificate 2")
        both.write_text(one.read_text() + old.read_text(), encoding="utf-8")
        self.refused(manifest_lines(both, key), both, "expired")
        locked = self.folder / "locked.key"
        openssl("pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", locked)
        locked.chmod(0o600)
        self.refused(manifest_lines(one, locked), locked, "encrypted", "openssl pkey")
        key.chmod(0o640)
        self.refused(self.lines, key, "chmod 600")

    def test_hangup(self):
        """SIGHUP: a renewed certificate is taken over, for connections from then on; a wrong one changes nothing"""
        server = self.secure(self.key_file())
        server.key = "alice-secret-0123456789"
        kept = server.connection()

        def status():
            kept.request("GET", "/health")
            answer = kept.getresponse()
            answer.read()
            return answer.status
        self.assertEqual(status(), 200)

        def hang_up(said):
            before = "".join(server.said).count(said)
            server.process.send_signal(signal.SIGHUP)
            self.until(lambda: "".join(server.said).count(said) > before)
        old = client(self.certificate)
        new, new_key = certificate(self.folder, "second")
        new.replace(self.certificate)       # the key is still the old one
        (self.folder / "keys").write_text("carol carol-secret-0123456789\n", encoding="utf-8")
        hang_up("nothing is changed on SIGHUP")
        self.assertIn("is not the key of", "".join(server.said))
        self.assertEqual(server.request("GET", "/v1/models").status, 200)
        new_key.replace(self.secret)
        hang_up("were read again")
        self.assertIn("TLS as CN = second", "".join(server.said))
        self.assertRaises(ssl.SSLCertVerificationError, server.request, "GET", "/health")
        self.assertEqual(status(), 200)     # the connection from before goes on
        server.tls = client(self.certificate)
        self.assertEqual(server.request("GET", "/v1/models").status, 401)
        server.key = "carol-secret-0123456789"
        self.assertEqual(server.request("GET", "/v1/models").status, 200)
        manifest = self.folder / "manifest.toml"
        manifest.write_text(manifest.read_text(encoding="utf-8").replace(self.lines, ""), encoding="utf-8")
        hang_up("nothing is changed on SIGHUP")
        self.assertRaises(ssl.SSLCertVerificationError, self.shake, server, old)


class Launch(TlsTest):
    def test_launch(self):
        """an agent is started against https, once its server is believed"""
        server = self.secure()
        for agent in ("claude", "codex"):
            program = self.folder / agent
            program.write_text("#!/bin/sh\nenv\n", encoding="utf-8")
            program.chmod(0o755)
        environment = {"PATH": f"{self.folder}:/usr/bin:/bin"}
        for host in ("127.0.0.1", "localhost"):
            url = f"https://{host}:{server.port}"
            stranger = self.frt("launch", "claude", "--url", url, env=environment)
            self.assertNotEqual(stranger.returncode, OK)
            self.assertIn("--ca-file", stranger.stderr)
            claude = self.check(OK, "launch", "claude", "--url", url, "--ca-file", self.certificate, env=environment)
            self.assertIn(f"ANTHROPIC_BASE_URL={url}\n", claude.stdout)
            self.assertIn(f"NODE_EXTRA_CA_CERTS={self.certificate}\n", claude.stdout)
            codex = self.check(OK, "launch", "codex", "--url", url, "--ca-file", self.certificate, env=environment)
            self.assertIn(f"SSL_CERT_FILE={self.certificate}\n", codex.stdout)
        plain = self.frt("launch", "claude", "--url", f"http://127.0.0.1:{server.port}", env=environment)
        self.assertNotEqual(plain.returncode, OK)
        nobody = LmServer(self, self.http_manifest())
        tls = self.frt("launch", "claude", "--url", f"https://127.0.0.1:{nobody.port}", "--ca-file", self.certificate, env=environment)
        self.assertNotEqual(tls.returncode, OK)
        name = certificate(self.folder, "other")[0]
        wrong = self.frt("launch", "claude", "--url", f"https://127.0.0.1:{server.port}", "--ca-file", name, env=environment)
        self.assertIn("is not trusted", wrong.stderr)


if __name__ == "__main__":
    unittest.main()
