# SPDX-License-Identifier: Apache-2.0
"""Policies from Python: a small one that is linear in its state."""
import array
import ctypes
import unittest

import frt
from frt._arrays import View
from frt._dlpack import DLTensor

from linear_policy import HORIZON, SIDE, STATE, WIDTH, LinearPolicyTest, expected

try:
    import numpy
except ImportError:
    numpy = None

PROMPT = "do"


class Tensor:
    """What a library without the buffer protocol gives: f32 by DLPack."""

    def __init__(self, values, device=1, strides=None):
        self.values, self.device = (ctypes.c_float * len(values))(*values), device
        self.shape = (ctypes.c_int64 * 1)(len(values))
        self.strides = (ctypes.c_int64 * 1)(*strides) if strides else None
        self.given = DLTensor(ctypes.addressof(self.values), device, 0, 1, 2, 32, 1, self.shape, self.strides, 0)

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.given), b"dltensor", None)


class Policies(LinearPolicyTest):
    def check(self, chunk, state):
        self.assertEqual(tuple(chunk.shape), (HORIZON, WIDTH))
        for got, wanted in zip(self.rows(chunk), expected(state, PROMPT), strict=True):
            self.assertAlmostEqual(got, wanted, places=5)

    def test_it_is_a_policy_that_says_what_it_reads(self):
        self.assertIsInstance(self.policy, frt.Policy)
        self.assertEqual((self.policy.horizon, self.policy.action_dim), (HORIZON, WIDTH))
        state, image = self.policy.inputs  # what the plugin leaves out is filled in
        self.assertEqual(state, {"name": "observation/state", "kind": "state", "shape": [STATE], "required": True})
        self.assertEqual(image, {"name": "observation/image", "kind": "image", "shape": [SIDE, SIDE, 3], "required": False})

    def test_arrays_of_several_kinds_are_read(self):
        state = [0.5, -0.25, 1.0]
        packed = array.array("f", state)
        for given in (packed, memoryview(packed), bytearray(packed), state):
            if isinstance(given, bytearray):
                given = memoryview(given).cast("f")
            self.check(self.policy.infer(self.observation(given), prompt=PROMPT), state)
        every_other = memoryview(array.array("f", [0.5, 9, -0.25, 9, 1.0, 9]))[::2]
        self.check(self.policy.infer(self.observation(every_other), prompt=PROMPT), state)

    def test_packed_host_memory_is_read_without_a_copy(self):
        packed, tensor = array.array("f", [0.5, -0.25, 1.0]), Tensor([0.5, -0.25, 1.0])
        for given, address in ((packed, packed.buffer_info()[0]),
                               (memoryview(packed).toreadonly(), packed.buffer_info()[0]),
                               (tensor, ctypes.addressof(tensor.values))):
            self.assertEqual(View("x", given).data, address)
            self.check(self.policy.infer(self.observation(given), prompt=PROMPT), [0.5, -0.25, 1.0])
        with self.assertRaisesRegex(ValueError, "copy it to the CPU first"):
            View("x", Tensor([1.0], device=2))
        with self.assertRaisesRegex(ValueError, "make it contiguous first"):
            View("x", Tensor([1.0, 2.0], strides=[2]))

    @unittest.skipIf(numpy is None, "numpy is not there")
    def test_numpy_arrays_go_in_and_come_out(self):
        state = numpy.array([0.5, -0.25, 1.0], dtype=numpy.float32)
        observation = self.observation(state, **{"observation/image": numpy.zeros((SIDE, SIDE, 3), numpy.uint8)})
        chunk = self.policy.infer(observation, prompt=PROMPT)
        self.assertIsInstance(chunk, numpy.ndarray)
        self.check(chunk, state.tolist())
        frozen = state.copy()
        frozen.setflags(write=False)
        self.check(self.policy.infer(self.observation(frozen), prompt=PROMPT), state.tolist())

    def test_what_cannot_be_read_is_refused_by_name(self):
        for wrong in (object(), ["a"], memoryview(b"abc").cast("c")):
            with self.assertRaisesRegex(TypeError, "observation/state"):
                self.policy.infer(self.observation(wrong), prompt=PROMPT)
        with self.assertRaises(frt.Error):
            self.policy.infer(self.observation([1.0, 2.0]), prompt=PROMPT)
        with self.assertRaises(frt.Error):
            self.policy.infer(self.observation([float("nan"), 0.0, 0.0]), prompt=PROMPT)
        with self.assertRaises(frt.Unsupported):
            self.policy.guide(2.0)
        with self.assertRaises(ValueError):
            self.policy.guide([[1.0, 2.0], [1.0]])

    def test_seeds_and_capsules_repeat_a_chunk(self):
        observation = self.observation([0.5, -0.25, 1.0])
        del observation["noise"]
        first = self.rows(self.policy.infer(observation, prompt=PROMPT, seed=1))
        self.assertEqual(self.rows(self.policy.infer(seed=1)), first)
        self.assertNotEqual(self.rows(self.policy.infer(seed=2)), first)
        with self.policy.snapshot() as capsule:
            self.assertGreater(capsule.bytes, 0)
            self.policy.infer(self.observation([1.0, 1.0, 1.0]), prompt="other")
            self.policy.restore(capsule)
            self.assertEqual(self.rows(self.policy.infer(seed=1)), first)


if __name__ == "__main__":
    unittest.main(verbosity=2)
