# SPDX-License-Identifier: Apache-2.0
"""frt-host serve for a policy: the real program, clients on real sockets, good ones and others."""
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest
import urllib.error
import urllib.request

from robot_client import Array, Client, Closed, get, pack, unpack
from serving import Server
from support import FAILED, FIXTURES, HOST, INTERRUPTED, MANIFEST, OK, USAGE, HostTest, clean_environment, python_with
from linear_policy_files import MANIFEST as POLICY, save_header, save_policy  # from tests/, after support

PLUGINS = os.environ["FRT_ROBOT_PLUGIN_DIR"]
HORIZON, WIDTH, STATE = 10, 2, 3


class Serving(HostTest):
    """`serve(...)` starts a server for the test; it is stopped at its end."""

    def setUp(self):
        super().setUp()
        chance = random.Random(1)
        self.weight = [chance.uniform(-1, 1) for _ in range(HORIZON * WIDTH * STATE)]
        self.prompts = [chance.uniform(-1, 1) for _ in range(5 * HORIZON * WIDTH)]
        save_policy(self.folder, HORIZON * WIDTH, self.weight, self.prompts)

    def policy_manifest(self, robot="", options=""):
        return self.manifest(f'{POLICY}{options}\n[host.robot]\nmodel = "p"\n{robot}')

    def serve(self, robot="", options="", limits=None):
        self.server = Server(self.policy_manifest(robot, options), self.folder, PLUGINS, limits)
        self.addCleanup(self.end_server)
        self.port = self.server.port
        return self.port

    def end_server(self):
        status = self.server.process.poll()
        text = self.server.kill()
        self.assertIn(status, (None, OK, INTERRUPTED), f"the server died: {text}")

    def stop(self):
        status, text = self.server.stop()
        self.assertEqual(status, 0, text)
        return text

    def observation(self, **more):
        return {"observation/image": Array("|u1", [28, 28, 3], bytes(28 * 28 * 3)),
                "observation/state": Array.floats([0.5, -0.25, 1.0]), "prompt": "do",
                "noise": Array.floats([0.0] * (HORIZON * WIDTH), [HORIZON, WIDTH]), **more}

    def expected(self, state, prompt):
        row = sum(prompt.encode()) % 5
        return [sum(self.weight[i * STATE + j] * state[j] for j in range(STATE))
                + self.prompts[row * HORIZON * WIDTH + i] for i in range(HORIZON * WIDTH)]


class Beside(Serving):
    def test_a_language_model_and_a_policy_are_served_by_one_program(self):
        manifest = self.policy_manifest('listen = "127.0.0.1:0"')
        manifest.write_text(manifest.read_text(encoding="utf-8") + """
[device.cpu1]
backend = "frt.cpu"
[device.cpu1.options]
threads = 1
[model.m]
plugin = "test.scripted"
device = "cpu1"
checkpoint = "synthetic:none"
[model.m.options]
script = '{"replies": [{"content": "hello "}]}'
[host.http]
model = "m"
listen = "127.0.0.1:0"
""", encoding="utf-8")
        process = subprocess.Popen(
            [str(HOST), "--plugin-dir", PLUGINS, "--plugin-dir", os.environ["FRT_SCRIPTED_PLUGIN_DIR"], "serve",
             str(manifest)], stderr=subprocess.PIPE, text=True, cwd=self.folder, env=clean_environment())
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = ""
        for line in process.stderr:
            said += line
            if "ws://" in line:
                break
        self.assertIn("ws://", said)
        http = int(re.search(r"http://127\.0\.0\.1:(\d+)", said).group(1))
        robot = int(re.search(r"ws://127\.0\.0\.1:(\d+)", said).group(1))
        listed = json.loads(get(http, "/v1/models")[1])["data"]
        self.assertEqual({each["id"]: each["state"] for each in listed}, {"m": "ready", "p": "ready"})
        # A robot's request must not wait for a trim of the allocator (hosts/cli/terminal/allocator.hpp).
        threads = [(task / "comm").read_text().strip() for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()]
        self.assertGreater(len(threads), 2)
        self.assertNotIn("frt-trim", threads)
        client = Client(robot)
        ask = urllib.request.Request(
            f"http://127.0.0.1:{http}/v1/chat/completions", headers={"Content-Type": "application/json"},
            data=json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}).encode())
        for _ in range(5):
            actions = client.infer(self.observation())["actions"].values()
            for found, wanted in zip(actions, self.expected([0.5, -0.25, 1.0], "do")):
                self.assertAlmostEqual(found, wanted, places=5)
            with urllib.request.urlopen(ask, timeout=30) as answer:
                self.assertIn("hello", json.load(answer)["choices"][0]["message"]["content"])
        status, metrics = get(http, "/v1/policies/p/metrics")
        self.assertEqual(status, 200)
        for line in ("frt_robot_clients 1", "frt_robot_replies_total 5", "frt_robot_deadline_miss_total 0",
                     "frt_robot_inferences_total 5", "frt_robot_inference_seconds_count 5"):
            self.assertIn(line + "\n", metrics)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            get(http, "/v1/policies/m/metrics")
        self.assertEqual(refused.exception.code, 404)
        refused.exception.close()
        client.close()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 0)


class Protocol(Serving):
    def test_observations_are_answered_with_actions_and_timings(self):
        port = self.serve()
        client = Client(port)
        self.assertEqual(client.metadata["action_horizon"], HORIZON)
        self.assertEqual(client.metadata["model"], "p")
        for turn, (state, prompt) in enumerate((([0.5, -0.25, 1.0], "do"), ([1.0, 2.0, 3.0], "something else"))):
            answer = client.infer(self.observation(**{"observation/state": Array.floats(state), "prompt": prompt}))
            self.assertEqual(list(answer), ["actions", "policy_timing", "server_timing"])
            self.assertEqual(answer["actions"].dtype, "<f8")
            self.assertEqual(answer["actions"].shape, [HORIZON, WIDTH])
            for found, wanted in zip(answer["actions"].values(), self.expected(state, prompt)):
                self.assertAlmostEqual(found, wanted, places=5)
            self.assertGreater(answer["policy_timing"]["infer_ms"], 0)
            self.assertEqual("prev_total_ms" in answer["server_timing"], turn == 1)
        self.assertEqual(get(port, "/healthz"), (200, "OK\n"))
        self.assertIn("frt_robot_replies_total 2", get(port, "/metrics")[1])
        client.close()
        text = self.stop()
        self.assertIn("2 requests, 2 replies, 0 errors, 0 missed deadlines", text)
        self.assertIn("captures since ready: 0", text)

    def test_an_empty_prompt_is_an_instruction_and_an_absent_one_is_the_default(self):
        client = Client(self.serve('default_prompt = "dance"'))
        for given, meant in (("do", "do"), ("", ""), (None, "dance"), ("do", "do"), ("", "")):
            observation = self.observation(prompt=given)
            if given is None:
                del observation["prompt"]
            with self.subTest(given):
                for found, wanted in zip(client.infer(observation)["actions"].values(),
                                         self.expected([0.5, -0.25, 1.0], meant)):
                    self.assertAlmostEqual(found, wanted, places=5)

    def test_equal_seeds_give_equal_noise_and_others_other(self):
        port = self.serve()
        client = Client(port)
        plain = self.observation()
        del plain["noise"]
        first, again, other, unseeded = (client.infer({**plain, **seed})["actions"].data for seed in
                                         ({"seed": 7}, {"seed": 7}, {"seed": 8}, {}))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertNotEqual(first, unseeded)

    def test_a_warm_up_changes_no_bit_of_the_first_answers(self):
        plain = self.observation()
        del plain["noise"]
        answers = []
        for setting in ("seed = 3", "seed = 3\nwarm_up = false"):
            client = Client(self.serve(setting))
            answers.append([client.infer(plain)["actions"].data for _ in range(3)])
            self.assertEqual("each of 1 variants once" in self.server.said, "false" not in setting)
            self.assertIn("captures since ready: 0", self.stop())
        self.assertEqual(answers[0], answers[1])

    def test_a_client_is_told_what_the_policy_reads(self):
        client = Client(self.serve())
        self.assertEqual(client.metadata["inputs"], [
            {"name": "observation/state", "dtype": "f32", "shape": [STATE], "required": True},
            {"name": "observation/image", "dtype": "u8", "shape": [28, 28, 3], "required": False},
            {"name": "prompt", "dtype": "text"}])
        self.assertIn(f"this policy reads: observation/state f32[{STATE}]; (observation/image u8[28,28,3]); prompt\n",
                      self.server.said)

    def test_the_request_log_has_a_line_for_each_request(self):
        log = self.folder / "requests.jsonl"
        client = Client(self.serve(f'request_log = "{log}"\ndefault_prompt = "dance"'))
        observation = self.observation(prompt="a secret task")
        client.infer(observation)
        client.infer(observation)
        del observation["observation/state"]
        self.assertIn("observation/state", client.infer(observation))
        metrics = get(self.port, "/metrics")[1]
        self.stop()
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        self.assertEqual([line["event"] for line in lines], ["request"] * 3)
        self.assertEqual([line["number"] for line in lines], [1, 2, 3])
        self.assertEqual(len({line["client"] for line in lines}), 1)
        self.assertEqual([line["ending"] for line in lines], ["reply", "reply", "error"])
        self.assertIn("observation/state", lines[2]["error"])
        self.assertNotIn("infer_ms", lines[2])
        for line in lines[:2]:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(line["address"], "127.0.0.1")
            self.assertGreater(line["bytes"], 28 * 28 * 3)
            self.assertGreater(line["reply_bytes"], 8 * HORIZON * WIDTH)
            self.assertGreaterEqual(line["wait_ms"], 0)
            self.assertLessEqual((line["infer_ms"] + line["wait_ms"]) / 1e3, line["seconds"])
            self.assertNotIn("error", line)
        self.assertEqual(log.stat().st_mode & 0o777, 0o600)
        for secret in ("a secret task", "dance"):
            self.assertNotIn(secret, log.read_text(encoding="utf-8"))
        # The same in numbers.
        for name, count in (("wait", 3), ("inference", 2), ("request", 3)):
            self.assertIn(f"# TYPE frt_robot_{name}_seconds histogram\n", metrics)
            self.assertIn(f"frt_robot_{name}_seconds_count {count}\n", metrics)
            buckets = [int(value) for value in re.findall(rf'frt_robot_{name}_seconds_bucket{{le="[^"]+"}} (\d+)', metrics)]
            self.assertEqual(len(buckets), 15)
            self.assertEqual(buckets, sorted(buckets))
            self.assertEqual(buckets[-1], count)
        [total] = re.findall(r"frt_robot_request_seconds_sum (\S+)", metrics)
        self.assertAlmostEqual(float(total), sum(line["seconds"] for line in lines), places=4)
        self.assertIn("a folder that exists", self.check(FAILED, "--plugin-dir", PLUGINS, "serve", self.policy_manifest(
            'request_log = "nowhere/requests.jsonl"'), "--listen", "127.0.0.1:0").stderr)

    def test_a_request_that_nobody_waits_for_any_more_is_in_the_log(self):
        log = self.folder / "requests.jsonl"
        client = Client(self.serve(f'request_log = "{log}"\ndeadline_ms = 100', "delay_ms = 500"))
        self.assertIn("deadline_ms", client.infer(self.observation()))
        end = time.monotonic() + 60
        while not log.read_text(encoding="utf-8"):      # the inference goes on
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        self.stop()
        [line] = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        self.assertEqual(line["ending"], "late")
        self.assertGreater(line["seconds"], 0.1)

    def test_every_client_is_told_when_the_server_ends(self):
        port = self.serve("deadline_ms = 60000", "delay_ms = 100")
        idle, asking = Client(port), Client(port)
        asking.send(pack(self.observation()))
        while self.server.metrics()["requests_total"] < 1:
            time.sleep(0.01)
        self.server.process.send_signal(signal.SIGTERM)
        for client in (idle, asking):
            with self.assertRaises(Closed) as closed:
                while True:
                    client.receive()    # the reply may come before it
            self.assertEqual(closed.exception.code, 1001)
            client.close()
        self.assertEqual(self.server.process.wait(120), OK)

    def test_a_reply_that_is_being_sent_is_complete_before_the_server_ends(self):
        values = 300 * 1000     # a reply of 2.4 MB: more than the sockets hold
        save_policy(self.folder, values, [0.0] * values * STATE, [0.0] * values)
        port = self.serve("write_timeout_ms = 60000", "horizon = 1000")
        observation = self.observation()
        del observation["noise"]
        client = Client(port, receive_buffer=2048)
        client.send(pack(observation))
        while self.server.metrics()["inferences_total"] < 1:
            time.sleep(0.01)
        self.server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)         # it asks about ten times a second whether to stop
        self.assertEqual(len(unpack(client.receive())["actions"].data), values * 8)
        with self.assertRaises(Closed) as closed:
            client.receive()
        self.assertEqual(closed.exception.code, 1001)
        client.close()
        self.assertEqual(self.server.process.wait(120), OK)

    def test_ctrl_c_ends_it_with_the_status_of_an_interrupted_command(self):
        self.serve()
        self.server.process.send_signal(signal.SIGINT)
        self.assertIn("0 requests", self.server.process.stderr.read())
        self.assertEqual(self.server.process.wait(120), INTERRUPTED)

    def test_fragments_pings_and_a_half_open_connection_change_nothing(self):
        port = self.serve()
        idle = Client(port)
        client = Client(port)
        data = pack(self.observation())
        client.send(data[:7], 2, fin=False)
        client.send(b"still there?", 9)
        self.assertEqual(client.frame(), (10, b"still there?"))
        client.send(data[7:300], 0, fin=False)
        client.send(data[300:], 0)
        self.assertIn("actions", unpack(client.receive()))
        idle.close()
        self.assertIn("actions", client.infer(self.observation()))

    def test_a_ping_is_answered_while_an_inference_runs(self):
        port = self.serve("deadline_ms = 60000", "delay_ms = 2000")
        client = Client(port)
        client.send(pack(self.observation()))
        client.send(b"alive?", 9)
        self.assertEqual(client.frame(), (10, b"alive?"))
        self.assertIn("actions", unpack(client.receive()))

    def test_two_clients_are_served_side_by_side_and_a_third_is_refused(self):
        port = self.serve("max_clients = 2")
        first, second = Client(port), Client(port)
        answers = {}

        def work(name, client, prompt):
            answers[name] = [client.infer(self.observation(prompt=prompt))["actions"].data for _ in range(20)]
        threads = [threading.Thread(target=work, args=(n, c, p)) for n, c, p in (("a", first, "do"), ("b", second, "dp"))]
        for thread in threads:
            thread.start()
        self.assertEqual(Client(port).status, 503)
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(answers["a"])), 1)
        self.assertEqual(len(set(answers["b"])), 1)
        self.assertNotEqual(answers["a"][0], answers["b"][0])
        first.close()
        for _ in range(100):        # the place is free again
            if (third := Client(port)).status == 101:
                break
            time.sleep(0.05)
        self.assertIn("actions", third.infer(self.observation()))

    def test_a_key_is_asked_of_everybody_but_the_health_check(self):
        port = self.serve('api_key = "secret"')
        self.assertEqual(Client(port).status, 401)
        self.assertEqual(Client(port, ["Authorization: Api-Key wrong"]).status, 401)
        self.assertEqual(get(port, "/healthz")[0], 200)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            get(port, "/metrics")
        refused.exception.close()
        self.assertEqual(Client(port, ["Origin: http://evil.example"]).status, 403)
        client = Client(port, ["Authorization: Api-Key secret"])
        self.assertIn("actions", client.infer(self.observation()))


class RealClient(Serving):
    """openpi-client from PyPI, where it can be installed."""

    def test_the_client_that_robots_use_is_served(self):
        # The package imports typing_extensions without asking for it.
        python = python_with(self, "openpi-client", "openpi-client==0.1.2", "typing_extensions==4.16.0")
        port = self.serve('api_key = "secret"')
        result = subprocess.run([python, pathlib.Path(__file__).parent / "openpi_client_check.py", str(port)],
                                capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["golden"],
                         "82a7616374696f6e7384c40b5f5f6e6461727261795f5fc3c40464617461c418000000000000803f000000400000"
                         "4040000080400000a040c4056474797065a33c6634c4057368617065920203ad7365727665725f74696d696e6781"
                         "a8696e6665725f6d73cb3ff8000000000000")        # as tests/unit/robot/wire_test.cpp
        self.assertEqual(report["metadata"]["action_horizon"], HORIZON)
        self.assertEqual((report["dtype"], report["shape"]), ("<f8", [HORIZON, WIDTH]))
        found = [value for row in report["actions"] for value in row]
        for value, wanted in zip(found, self.expected([0.5, -0.25, 1.0], "do")):
            self.assertAlmostEqual(value, wanted, places=5)
        self.assertEqual(report["timings"], ["infer_ms", "infer_ms"])
        self.assertTrue(report["equal"] and report["previous"] and report["broker"], report)
        self.assertIn("not finite", report["refused"])


class Refusing(Serving):
    def refused(self, port, data, word, opcode=2):
        client = Client(port)
        client.send(data if isinstance(data, bytes) else pack(data), opcode)
        answer = client.receive()
        self.assertIsInstance(answer, str, "a text frame says what is wrong")
        self.assertIn(word, answer)
        with self.assertRaises(Closed) as closed:
            client.receive()
        self.assertEqual(closed.exception.code, 1011)
        client.close()

    def answers_to_spoiled(self, port, data, chance, count, most, place):
        """The answers to `count` copies of `data`, each with up to `most` random bytes at place()."""
        for _ in range(count):
            spoiled = bytearray(data)
            for _ in range(chance.randrange(1, most + 1)):
                spoiled[place()] = chance.randrange(256)
            client = Client(port)
            client.send(bytes(spoiled))
            yield client.receive()
            client.close()


class BadInput(Refusing):
    def test_each_mistake_has_its_answer_and_the_server_goes_on(self):
        port = self.serve('max_message = "64k"')
        good = self.observation()
        without = {k: v for k, v in good.items() if k != "observation/state"}
        for observation, word in (
                (b"\xc1", "msgpack"), (b"", "msgpack"), (pack([1, 2]), "is a map"),
                (pack(good) + b"x", "follow the value"), (pack(good)[:-3], "ends inside"),
                (without, "observation/state"),
                ({**good, "observation/state": Array.floats([1.0, 2.0])}, "observation/state"),
                ({**good, "observation/state": Array.floats([1.0, float("nan"), 0.0])}, "not finite"),
                ({**good, "observation/state": Array.floats([3e38, -3e38, 3e38])}, "not finite"),
                ({**good, "observation/image": Array("|u1", [27, 28, 3], bytes(27 * 28 * 3))}, "observation/image"),
                ({**good, "observation/image": Array("<f4", [28, 28, 3], bytes(28 * 28 * 12))}, "observation/image"),
                ({**good, "observation/image": Array("|u1", [28, 28, 3], b"short")}, "shape"),
                ({**good, "prompt": "x" * 100}, "prompt"), ({**good, "prompt": "a\0b"}, "zero byte"),
                ({**good, "num_steps": 3}, "steps"), ({**good, "num_steps": -1}, "num_steps"),
                ({**good, "rl": {"beta": 2.0}}, "guidance"), ({**good, "rl": {"beta": 0.5}}, "beta"),
                ({**good, "rtc": {"prev": Array.floats([0.0, 0.0], [1, 2]), "delay": 1}}, "chunking"),
                ({**good, "more": b"x" * 70000}, "max_message")):
            with self.subTest(word):
                self.refused(port, observation, word)
        self.refused(port, b"hello", "text frame", opcode=1)
        self.assertIn("actions", Client(port).infer(good))

    def test_random_bytes_never_stop_the_server(self):
        port = self.serve()
        chance = random.Random(2)
        begin = pack(self.observation())[:400]
        for answer in self.answers_to_spoiled(port, begin, chance, 60, 5, lambda: chance.randrange(len(begin))):
            self.assertIsInstance(answer, str)
        for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"POST /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"GET /" + b"a" * 20000):
            with socket.create_connection(("127.0.0.1", port)) as raw:
                raw.sendall(junk)
                raw.settimeout(30)
                try:
                    raw.recv(100)
                except ConnectionError:
                    pass
        self.assertIn("actions", Client(port).infer(self.observation()))

    def test_an_inference_that_takes_too_long_is_answered_at_its_deadline(self):
        port = self.serve("deadline_ms = 30", "delay_ms = 500")
        start = time.monotonic()
        self.refused(port, self.observation(), "deadline_ms")
        self.assertLess(time.monotonic() - start, 20)
        self.assertIn("frt_robot_deadline_miss_total 1", get(port, "/metrics")[1])

    def test_a_second_request_before_the_reply_is_refused(self):
        port = self.serve("deadline_ms = 60000", "delay_ms = 2000")
        client = Client(port)
        client.send(pack(self.observation()))
        client.send(pack(self.observation()))
        self.assertIn("before the reply", client.receive())

    def test_a_client_that_does_not_read_is_cut_off(self):
        values = 20 * 1000      # replies of 160 KB
        save_policy(self.folder, values, [0.0] * values * STATE, [0.0] * 5 * values)
        port = self.serve("write_timeout_ms = 300", "horizon = 1000")
        observation = self.observation()
        del observation["noise"]
        client = Client(port, receive_buffer=2048)
        for sent in range(1, 1000):     # each reply is complete, in some buffer, before the next request
            try:
                client.send(pack(observation))
            except OSError:
                break
            numbers = None
            while not numbers or numbers["replies"] < sent:
                numbers = dict(re.findall(r"^frt_robot_(replies|slow_client)_total (\d+)$", get(port, "/metrics")[1], re.M))
                numbers = {name: int(value) for name, value in numbers.items()}
                if numbers["slow_client"]:
                    break
            if numbers["slow_client"]:
                break
        self.assertEqual(numbers["slow_client"], 1)
        self.assertIn("actions", Client(port).infer(observation))

    def test_an_observation_that_waited_too_long_is_not_used(self):
        port = self.serve("stale_ms = 1\ndeadline_ms = 60000", "delay_ms = 100")
        clients = [Client(port) for _ in range(3)]
        for client in clients:
            client.send(pack(self.observation()))
        answers = [client.receive() for client in clients]
        self.assertTrue(any(isinstance(answer, str) and "stale" in answer for answer in answers))

    def test_a_chunk_that_is_not_finite_is_an_error_and_the_next_one_is_served(self):
        port = self.serve()
        for _ in range(3):
            self.refused(port, {**self.observation(), "observation/state": Array.floats([3e38, -3e38, 3e38])},
                         "not finite")
            self.assertIn("actions", Client(port).infer(self.observation()))

    def test_the_command_line_is_checked(self):
        manifest = self.policy_manifest()
        self.check(USAGE, "serve")
        for address in ("nowhere", "127.0.0.1:65536", ":8000"):
            result = self.check(USAGE, "--plugin-dir", PLUGINS, "serve", manifest, "--listen", address)
            self.assertIn("address:port", result.stderr)
            self.assertNotIn("ready", result.stderr)    # before a model is loaded in vain
        self.check(MANIFEST, "--plugin-dir", PLUGINS, "serve", manifest, "--set", "host.robot.hz=0")

    def test_what_no_variant_of_the_model_can_do_is_refused_before_it_listens(self):
        for setting, word in (("steps = 7", "7 steps"), ("steps = 7\nwarm_up = false", "7 steps"),
                              ("beta = 2.0", "no guidance"), ('beta_schedule = "2, 3"', "guidance")):
            with self.subTest(setting):
                result = self.check(MANIFEST, "--plugin-dir", PLUGINS, "serve", self.policy_manifest(setting),
                                    "--listen", "127.0.0.1:0", deadline=60)
                self.assertIn(word, result.stderr)
                self.assertNotIn("serving", result.stderr)


class Pi05(Refusing):
    """The same server with frt.pi05 and the preset pi05_libero: what its plugin refuses comes out on the wire."""
    TINY = FIXTURES / "pi05/tiny/openpi"
    checkpoint = TINY
    plugin = "frt.pi05"

    def policy_manifest(self, robot="", options=""):
        return self.manifest(f"""schema = 1
[device.cpu0]
backend = "frt.cpu"
[device.cpu0.options]
threads = 1
[model.p]
plugin = "{self.plugin}"
device = "cpu0"
checkpoint = "{self.checkpoint}"
[model.p.options]
activations = "f32"
preset = "pi05_libero"
prompt_buckets = "32"
tokenizer = "{FIXTURES / 'pi05/tokenizer/tokenizer.model'}"
{options}
[host.robot]
model = "p"
{robot}""")

    def observation(self, **more):
        return {"observation/image": Array("|u1", [40, 64, 3], bytes(range(256)) * 30),
                "observation/wrist_image": Array("|u1", [56, 56, 3], bytes(56 * 56 * 3)),
                "observation/state": Array.floats([0.25] * 8), "prompt": "pick up the cup", "seed": 5, **more}

    def test_each_mistake_has_its_answer_and_the_server_goes_on(self):
        port = self.serve('max_message = "128k"')
        good = self.observation()
        first = Client(port).infer(good)["actions"]
        self.assertEqual(first.shape, [10, 7])
        nan, infinity = float("nan"), float("inf")

        def without(name):
            return {key: value for key, value in good.items() if key != name}
        for observation, word in (
                (without("observation/image"), "no image 'observation/image'"),
                (without("observation/wrist_image"), "no image 'observation/wrist_image'"),
                (without("observation/state"), "no array 'observation/state'"),
                (without("prompt"), "no prompt"),
                ({**good, "observation/image": Array("|u1", [40, 64], bytes(40 * 64))}, "[height, width, 3]"),
                ({**good, "observation/image": Array("|u1", [40, 64, 4], bytes(40 * 64 * 4))}, "[height, width, 3]"),
                ({**good, "observation/image": Array("|u1", [0, 64, 3], b"")}, "is empty"),
                ({**good, "observation/image": Array("<i4", [4, 4, 3], bytes(4 * 4 * 12))}, "has the type i32"),
                ({**good, "observation/image": Array.floats([nan] * 48, [4, 4, 3])}, "NaN or infinity"),
                ({**good, "observation/state": Array.floats([0.0] * 7)}, "7 values, expected 8"),
                ({**good, "observation/state": Array.floats([0.0] * 7 + [nan])}, "NaN or infinity"),
                ({**good, "observation/state": Array.floats([infinity] + [0.0] * 7)}, "NaN or infinity"),
                ({**good, "observation/state": Array("|u1", [8], b"x" * 9)}, "bytes of data"),
                ({**good, "prompt": "a very long story " * 40}, "more than 32 tokens"),
                ({**without("prompt"), "prompt_token_ids": [5] * 33}, "at most 32"),
                ({**without("prompt"), "prompt_token_ids": [5, 2000000000]}, "token id 2000000000 at 1"),
                ({**good, "prompt": "a" * 3000}, "bytes"),
                ({**good, "observation/image": Array("|u1", [20000, 1, 3], bytes(60000))}, "at most 16384 pixels"),
                ({**without("seed"), "noise": Array.floats([0.0] * 320, [320])}, None),  # the shape of one chunk
                ({**good, "prompt": ""}, None),  # an instruction, unlike none
                ({**without("seed"), "noise": Array.floats([0.0] * 32, [1, 32])}, "expected [10, 32]"),
                ({**without("seed"), "noise": Array.floats([nan] + [0.0] * 319, [10, 32])}, "NaN or infinity"),
                ({**without("seed"), "noise": Array.floats([3e38] * 320, [10, 32])}, "must not be executed"),
                ({**good, "num_steps": 7}, "7 steps"), ({**good, "rl": {"beta": 2.0}}, "frt.recap_cfg"),
                ({**good, "rl": {"positive": 0}}, "frt.recap_cfg"), ({**good, "rl": {"positive": 2}}, "rl/positive"),
                ({**good, "rtc": {"prev": Array.floats([nan] * 32, [1, 32]), "delay": 1}}, "not finite"),
                ({**good, "rtc": {"prev": Array.floats([0.0] * 352, [11, 32]), "delay": 1}}, "at most 10 x 32"),
                ({**good, "rtc": {"prev": Array.floats([0.0] * 35, [5, 7]), "delay": 1}}, "network_actions"),
                ({**good, "rtc": {"prev": Array.floats([0.0] * 64, [2, 32]), "delay": 3}}, "more than the 2 rows"),
                ({**good, "observation/image": Array("|u1", [400, 400, 3], bytes(480000))}, "max_message")):
            with self.subTest(word):
                if word:
                    self.refused(port, observation, word)
                else:
                    self.assertIn("actions", Client(port).infer(observation))
        again = Client(port).infer(good)["actions"]
        self.assertEqual(again.data, first.data)
        self.assertIn("captures since ready: 0", self.stop())
        self.assertIn("this policy reads: observation/image u8[H,W,3]; observation/wrist_image u8[H,W,3]; "
                      "observation/state f32[8]; prompt\n", self.server.said)
        self.assertIn("warm-up: each of", self.server.said)
        cold = Client(self.serve("warm_up = false")).infer(good)["actions"]
        self.assertEqual(cold.data, first.data)     # the warm-up changed no bit
        self.stop()

    def test_a_chunk_goes_on_from_what_is_left_of_the_last_one(self):
        client = Client(self.serve())
        good = self.observation()
        plain = client.infer(good)
        self.assertNotIn("network_actions", plain)
        first = client.infer({**good, "rtc": {}})       # asks for the chunk as the network made it
        self.assertEqual(first["actions"].data, plain["actions"].data)
        network = first["network_actions"]
        self.assertEqual((network.dtype, network.shape), ("<f4", [10, 32]))
        rows = 32 * 4
        left = Array("<f4", [6, 32], network.data[4 * rows:])       # four were executed

        def answer(**rtc):
            return client.infer({**good, "seed": 6, "rtc": {"prev": left, "delay": 2, **rtc}})["network_actions"].data
        free = client.infer({**good, "seed": 6, "rtc": {}})["network_actions"].data
        locked = answer(mode="locked")
        self.assertEqual(locked[:2 * rows], left.data[:2 * rows])
        self.assertNotEqual(locked[2 * rows:], free[2 * rows:])
        guided = {answer(), answer(horizon=3), answer(schedule="ones"), answer(schedule="exp"),
                  answer(max_guidance=1.0), locked, free}
        self.assertEqual(len(guided), 7)
        self.assertEqual(answer(mode="guided", schedule="linear", horizon=10), answer())
        self.assertEqual(client.infer({**good, "rtc": {}})["network_actions"].data, network.data)   # none is left over
        for rtc, word in (({"mode": "clean"}, "rtc_training_max_delay"), ({"mode": "loose"}, "guided, locked, clean"),
                          ({"schedule": 1}, "is no text"), ({"max_guidance": -1.0}, "above 0"),
                          ({"prev": "left"}, "is no number"), ({"prev": [[0.0], ["a"]]}, "is no array")):
            with self.subTest(word):
                self.refused(self.port, {**good, "rtc": {"prev": left, "delay": 2, **rtc}}, word)

    def test_strengths_of_guidance_may_differ_from_step_to_step(self):
        self.plugin = "frt.recap_cfg"
        client = Client(self.serve("beta = 2"))

        def answer(*rl):
            return client.infer({**self.observation(), **({"rl": {"beta": rl[0]}} if rl else {})})["actions"].data
        constant = answer(2.0)
        self.assertEqual(answer(), constant)
        for same in ([2.0], [2.0] * 10, Array.floats([2.0] * 10), [[2.0]] * 10, [2.0, 2.0]):
            self.assertEqual(answer(same), constant)
        others = {answer([3.0, 2.0]), answer([2.0, 3.0]), answer([2.0] * 9 + [1.0]), answer(1.0), constant}
        self.assertEqual(len(others), 5)
        self.assertEqual(answer([1.0, 1.0]), answer(1.0))
        for beta, word in (([2.0] * 11, "11 steps"), ([[2.0, 2.0]], "2 branches"), ([2.0, 0.5], "0.5"), ([], "rl/beta"),
                           ("much", "is no number")):
            with self.subTest(word):
                self.refused(self.port, {**self.observation(), "rl": {"beta": beta}}, word)
        self.assertIn("captures since ready: 0", self.stop())

    def test_a_state_that_is_a_list_is_an_array(self):
        client = Client(self.serve())
        good = self.observation()
        self.assertEqual(client.infer({**good, "observation/state": [0.25] * 8})["actions"].data,
                         client.infer(good)["actions"].data)

    def test_without_statistics_every_request_says_where_to_get_them(self):
        self.checkpoint = self.folder / "checkpoint"
        shutil.copytree(self.TINY, self.checkpoint, ignore=shutil.ignore_patterns("assets"))
        port = self.serve()
        for _ in range(2):
            self.refused(port, self.observation(), "norm_stats")
        self.assertEqual(get(port, "/healthz"), (200, "OK\n"))

    def test_a_pi0_checkpoint_is_named_at_start(self):
        self.checkpoint = self.folder / "checkpoint"
        shutil.copytree(self.TINY, self.checkpoint)
        data = (self.TINY / "model.safetensors").read_bytes()
        size, = struct.unpack("<Q", data[:8])
        header = {name.replace("layernorm.dense.weight", "layernorm.weight") if "gemma_expert" in name else name: value
                  for name, value in json.loads(data[8:8 + size]).items()}
        save_header(self.checkpoint / "model.safetensors", header, data[8 + size:])
        result = self.check(FAILED, "--plugin-dir", PLUGINS, "serve", self.policy_manifest(), "--listen", "127.0.0.1:0")
        self.assertIn("a pi0 checkpoint", result.stderr)

    def test_a_checkpoint_that_is_not_there_is_said_once_as_a_warning_and_once_as_an_error(self):
        self.checkpoint = self.folder / "nowhere"
        text = self.check(FAILED, "--plugin-dir", PLUGINS, "serve", self.policy_manifest()).stderr
        self.assertEqual(text.count("does not exist"), 1)
        self.assertIn("no such folder", text)

    def test_random_bytes_never_stop_the_server(self):
        port = self.serve()
        chance = random.Random(3)
        good = pack(self.observation())
        for answer in self.answers_to_spoiled(
                port, good, chance, 40, 3, lambda: chance.randrange(len(good) if chance.random() < 0.5 else 120)):
            self.assertIsInstance(answer, (str, bytes))
        self.assertIn("actions", Client(port).infer(self.observation()))


if __name__ == "__main__":
    unittest.main()
