# SPDX-License-Identifier: Apache-2.0
"""The test plugin's linear policy (tests/robot/linear_policy.cpp) from Python: its checkpoint, its manifest, what it gives."""
import array
import os
import pathlib
import sys
import tempfile
import unittest

import frt

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from linear_policy_files import MANIFEST, save_policy  # noqa: E402

HORIZON, WIDTH, STATE, PROMPTS, SIDE = 10, 2, 3, 5, 28
PLUGINS = os.environ["FRT_ROBOT_PLUGIN_DIR"]
WEIGHT = [i / 16 for i in range(HORIZON * WIDTH * STATE)]
# A row for each instruction, by the sum of its bytes modulo PROMPTS.
ROWS = [[row / 2 + i / 64 for i in range(HORIZON * WIDTH)] for row in range(PROMPTS)]


def save(folder):
    """The checkpoint and a manifest in `folder`; the path of the latter."""
    folder = pathlib.Path(folder)
    save_policy(folder, HORIZON * WIDTH, WEIGHT, [value for row in ROWS for value in row])
    (folder / "policy.toml").write_text(MANIFEST, encoding="utf-8")
    return folder / "policy.toml"


def expected(state, prompt):
    """The chunk without noise, flat."""
    row = ROWS[sum(prompt.encode()) % PROMPTS]
    return [sum(WEIGHT[i * STATE + j] * state[j] for j in range(STATE)) + row[i] for i in range(HORIZON * WIDTH)]


class LinearPolicyTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        runtime = frt.load(save(folder.name), plugin_folders=[PLUGINS])
        cls.addClassCleanup(runtime.close)
        cls.policy = runtime["p"]
        cls.addClassCleanup(cls.policy.close)

    def observation(self, state, **more):
        """Without noise, so that a chunk depends on state and instruction alone."""
        image = memoryview(bytes(SIDE * SIDE * 3)).cast("B", (SIDE, SIDE, 3))
        noise = memoryview(array.array("f", [0.0] * HORIZON * WIDTH)).cast("B").cast("f", (HORIZON, WIDTH))
        return {"observation/image": image, "observation/state": state, "noise": noise, **more}

    def rows(self, chunk):
        return [value for row in chunk.tolist() for value in row]
