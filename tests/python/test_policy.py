# SPDX-License-Identifier: Apache-2.0
"""Policies from Python: a small one that is linear in its state."""
import array
import ctypes
import json
import os
import pathlib
import struct
import tempfile
import unittest

import frt
from frt._arrays import _DLTensor, View

try:
    import numpy
except ImportError:
    numpy = None

HORIZON, WIDTH, STATE = 10, 2, 3
WEIGHT = [i / 16 for i in range(HORIZON * WIDTH * STATE)]


def save_tensors(path, tensors):
    header, data = {}, b""
    for name, (shape, values) in tensors.items():
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Tensor:
    """What a library without the buffer protocol gives: f32 by DLPack."""

    def __init__(self, values, device=1, strides=None):
        self.values, self.device = (ctypes.c_float * len(values))(*values), device
        self.shape = (ctypes.c_int64 * 1)(len(values))
        self.strides = (ctypes.c_int64 * 1)(*strides) if strides else None
        self.given = _DLTensor(ctypes.addressof(self.values), device, 0, 1, 2, 32, 1, self.shape, self.strides, 0)

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.given), b"dltensor", None)


class Policies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        save_tensors(pathlib.Path(folder.name) / "policy.safetensors", {
            "weight": ([HORIZON * WIDTH, STATE], WEIGHT), "prompts": ([5, HORIZON * WIDTH], [0.0] * 5 * HORIZON * WIDTH)})
        runtime = frt.loads('schema = 1\n[device.cpu0]\nbackend = "frt.cpu"\n[device.cpu0.options]\nthreads = 1\n'
                            '[model.p]\nplugin = "test.linear_policy"\ndevice = "cpu0"\n'
                            'checkpoint = "policy.safetensors"\n', folder.name,
                            plugin_folders=[os.environ["FRT_ROBOT_PLUGIN_DIR"]])
        cls.addClassCleanup(runtime.close)
        cls.policy = runtime["p"]
        cls.addClassCleanup(cls.policy.close)

    def observation(self, state, **more):
        image = memoryview(bytes(28 * 28 * 3)).cast("B", (28, 28, 3))
        noise = memoryview(array.array("f", [0.0] * HORIZON * WIDTH)).cast("B").cast("f", (HORIZON, WIDTH))
        return {"observation/image": image, "observation/state": state, "noise": noise, **more}

    def rows(self, chunk):
        return [value for row in chunk.tolist() for value in row]

    def expected(self, state):
        return [sum(WEIGHT[i * STATE + j] * state[j] for j in range(STATE)) for i in range(HORIZON * WIDTH)]

    def check(self, chunk, state):
        self.assertEqual(tuple(chunk.shape), (HORIZON, WIDTH))
        for got, wanted in zip(self.rows(chunk), self.expected(state), strict=True):
            self.assertAlmostEqual(got, wanted, places=5)

    def test_it_is_a_policy_that_says_what_it_reads(self):
        self.assertIsInstance(self.policy, frt.Policy)
        self.assertEqual((self.policy.horizon, self.policy.action_dim), (HORIZON, WIDTH))
        self.assertIn("observation/state", [entry["name"] for entry in self.policy.inputs])

    def test_arrays_of_several_kinds_are_read(self):
        state = [0.5, -0.25, 1.0]
        packed = array.array("f", state)
        for given in (packed, memoryview(packed), bytearray(packed), state):
            if isinstance(given, bytearray):
                given = memoryview(given).cast("f")
            self.check(self.policy.infer(self.observation(given), prompt="do"), state)
        every_other = memoryview(array.array("f", [0.5, 9, -0.25, 9, 1.0, 9]))[::2]
        self.check(self.policy.infer(self.observation(every_other), prompt="do"), state)

    def test_packed_host_memory_is_read_without_a_copy(self):
        packed, tensor = array.array("f", [0.5, -0.25, 1.0]), Tensor([0.5, -0.25, 1.0])
        for given, address in ((packed, packed.buffer_info()[0]),
                               (memoryview(packed).toreadonly(), packed.buffer_info()[0]),
                               (tensor, ctypes.addressof(tensor.values))):
            self.assertEqual(View("x", given).data, address)
            self.check(self.policy.infer(self.observation(given), prompt="do"), [0.5, -0.25, 1.0])
        with self.assertRaisesRegex(ValueError, "copy it to the CPU first"):
            View("x", Tensor([1.0], device=2))
        with self.assertRaisesRegex(ValueError, "make it contiguous first"):
            View("x", Tensor([1.0, 2.0], strides=[2]))

    @unittest.skipIf(numpy is None, "numpy is not there")
    def test_numpy_arrays_go_in_and_come_out(self):
        state = numpy.array([0.5, -0.25, 1.0], dtype=numpy.float32)
        observation = self.observation(state, **{"observation/image": numpy.zeros((28, 28, 3), numpy.uint8)})
        chunk = self.policy.infer(observation, prompt="do")
        self.assertIsInstance(chunk, numpy.ndarray)
        self.check(chunk, state.tolist())
        frozen = state.copy()
        frozen.setflags(write=False)
        self.check(self.policy.infer(self.observation(frozen), prompt="do"), state.tolist())

    def test_what_cannot_be_read_is_refused_by_name(self):
        for wrong in (object(), ["a"], memoryview(b"abc").cast("c")):
            with self.assertRaisesRegex(TypeError, "observation/state"):
                self.policy.infer(self.observation(wrong), prompt="do")
        with self.assertRaises(frt.Error):
            self.policy.infer(self.observation([1.0, 2.0]), prompt="do")
        with self.assertRaises(frt.Error):
            self.policy.infer(self.observation([float("nan"), 0.0, 0.0]), prompt="do")
        with self.assertRaises(frt.Unsupported):
            self.policy.guide(2.0)
        with self.assertRaises(ValueError):
            self.policy.guide([[1.0, 2.0], [1.0]])

    def test_seeds_and_capsules_repeat_a_chunk(self):
        observation = self.observation([0.5, -0.25, 1.0])
        del observation["noise"]
        first = self.rows(self.policy.infer(observation, prompt="do", seed=1))
        self.assertEqual(self.rows(self.policy.infer(seed=1)), first)
        self.assertNotEqual(self.rows(self.policy.infer(seed=2)), first)
        with self.policy.snapshot() as capsule:
            self.assertGreater(capsule.bytes, 0)
            self.policy.infer(self.observation([1.0, 1.0, 1.0]), prompt="other")
            self.policy.restore(capsule)
            self.assertEqual(self.rows(self.policy.infer(seed=1)), first)


if __name__ == "__main__":
    unittest.main(verbosity=2)
