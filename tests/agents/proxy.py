#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stands between an agent and a server: writes down what the agent asks, and makes faults.

    proxy.py --upstream http://127.0.0.1:8080 --listen 8081 --record FILE --agent NAME \\
             [--fault 2:503 --fault 4:cut --fault 6:stall]

A fault strikes the n-th request (from 1): an answer 503 with Retry-After, a connection that closes behind the
headers, or one that says nothing for five seconds and closes. FILE becomes a fixture of tests/fixtures/agents:
what an agent says at length is cut, since it is its maker's text and only the shape counts; keys, ids of
machines and paths are replaced."""
import argparse
import contextlib
import http.client
import http.server
import json
import pathlib
import re
import threading
import time
import urllib.parse

LONGEST = 160  # characters of a text in a record
LONGEST_DESCRIPTION = 40  # of a tool or a parameter
MOST_REQUESTS = 16
MOST_BODY = 8 << 20  # bytes
HEADERS = ("content-type", "accept", "anthropic-version", "anthropic-beta", "session-id", "thread-id", "x-session-id",
           "x-session-affinity", "x-claude-code-session-id", "originator", "user-agent")
PATH = re.compile(r"(?<![\w:/])/(?:root|home|tmp|work|var|opt)/[^\s\"'<>]*")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HEX = re.compile(r"\b[0-9a-f]{32,}\b")


def clean_text(text, longest=LONGEST):
    text = PATH.sub("/home/user/task", text)
    text = UUID.sub("00000000-0000-4000-8000-000000000000", text)
    text = HEX.sub("0" * 32, text)
    return text if len(text) <= longest else f"{text[:longest]} ... ({len(text)} characters)"


def clean(value):
    """The same shape, with short texts that name nobody."""
    if isinstance(value, str):
        try:
            inner = json.loads(value) if value.startswith("{") else None
        except ValueError:
            inner = None
        return json.dumps(clean(inner)) if isinstance(inner, dict) else clean_text(value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {key: clean_text(item, LONGEST_DESCRIPTION) if key == "description" and isinstance(item, str)
                else clean(item) for key, item in value.items()}
    return value


class Recorder:
    def __init__(self, file, agent):
        self.file, self.agent, self.requests, self.lock = file, agent, [], threading.Lock()
        self.count = 0

    def number(self):
        with self.lock:
            self.count += 1
            return self.count

    def add(self, path, headers, body):
        with self.lock:
            if not self.file or len(self.requests) >= MOST_REQUESTS:
                return
            kept = {name: clean_text(headers[name]) for name in HEADERS if headers[name]}
            self.requests.append({"path": path, "headers": kept, "body": clean(body)})
            text = json.dumps({"agent": self.agent, "requests": self.requests}, indent=1, ensure_ascii=False)
            self.file.write_text(text + "\n")


def handler(upstream, recorder, faults):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def forward(self):
            size = int(self.headers["content-length"] or 0)
            if size > MOST_BODY:
                self.send_error(413)
                return
            body = self.rfile.read(size)
            if self.command == "POST":
                if self.strike(faults.get(recorder.number())):
                    return
                recorder.add(self.path, self.headers, json.loads(body))
            with contextlib.closing(http.client.HTTPConnection(upstream.hostname, upstream.port, timeout=300)) as server:
                self.relay(server, body)

        def relay(self, server, body):
            headers = {name: value for name, value in self.headers.items()
                       if name.lower() not in ("host", "connection", "accept-encoding")}
            server.request(self.command, self.path, body or None, headers)
            with server.getresponse() as reply:
                self.send_response(reply.status)
                for name, value in reply.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                        self.send_header(name, value)
                self.send_header("connection", "close")
                self.end_headers()
                while piece := reply.read1(65536):
                    self.wfile.write(piece)
                    self.wfile.flush()
            self.close_connection = True

        def strike(self, fault):
            if fault is None:
                return False
            self.close_connection = True
            if fault == "503":
                self.send_response(503)
                self.send_header("retry-after", "1")
                self.send_header("content-length", "0")
                self.end_headers()
                return True
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.flush()
            if fault == "stall":
                time.sleep(5)
            return True

        do_GET = do_POST = do_HEAD = forward

    return Handler


def serve(listen, upstream, record=None, agent="", faults=None):
    """The server, already running on a thread; `listen` 0: any free port."""
    recorder = Recorder(pathlib.Path(record) if record else None, agent)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", listen), handler(urllib.parse.urlsplit(upstream), recorder, faults or {}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", required=True)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--record")
    parser.add_argument("--agent", default="")
    parser.add_argument("--fault", action="append", default=[], metavar="N:503|cut|stall")
    options = parser.parse_args()
    faults = {}
    for fault in options.fault:
        number, kind = fault.split(":")
        if kind not in ("503", "cut", "stall"):
            parser.error(f"--fault {fault}: 503, cut or stall")
        faults[int(number)] = kind
    serve(options.listen, options.upstream, options.record, options.agent, faults)
    threading.Event().wait()


if __name__ == "__main__":
    main()
