# SPDX-License-Identifier: Apache-2.0
"""The adapter for openpi with openpi_client; test_openpi.py starts this, and the servers that it is compared with."""
import os
import threading
import unittest

import frt
import numpy as np
import websockets.sync.server
from frt.adapters.openpi import OpenpiPolicy
from openpi_client import msgpack_numpy
from openpi_client.action_chunk_broker import ActionChunkBroker
from openpi_client.base_policy import BasePolicy
from openpi_client.runtime.agents.policy_agent import PolicyAgent
from openpi_client.runtime.environment import Environment
from openpi_client.runtime.runtime import Runtime
from openpi_client.websocket_client_policy import WebsocketClientPolicy

from linear_policy import HORIZON, PLUGINS, SIDE, WIDTH, expected

STATE = np.array([0.5, -0.25, 1.0], np.float32)
IMAGE = np.arange(SIDE * SIDE * 3, dtype=np.uint32).astype(np.uint8).reshape(SIDE, SIDE, 3)


def observation(**more):
    """Without noise, so that a chunk depends on state and instruction alone."""
    return {"observation/image": IMAGE, "observation/state": STATE, "prompt": "do",
            "noise": np.zeros((HORIZON, WIDTH), np.float32), **more}


def chunk(state, prompt):
    return np.array(expected(state, prompt)).reshape(HORIZON, WIDTH)


class Arm(Environment):
    """Its state is moved by what it is told; it ends after 7 steps."""

    def __init__(self):
        self.seen, self.told = [], []

    def reset(self):
        self.state = STATE.copy()
        self.episode = len(self.told)

    def is_episode_complete(self):
        return len(self.told) - self.episode >= 7

    def get_observation(self):
        self.seen.append(self.state.copy())
        return observation(**{"observation/state": self.state})

    def apply_action(self, action):
        self.told.append(action["actions"])
        self.state[:WIDTH] += action["actions"].astype(np.float32) / 64


def open_policy(test, manifest, name):
    runtime = frt.load(os.environ[manifest], plugin_folders=[PLUGINS])
    test.addClassCleanup(runtime.close)
    policy = runtime[name]
    test.addClassCleanup(policy.close)
    return policy


class Adapter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.policy = open_policy(cls, "FRT_LINEAR", "p")
        cls.adapter = OpenpiPolicy(cls.policy)

    def test_it_is_a_policy_of_openpi(self):
        self.assertIsInstance(self.adapter, BasePolicy)
        answer = self.adapter.infer(observation())
        self.assertEqual(answer["actions"].dtype, np.float64)
        np.testing.assert_allclose(answer["actions"], chunk(STATE, "do"), atol=1e-5)
        self.assertGreater(answer["policy_timing"]["infer_ms"], 0)

    def test_a_runtime_of_openpi_runs_episodes_with_it(self):
        arm = Arm()
        broker = ActionChunkBroker(self.adapter, action_horizon=4)
        Runtime(arm, PolicyAgent(broker), [], num_episodes=2).run()
        self.assertEqual(len(arm.told), 14)
        for episode in (0, 7):  # 4 actions of one chunk, 3 of the next; an episode begins with a new one
            for start, count in ((0, 4), (4, 3)):
                first = episode + start
                np.testing.assert_allclose(np.stack(arm.told[first:first + count]),
                                           chunk(arm.seen[first], "do")[:count], atol=1e-4)
        np.testing.assert_array_equal(np.stack(arm.told[:7]), np.stack(arm.told[7:]))

    def test_a_server_of_openpis_protocol_serves_it(self):
        """what openpi's own server does with a policy: metadata once, then an answer to each observation"""
        def serve(connection):
            connection.send(msgpack_numpy.packb(self.adapter.metadata))
            for message in connection:
                answer = self.adapter.infer(msgpack_numpy.unpackb(message))
                connection.send(msgpack_numpy.packb({**answer, "server_timing": {"infer_ms": 0.0}}))

        with websockets.sync.server.serve(serve, "127.0.0.1", 0, compression=None) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                client = WebsocketClientPolicy("127.0.0.1", server.socket.getsockname()[1])
                self.assertEqual(client.get_server_metadata(), self.adapter.metadata)
                np.testing.assert_array_equal(client.infer(observation())["actions"],
                                              self.adapter.infer(observation())["actions"])
                client._ws.close()
            finally:
                server.shutdown()
                thread.join()

    def test_names_may_be_nested_and_images_of_any_kind(self):
        wanted = self.adapter.infer(observation())["actions"]
        for image in (IMAGE, IMAGE.transpose(2, 0, 1), IMAGE / np.float32(255), (IMAGE / 255).transpose(2, 0, 1)):
            nested = {"observation": {"image": image, "state": STATE}, "prompt": np.array("do"),
                      "noise": np.zeros((HORIZON, WIDTH)), "gripper": "open"}
            np.testing.assert_array_equal(self.adapter.infer(nested)["actions"], wanted)

    def test_a_prompt_may_be_missing(self):
        silent = observation()
        del silent["prompt"]
        adapter = OpenpiPolicy(self.policy, default_prompt="other")
        np.testing.assert_allclose(adapter.infer(silent)["actions"], chunk(STATE, "other"), atol=1e-5)

    def test_requests_that_are_wrong_say_what(self):
        for wrong, error, text in (
                ({"rtc": {}}, ValueError, "frt-host serve"),
                ({"rl": {"betta": 2}}, ValueError, "'rl/betta' is no key"),
                ({"seed": 1}, ValueError, "beside 'noise'"),
                ({"num_steps": 1.5}, ValueError, "'num_steps' is 1.5, not a whole number"),
                ({"num_steps": 1000}, frt.Error, "steps"),
                ({"rl/beta": 2.0}, frt.Unsupported, "guidance"),
                ({"prompt_token_ids": [1]}, ValueError, "take its place"),
                ({"prompt": 3}, TypeError, "'prompt' is int"),
                ({"observation/image": np.zeros((SIDE, SIDE))}, ValueError, r"image 'observation/image' has the shape"),
                ({"observation/image": IMAGE.astype(np.int32)}, TypeError, "type int32"),
                ({"observation/image": IMAGE.astype(np.float32)}, ValueError, "floats go from 0 to 1"),
                ({"observation/image": np.full(IMAGE.shape, np.nan, np.float32)}, ValueError, "from nan to nan"),
                ({"observation/state": np.zeros(2, np.float32)}, frt.Error, "observation/state"),
                ({"observation/state": None}, TypeError, "observation/state")):
            with self.subTest(wrong), self.assertRaisesRegex(error, text):
                self.adapter.infer(observation(**wrong))
        with self.assertRaisesRegex(frt.Error, "observation/state"):
            self.adapter.infer({"observation/image": IMAGE, "prompt": "do"})


class AsTheServer(unittest.TestCase):
    """The same requests in the same order give the same bits from frt-host serve."""

    def compare(self, adapter, port, requests):
        client = WebsocketClientPolicy("127.0.0.1", int(os.environ[port]))
        served = client.get_server_metadata()
        served["inputs"] = [each for each in served["inputs"] if each["name"] != "prompt"]  # which is no array
        self.assertEqual(served, adapter.metadata)
        for index, request in enumerate(requests):
            if index == 3:
                adapter.reset()  # an episode of a policy that remembers nothing begins as any request does
            with self.subTest(list(request)):
                np.testing.assert_array_equal(adapter.infer(request)["actions"], client.infer(request)["actions"])

    def test_of_a_policy_without_guidance(self):
        drawn = observation()
        del drawn["noise"]
        self.compare(OpenpiPolicy(open_policy(self, "FRT_LINEAR", "p")), "FRT_LINEAR_PORT",
                     [drawn, drawn, {**drawn, "seed": 5}, observation(), drawn, {**drawn, "prompt": "other"},
                      {**drawn, "num_steps": 10}])

    def test_of_a_policy_with_guidance(self):
        """beta of the manifest, of a request, of the manifest again"""
        rng = np.random.default_rng(1)
        seen = {"image/base_0_rgb": rng.integers(0, 256, (28, 28, 3), np.uint8), "state": np.array([0.3, 0.6], np.float32),
                "prompt": "reach the red disc"}
        self.compare(OpenpiPolicy(open_policy(self, "FRT_REACH", "reach"), guidance=1.5), "FRT_REACH_PORT",
                     [seen, {**seen, "rl/beta": 2.5}, seen, {**seen, "rl": {"positive": 0, "beta": [2.0, 1.0]}}, seen,
                      {**seen, "num_steps": 10, "seed": 3}])


if __name__ == "__main__":
    unittest.main()
