# SPDX-License-Identifier: Apache-2.0
"""The tables of frt/exec.h and of the drafts beside it, as their headers declare them (a test compares the order)."""
from __future__ import annotations

import ctypes
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_int32, c_size_t, c_uint8,
                    c_uint32, c_uint64, c_void_p)
from typing import Any

from ._library import Sized, frt_error

_P, _OUT, _ERROR = c_void_p, POINTER(c_void_p), POINTER(frt_error)


class frt_device_info(Structure):
    _fields_ = [("struct_size", c_uint32), ("ordinal", c_uint32), ("name", c_char * 128),
                ("architecture", c_char * 32), ("driver", c_char * 64), ("detail", c_char * 192),
                ("memory_total", c_uint64), ("memory_free", c_uint64), ("compute_units", c_uint32),
                ("dlpack_type", c_uint32), ("flags", c_uint32), ("reserved", c_uint32), ("numerics", c_char * 192)]


class frt_context_info(Sized):
    _fields_ = [("struct_size", c_uint32), ("eager", c_uint32), ("name", c_char_p), ("backend_id", c_char_p),
                ("native_kind", c_char_p), ("device", POINTER(frt_device_info)), ("memory_total", c_uint64),
                ("memory_free", c_uint64)]


class frt_counters(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("captures", c_uint64),
                ("captures_since_ready", c_uint64), ("replays", c_uint64), ("evictions", c_uint64),
                ("buffer_bytes", c_uint64 * 8)]


class frt_buffer_info(Sized):
    _fields_ = [("struct_size", c_uint32), ("space", c_uint32), ("name", c_char_p), ("pointer", c_void_p),
                ("bytes", c_uint64)]


class frt_recorder(Structure):
    _fields_ = [("struct_size", c_uint32), ("capturing", c_uint32), ("context", c_void_p), ("stream", c_void_p),
                ("backend_stream", c_void_p)]


class frt_copy(Structure):
    _fields_ = [("target", c_void_p), ("target_offset", c_uint64), ("source", c_void_p),
                ("source_offset", c_uint64), ("bytes", c_uint64)]


Launch = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, _ERROR)
Supports = CFUNCTYPE(c_int32, c_void_p, c_void_p, _ERROR)


class frt_kernel(Structure):
    _fields_ = [("self", c_void_p), ("launch", c_void_p), ("supports", c_void_p)]


Record = CFUNCTYPE(c_int32, c_void_p, POINTER(frt_recorder), c_uint64, _ERROR)
Done = CFUNCTYPE(None, c_void_p)
HostFunction = CFUNCTYPE(c_int32, c_void_p, _ERROR)

# Name, result, arguments; in the order of the struct.
EXEC: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("context_info", c_int32, (_P, POINTER(frt_context_info))),
    ("context_counters", c_int32, (_P, POINTER(frt_counters))),
    ("context_ready", None, (_P,)),
    ("context_sync", c_int32, (_P,)),
    ("context_last_error", None, (_P, _ERROR)),
    ("buffer_alloc", c_int32, (_P, c_uint32, c_uint64, c_char_p, _OUT, _ERROR)),
    ("buffer_wrap", c_int32, (_P, c_uint32, _P, c_uint64, c_char_p, Done, _P, _OUT, _ERROR)),
    ("buffer_view", c_int32, (_P, c_uint64, c_uint64, c_char_p, _OUT, _ERROR)),
    ("buffer_retain", None, (_P,)),
    ("buffer_release", None, (_P,)),
    ("buffer_info", c_int32, (_P, POINTER(frt_buffer_info))),
    ("buffer_copy", c_int32, (_P, c_uint64, _P, c_uint64, c_uint64, _P)),
    ("buffer_copy_batch", c_int32, (POINTER(frt_copy), c_uint64, _P)),
    ("buffer_fill", c_int32, (_P, c_uint64, c_uint64, c_uint8, _P)),
    ("stream_create", c_int32, (_P, c_int32, c_char_p, _OUT, _ERROR)),
    ("stream_wrap", c_int32, (_P, _P, c_char_p, _OUT, _ERROR)),
    ("stream_release", None, (_P,)),
    ("stream_sync", c_int32, (_P,)),
    ("stream_wait", c_int32, (_P, _P)),
    ("stream_native", c_void_p, (_P,)),
    ("stream_backend", c_void_p, (_P,)),
    ("event_create", c_int32, (_P, c_uint32, _OUT, _ERROR)),
    ("event_release", None, (_P,)),
    ("event_record", c_int32, (_P, _P)),
    ("event_query", c_int32, (_P,)),
    ("event_sync", c_int32, (_P,)),
    ("event_elapsed", c_int32, (_P, _P, POINTER(c_double))),
    ("graph_create", c_int32, (_P, c_char_p, c_uint32, _OUT, _ERROR)),
    ("graph_release", None, (_P,)),
    ("graph_capture", c_int32, (_P, c_uint64, Record, _P, _ERROR)),
    ("graph_replay", c_int32, (_P, c_uint64, _P)),
    ("graph_has_variant", c_uint32, (_P, c_uint64)),
    ("graph_evict", c_int32, (_P, c_uint64)),
    ("graph_variant_count", c_uint32, (_P,)),
    ("graph_keys", c_uint32, (_P, POINTER(c_uint64), c_uint32)),
    ("kernels_resolve", c_int32, (_P, _P, POINTER(c_char_p), c_uint64, c_uint64, c_uint64, _P, c_uint32,
                                  POINTER(frt_kernel), _ERROR)),
    ("kernels_register", c_int32, (_P, _P, c_uint64, c_uint32, _OUT, _ERROR)),
    ("kernels_release", None, (_P,)),
    ("stream_call", c_int32, (_P, _P, HostFunction, _P, Done, _ERROR)),
    ("backend_stream_native", c_void_p, (_P, _P)),
    ("buffer_copy_between", c_int32, (_P, c_uint64, _P, _P, c_uint64, _P, c_uint64, _ERROR)),
)
GRAPH_ID, GRAPH = b"frt.graph/draft2", (
    ("declare", c_int32, (_P, c_char_p, c_uint32, _ERROR)),
    ("bind", c_int32, (_P, c_char_p, _P, _ERROR)),
    ("bound", c_int32, (_P, c_char_p, _OUT)),
    ("adopt", c_int32, (_P, c_uint64, _P, c_uint32, _ERROR)),
)
PLAN_ID, PLAN = b"frt.plan/draft1", (
    ("create", c_int32, (_P, c_char_p, _OUT, _ERROR)),
    ("release", None, (_P,)),
    ("add", c_int32, (_P, _P, c_uint64, _P, POINTER(c_uint32), _ERROR)),
    ("after", c_int32, (_P, c_uint32, c_uint32, _ERROR)),
    ("compile", c_int32, (_P, c_uint32, _ERROR)),
    ("fused", c_uint32, (_P,)),
    ("execute", c_int32, (_P, _P)),
)


class Table:
    """The functions at an address, as attributes."""

    def __init__(self, address: int, members: tuple[tuple[str, Any, tuple[Any, ...]], ...], sized: bool):
        first = 8 if sized else 0  # struct_size and what fills it up
        bytes_needed = first + len(members) * ctypes.sizeof(c_void_p)
        if sized and c_uint32.from_address(address).value < bytes_needed:
            raise ImportError("libfrt.so is older than this package: a table lacks functions")
        pointers = (c_size_t * len(members)).from_address(address + first)
        for (name, result, arguments), pointer in zip(members, pointers):
            setattr(self, name, CFUNCTYPE(result, *arguments)(pointer))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


__all__ = ["EXEC", "GRAPH", "GRAPH_ID", "PLAN", "PLAN_ID", "Done", "HostFunction", "Launch", "Record", "Supports",
           "Table", "frt_buffer_info", "frt_context_info", "frt_copy", "frt_counters", "frt_device_info",
           "frt_kernel", "frt_recorder"]
