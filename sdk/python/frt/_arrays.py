# SPDX-License-Identifier: Apache-2.0
"""Arrays of others as frt_array, without a copy where they lie packed in host memory: objects with the buffer protocol
(numpy, array, bytes), and with DLPack on the CPU (torch). Anything else is a sequence of numbers."""
from __future__ import annotations

import array
import ctypes
from collections.abc import Sequence
from typing import Any

from . import _library as c
from ._dlpack import DLTensor

F32, F16, I8, U8, I32, U32, I64, U64, F64, I16, U16, BOOL = 1, 3, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16
_CODES = {("f", 4): F32, ("d", 8): F64, ("e", 2): F16, ("?", 1): BOOL}
_SIGNED, _UNSIGNED = {1: I8, 2: I16, 4: I32, 8: I64}, {1: U8, 2: U16, 4: U32, 8: U64}
_DLPACK = {(0, 8): I8, (0, 16): I16, (0, 32): I32, (0, 64): I64, (1, 8): U8, (1, 16): U16, (1, 32): U32, (1, 64): U64,
           (2, 16): F16, (2, 32): F32, (2, 64): F64, (6, 8): BOOL}
_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
_LONGEST_RANK = 8


def _dtype(format: str, size: int) -> int | None:
    if format[:1] in "@=<":
        format = format[1:]
    if format in "bhilqn":
        return _SIGNED.get(size)
    if format in "BHILQN":
        return _UNSIGNED.get(size)
    return _CODES.get((format, size))


def packed(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Row-major, without gaps; strides in elements."""
    expected = 1
    for extent, stride in zip(reversed(shape), reversed(strides)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


class View:
    """frt_array of one object, and what keeps its memory."""

    def __init__(self, name: str, value: Any):
        self.name = name.encode()
        self.keeps: list[Any] = [value]
        self.shape: tuple[int, ...] = ()
        if not self._buffer(name, value) and not self._dlpack(name, value):
            try:
                numbers = array.array("d", [value] if isinstance(value, (int, float)) else value)
            except TypeError:
                raise TypeError(f"'{name}' is {type(value).__name__}: neither a buffer, nor DLPack, nor numbers") from None
            self._buffer(name, numbers)
            if isinstance(value, (int, float)):
                self.shape = ()
        if len(self.shape) > _LONGEST_RANK:
            raise ValueError(f"'{name}' has {len(self.shape)} dimensions, at most {_LONGEST_RANK} are known")

    def _buffer(self, name: str, value: Any) -> bool:
        try:
            view = memoryview(value)
        except (TypeError, BufferError):
            return False
        dtype = _dtype(view.format, view.itemsize)
        if dtype is None:
            raise TypeError(f"'{name}' has elements of type '{view.format}', which no policy reads")
        self.dtype, self.shape = dtype, tuple(view.shape or ())
        if not view.c_contiguous:
            view = memoryview(view.tobytes())
        if view.nbytes == 0:
            self.data = ctypes.addressof(_EMPTY)
        elif view.readonly:
            # The address of memory that may not be written is asked of the object itself.
            held = _PyBuffer()
            ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(held), 0)
            self.data = held.buf
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(held))
        else:
            self.data = ctypes.addressof(ctypes.c_char.from_buffer(view.cast("B") if view.ndim else view))
        self.keeps.append(view)
        return True

    def _dlpack(self, name: str, value: Any) -> bool:
        if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
            return False
        device = value.__dlpack_device__()
        if device[0] not in _HOST_DEVICES:
            raise ValueError(f"'{name}' lies on device {tuple(map(int, device))} of DLPack; copy it to the CPU first")
        capsule = value.__dlpack__()
        # The capsule is not consumed: its owner takes it back when it is dropped.
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        tensor = DLTensor.from_address(get(capsule, b"dltensor"))
        dtype = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if dtype is None:
            raise TypeError(f"'{name}' has elements of DLPack type {tensor.code} with {tensor.bits} bits, which no "
                            "policy reads")
        shape = tuple(tensor.shape[:tensor.ndim])
        if tensor.strides and not packed(shape, tensor.strides[:tensor.ndim]):
            raise ValueError(f"'{name}' is not packed; make it contiguous first")
        self.dtype, self.shape = dtype, shape
        self.data = (tensor.data or ctypes.addressof(_EMPTY)) + tensor.byte_offset
        self.keeps.append(capsule)
        return True

    def array(self) -> c.frt_array:
        return c.frt_array(self.name, self.data, self.dtype, len(self.shape),
                           (ctypes.c_int64 * _LONGEST_RANK)(*self.shape))


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_EMPTY = ctypes.c_char()
