# SPDX-License-Identifier: Apache-2.0
"""frt-host serve with language models as a process of a test, and a client of its HTTP."""
import functools
import http.client
import json
import re
import resource
import signal
import socket
import subprocess
import threading

from support import HOST, SOURCE, TIMEOUT, clean_environment

try:
    import jsonschema
except ImportError:
    jsonschema = None


def schema_errors(name, value):
    """What of a reply is not as hosts/http/api/openapi.json says; nothing where python3-jsonschema is missing."""
    return [error.message[:300] for error in validator(name).iter_errors(value)] if jsonschema else []


@functools.lru_cache
def validator(name):
    document = json.loads((SOURCE / "hosts/http/api/openapi.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": document["components"]})


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def events(self):
        """The data of every server-sent event; JSON where it is."""
        found = []
        for record in self.body.decode().split("\n\n"):
            data = [line[6:] for line in record.split("\n") if line.startswith("data: ")]
            if data:
                found.append(data[0] if data[0] == "[DONE]" else json.loads(data[0]))
        return found


class LmServer:
    """A server of `manifest` on a port of its own; ready when constructed, unless `wait` is False."""

    def __init__(self, test, manifest, wait=True, plugins=None, listen="127.0.0.1:0", tls=None, limits=None,
                 environment=None):
        """`listen`: over what the manifest says; None: as that says. `tls`: an ssl.SSLContext by which to speak
        to it; `limits`: resource -> value."""
        self.test, self.key, self.tls = test, None, tls

        def limit():
            for which, value in limits.items():
                resource.setrlimit(which, (value, value))
        self.process = subprocess.Popen(
            [str(HOST), *(["--plugin-dir", plugins] if plugins else []), "serve", str(manifest),
             *(["--listen", listen] if listen else [])],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=test.folder,
            env={**clean_environment(), **(environment or {})}, preexec_fn=limit if limits else None)
        test.addCleanup(self.kill)
        self.said = []
        self.ready = threading.Event()
        self.port = None
        for line in self.process.stderr:
            self.said.append(line)
            found = re.search(r"https?://[^ ]*:(\d+) answers 503", line)
            if found:
                self.port = int(found.group(1))
                break
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        if wait:
            test.assertTrue(self.ready.wait(TIMEOUT), "".join(self.said))
            test.assertIsNone(self.process.poll(), "".join(self.said))

    def _read(self):
        for line in self.process.stderr:
            self.said.append(line)
            if line.startswith("serving "):
                self.ready.set()
        self.ready.set()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()
        for word in ("AddressSanitizer", "LeakSanitizer", "runtime error:", "terminate called"):
            self.test.assertNotIn(word, "".join(self.said))

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        return self.process.wait(TIMEOUT)

    # ---- client ----
    def connection(self):
        if self.tls:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT, context=self.tls)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)

    def request(self, method, path, body=None, headers=None):
        """The whole answer."""
        connection = self.connection()
        try:
            connection.request(method, path, self._encode(body), self._headers(headers))
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def open(self, path, body, headers=None):
        """A connection with an answer that has begun, to be read or left."""
        connection = self.connection()
        self.test.addCleanup(connection.close)
        connection.request("POST", path, self._encode(body), self._headers(headers))
        return connection, connection.getresponse()

    def raw(self, data=b""):
        peer = socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT)
        self.test.addCleanup(peer.close)
        peer.sendall(data)
        return peer

    @staticmethod
    def _encode(body):
        return body if body is None or isinstance(body, bytes) else json.dumps(body).encode()

    def _headers(self, headers):
        key = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return {"Content-Type": "application/json", **key, **(headers or {})}

    def chat(self, text, **fields):
        body = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 8,
                **fields}
        return self.request("POST", "/v1/chat/completions", body)

    def metrics(self):
        """name or name{labels} -> value."""
        text = self.request("GET", "/metrics").body.decode()
        return {name: float(value) for name, value in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.M)}
