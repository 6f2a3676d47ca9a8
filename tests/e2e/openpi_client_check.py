# SPDX-License-Identifier: Apache-2.0
"""The real openpi-client against a running server; test_robot_serve.py starts both. Prints JSON.

    python openpi_client_check.py PORT
"""
import json
import sys

import numpy as np
from openpi_client import action_chunk_broker, msgpack_numpy, websocket_client_policy

client = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", int(sys.argv[1]), api_key="secret")
report = {"metadata": client.get_server_metadata(), "golden": msgpack_numpy.packb(
    {"actions": np.arange(6, dtype=np.float32).reshape(2, 3), "server_timing": {"infer_ms": 1.5}}).hex()}
observation = {"observation/image": np.zeros((28, 28, 3), np.uint8), "observation/state": np.array([0.5, -0.25, 1.0]),
               "prompt": "do", "noise": np.zeros((10, 2), np.float32)}
answer = client.infer(observation)
report["actions"] = answer["actions"].tolist()
report["dtype"] = answer["actions"].dtype.str
report["shape"] = list(answer["actions"].shape)
report["timings"] = sorted(answer["server_timing"]) + sorted(answer["policy_timing"])
# A view of a larger array, f32, and a scalar of numpy: what robots really send.
state = np.stack([np.array([0.5, -0.25, 1.0], np.float32), np.zeros(3, np.float32)], axis=1)[:, 0]
again = client.infer({**observation, "observation/state": state, "gripper": np.int64(3)})
report["equal"] = bool(np.array_equal(again["actions"], answer["actions"]))
report["previous"] = "prev_total_ms" in again["server_timing"]
broker = action_chunk_broker.ActionChunkBroker(client, action_horizon=4)
steps = [broker.infer(observation)["actions"] for _ in range(5)]
report["broker"] = bool(np.array_equal(np.stack(steps), answer["actions"][[0, 1, 2, 3, 0]]))
try:
    client.infer({**observation, "observation/state": np.array([0.5, np.nan, 1.0])})
except RuntimeError as error:
    report["refused"] = str(error)
print(json.dumps(report))
