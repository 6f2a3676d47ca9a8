# SPDX-License-Identifier: Apache-2.0
"""DLPack 1.x by ctypes: buffers given to other libraries, and their memory taken, without a copy."""
from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from typing import Any

CPU, CUDA, CUDA_HOST, ROCM, ROCM_HOST, CUDA_MANAGED = 1, 2, 3, 10, 11, 13
_READ_ONLY, _PLAIN, _VERSIONED = 1, b"dltensor", b"dltensor_versioned"
_USED = {_PLAIN: b"used_dltensor", _VERSIONED: b"used_dltensor_versioned"}


class DLTensor(Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)),
                ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]


_Deleter = CFUNCTYPE(None, c_void_p)


class _Managed(Structure):
    _fields_ = [("tensor", DLTensor), ("manager", c_void_p), ("deleter", _Deleter)]


class _ManagedVersioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("manager", c_void_p), ("deleter", _Deleter),
                ("flags", c_uint64), ("tensor", DLTensor)]


_python = ctypes.pythonapi
_python.PyCapsule_New.restype, _python.PyCapsule_New.argtypes = py_object, [c_void_p, c_char_p, c_void_p]
_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _python))
_valid = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _python))
_rename = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_SetName", _python))

# What was given away and is not given back: address -> what keeps it, the capsule last.
_given: dict[int, list[Any]] = {}


@_Deleter
def _give_back(address: int) -> None:
    _given.pop(address, None)


def sweep() -> None:
    """Lets go of what is in capsules that nobody took and nobody but this table holds. A capsule has no destructor for
    it: one of Python's cannot run while an error is set, as where a library refuses a tensor."""
    for address, kept in list(_given.items()):
        if sys.getrefcount(kept[-1]) == 2 and any(_valid(id(kept[-1]), name) for name in (_PLAIN, _VERSIONED)):
            _given.pop(address, None)


def give(keeps: Any, pointer: int, device: tuple[int, int], code: int, bits: int, shape: Sequence[int],
         versioned: bool) -> Any:
    """A capsule of row-major memory, which `keeps` keeps alive until its taker is done."""
    rank = len(shape)
    sizes, strides = (c_int64 * max(rank, 1))(*shape), (c_int64 * max(rank, 1))()
    step = 1
    for axis in reversed(range(rank)):
        strides[axis] = step
        step *= shape[axis]
    managed: Any = _ManagedVersioned(major=1, minor=0) if versioned else _Managed()
    managed.deleter = _give_back
    managed.tensor = DLTensor(pointer if step else None, *device, rank, code, bits, 1, sizes, strides, 0)
    address = ctypes.addressof(managed)
    capsule = _python.PyCapsule_New(address, _VERSIONED if versioned else _PLAIN, None)
    _given[address] = [keeps, managed, sizes, strides, capsule]
    return capsule


class Taken:
    """A tensor of another library, until release()."""

    def __init__(self, capsule: Any):
        name = next((name for name in (_VERSIONED, _PLAIN) if _valid(id(capsule), name)), None)
        if name is None:
            raise TypeError("__dlpack__() gave no capsule of DLPack, or one that was taken before")
        address = _pointer(id(capsule), name)
        managed: Any = (_ManagedVersioned if name == _VERSIONED else _Managed).from_address(address)
        if name == _VERSIONED and managed.major != 1:
            raise TypeError(f"a tensor of DLPack {managed.major}.x, this package knows 1.x")
        self.tensor: DLTensor = managed.tensor
        self.read_only = name == _VERSIONED and bool(managed.flags & _READ_ONLY)
        self._release: Callable[[], None] | None = lambda: managed.deleter and managed.deleter(address)
        _rename(capsule, _USED[name])

    def release(self) -> None:
        release, self._release = self._release, None
        if release:
            release()
