# SPDX-License-Identifier: Apache-2.0
"""Language models behind HTTP from Python, with the demo model."""
import gc
import http.client
import json
import os
import pathlib
import socket
import tempfile
import threading
import time
import unittest

import frt

SOURCE = pathlib.Path(os.environ["FRT_SOURCE"])
DEMO = SOURCE / "hosts/manifests/demo.toml"
PROMPT = "Once upon a time, there was a little"


def manifest(more=""):
    return ('schema = 1\n[device.cpu0]\nbackend = "frt.cpu"\n[model.demo]\nplugin = "frt.qwen36"\n'
            f'device = "cpu0"\ncheckpoint = "{SOURCE}/tests/fixtures/demo"\n{more}')


def connect(server):
    return http.client.HTTPConnection(*server.address, timeout=60)


def ask(server, path, body=None, headers=None):
    """Status and body of one request."""
    connection = connect(server)
    connection.request("GET" if body is None else "POST", path, body and json.dumps(body),
                       {"Content-Type": "application/json", **(headers or {})})
    answer = connection.getresponse()
    said = answer.status, json.loads(answer.read())
    connection.close()
    return said


def completion(**more):
    return {"model": "demo", "prompt": PROMPT, "max_tokens": 16, "temperature": 0, **more}


class Stream:
    """The events of a streamed answer that does not end by itself."""

    def __init__(self, server):
        self.connection = connect(server)
        self.connection.request("POST", "/v1/completions", json.dumps(
            completion(max_tokens=100000, ignore_eos=True, stream=True)), {"Content-Type": "application/json"})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()

    def piece(self):
        while line := self.answer.readline():
            if line.startswith(b"data: "):
                return line[6:].strip()
        return None

    def close(self):
        self.answer.close()
        self.connection.close()


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with frt.load(DEMO) as runtime, runtime["demo"] as model:
            cls.greedy = model.generate(PROMPT, max_tokens=16, greedy=True)
            cls.seeded = model.generate(PROMPT, max_tokens=16, temperature=1.0, seed=7)
            cls.chat = model.chat([{"role": "user", "content": "What is 2 + 2?"}], greedy=True,
                                  chat_options={"enable_thinking": False}).content

    def test_answers_over_http_are_those_of_generate(self):
        with frt.load(DEMO) as runtime, runtime.serve(listen="127.0.0.1:0") as server:
            host, port = server.address
            self.assertEqual((host, server.url, server.models), ("127.0.0.1", f"http://127.0.0.1:{port}", ["demo"]))
            self.assertGreater(port, 0)
            self.assertFalse(server.device_lost)
            self.assertFalse(server.wait(0.01))
            status, said = ask(server, "/v1/completions", completion())
            self.assertEqual((status, said["choices"][0]["text"]), (200, self.greedy))
            status, said = ask(server, "/v1/completions", completion(temperature=1.0, seed=7))
            self.assertEqual((status, said["choices"][0]["text"]), (200, self.seeded))
            status, said = ask(server, "/v1/chat/completions", {
                "model": "demo", "messages": [{"role": "user", "content": "What is 2 + 2?"}], "temperature": 0,
                "chat_template_kwargs": {"enable_thinking": False}})
            self.assertEqual((status, said["choices"][0]["message"]["content"]), (200, self.chat))
            self.assertEqual(ask(server, "/v1/about")[1]["program"], "libfrt")

    def test_a_streamed_answer_is_the_whole_one(self):
        with frt.serve(DEMO, listen="127.0.0.1:0") as server:
            connection = connect(server)
            connection.request("POST", "/v1/completions", json.dumps(completion(stream=True)),
                               {"Content-Type": "application/json"})
            events = [line[6:] for line in connection.getresponse().read().decode().splitlines()
                      if line.startswith("data: ")]
            connection.close()
        self.assertEqual(events[-1], "[DONE]")
        pieces = [choice["text"] for event in events[:-1] for choice in json.loads(event)["choices"]]
        self.assertEqual("".join(pieces), self.greedy)
        self.assertGreater(len(pieces), 4)

    def test_closing_ends_a_stream_with_an_error_that_says_so(self):
        server = frt.serve(DEMO, listen="127.0.0.1:0", drain=0)
        stream = Stream(server)
        self.assertIn("choices", json.loads(stream.piece()))    # it is being written
        begun = time.monotonic()
        closing = threading.Thread(target=server.close)
        closing.start()
        self.assertTrue(server.wait(30))
        closing.join()
        self.assertLess(time.monotonic() - begun, 10)
        pieces = list(iter(stream.piece, None))
        stream.close()
        self.assertIn("error", json.loads([piece for piece in pieces if piece != b"[DONE]"][-1]))
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(server.address)
        server.close()  # twice is no error

    def test_who_closes_second_waits_for_the_first(self):
        server = frt.serve(DEMO, listen="127.0.0.1:0", drain=2)
        stream = Stream(server)
        self.assertIn("choices", json.loads(stream.piece()))
        closing = threading.Thread(target=server.close)
        closing.start()
        while not server.closed:
            time.sleep(0.01)
        server.close()
        closing.join(0.5)
        self.assertFalse(closing.is_alive())    # it was over before the second came back
        self.assertTrue(server.wait(0))
        stream.close()

    def test_a_lost_device_ends_the_wait(self):
        class Lost(frt.Server):
            device_lost = True

        with frt.serve(DEMO, listen="127.0.0.1:0") as server:
            server.__class__ = Lost
            for timeout in (0, 0.1, None):
                with self.assertRaises(frt.DeviceLost):
                    server.wait(timeout)

    def test_a_forked_process_closes_nothing_of_its_parent(self):
        server = frt.serve(DEMO, listen="127.0.0.1:0")
        child = os.fork()
        if child == 0:
            server.close()
            os._exit(5)
        for _ in range(600):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            time.sleep(0.1)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
            self.fail("the child hangs")
        self.assertEqual(os.waitstatus_to_exitcode(status), 5)
        self.assertEqual(ask(server, "/v1/completions", completion())[1]["choices"][0]["text"], self.greedy)
        server.close()

    def test_closing_lets_an_answer_end(self):
        server = frt.serve(DEMO, listen="127.0.0.1:0", drain=60)
        connection = connect(server)
        connection.request("POST", "/v1/completions", json.dumps(
            completion(max_tokens=200, ignore_eos=True, stream=True)), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        closing = threading.Thread(target=server.close)
        closing.start()
        events = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: ")]
        connection.close()
        closing.join()
        self.assertEqual(events[-1], "[DONE]")
        self.assertNotIn("error", "".join(events))

    def test_a_served_model_is_the_server_s_alone(self):
        with frt.load(DEMO) as runtime:
            with runtime["demo"] as model:
                with self.assertRaisesRegex(frt.Error, "driven by the language model 'demo'; close it first") as raised:
                    runtime.serve(listen="127.0.0.1:0")
                self.assertEqual(raised.exception.status, frt.Status.BAD_STATE)
                self.assertEqual(model.generate(PROMPT, max_tokens=16, greedy=True), self.greedy)
            with runtime.serve(listen="127.0.0.1:0") as server:
                for refused in (lambda: runtime["demo"], lambda: runtime.serve(listen="127.0.0.1:0")):
                    with self.assertRaisesRegex(frt.Error, "which a server serves; close the server first") as raised:
                        refused()
                    self.assertEqual(raised.exception.status, frt.Status.BAD_STATE)
                self.assertEqual(ask(server, "/v1/completions", completion())[1]["choices"][0]["text"], self.greedy)
            with runtime["demo"] as model:
                self.assertEqual(model.generate(PROMPT, max_tokens=16, greedy=True), self.greedy)
            with runtime.serve(listen="127.0.0.1:0") as server:
                self.assertEqual(ask(server, "/v1/completions", completion())[1]["choices"][0]["text"], self.greedy)

    def test_two_servers_of_one_runtime_serve_models_on_two_devices(self):
        second = ('[device.cpu1]\nbackend = "frt.cpu"\n[model.second]\nplugin = "frt.qwen36"\ndevice = "cpu1"\n'
                  f'checkpoint = "{SOURCE}/tests/fixtures/demo"\n')
        with frt.loads(manifest(second)) as runtime:
            with self.assertRaisesRegex(ValueError, "names no model"):
                runtime.serve(listen="127.0.0.1:0")
            with runtime.serve(models=["demo"], listen="127.0.0.1:0") as one, \
                    runtime.serve(models=["second"], listen="127.0.0.1:0") as other:
                self.assertNotEqual(one.address, other.address)
                for server, name in ((one, "demo"), (other, "second")):
                    self.assertEqual(server.models, [name])
                    self.assertEqual(ask(server, "/v1/completions", completion(model=name))[1]["choices"][0]["text"],
                                     self.greedy)

    def test_what_cannot_be_served_is_an_error_that_says_why(self):
        with frt.load(DEMO) as runtime:
            with socket.create_server(("127.0.0.1", 0)) as other:
                taken = f"127.0.0.1:{other.getsockname()[1]}"
                with self.assertRaisesRegex(frt.Error, f"cannot listen on {taken}: ") as raised:
                    runtime.serve(listen=taken)
                self.assertEqual(raised.exception.status, frt.Status.IO)
            with self.assertRaisesRegex(frt.InvalidArgument, "lets other machines in; name a key_file"):
                runtime.serve(listen="0.0.0.0:0")
            with self.assertRaisesRegex(frt.InvalidArgument, "'nonsense' is no address:port"):
                runtime.serve(listen="nonsense")
            with self.assertRaisesRegex(frt.NotFound, "no model 'none'; it has: demo"):
                runtime.serve(models=["none"], listen="127.0.0.1:0")
            for drain in (-1, 1e9, float("nan")):
                with self.assertRaises(frt.OutOfRange):
                    runtime.serve(listen="127.0.0.1:0", drain=drain)
            with runtime["demo"] as model:  # a server that did not begin holds nothing
                self.assertEqual(model.generate(PROMPT, max_tokens=16, greedy=True), self.greedy)
        with self.assertRaises(frt.InvalidArgument):
            runtime.serve(listen="127.0.0.1:0")    # the runtime is closed

    def test_the_manifest_says_address_keys_and_names(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text("alice sk-alice-0123456789\n")
            keys.chmod(0o600)
            http_table = (f'[host.http]\nmodel = "demo"\nlisten = "unix:{folder}/frt.sock"\nkey_file = "{keys}"\n'
                          'aliases = "tale=demo"\n')
            with frt.loads(manifest(http_table), sets=["host.http.listen=127.0.0.1:0"]) as runtime, \
                    runtime.serve() as server:
                self.assertEqual(ask(server, "/v1/completions", completion())[0], 401)
                status, said = ask(server, "/v1/completions", completion(model="tale"),
                                   {"Authorization": "Bearer sk-alice-0123456789"})
                self.assertEqual((status, said["choices"][0]["text"]), (200, self.greedy))
            with frt.loads(manifest(http_table)) as runtime, runtime.serve() as server:
                self.assertEqual((server.url, server.address), (f"unix:{folder}/frt.sock", f"{folder}/frt.sock"))
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(server.address)
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 200 "))
            keys.chmod(0o644)
            with frt.loads(manifest(http_table)) as runtime, self.assertRaises(frt.Error) as raised:
                runtime.serve()
            self.assertEqual(raised.exception.status, frt.Status.BAD_STATE)

    def test_a_server_that_nobody_holds_closes_by_itself(self):
        server = frt.serve(DEMO, listen="127.0.0.1:0")
        address = server.address
        self.assertEqual(ask(server, "/v1/models")[1]["data"][0]["id"], "demo")
        del server
        gc.collect()
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(address)


if __name__ == "__main__":
    unittest.main(verbosity=2)
