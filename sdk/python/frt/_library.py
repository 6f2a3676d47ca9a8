# SPDX-License-Identifier: Apache-2.0
"""libfrt.so: its structs and functions as frt/embed.h declares them (tests compare the two), and calls whose errors
are exceptions."""
from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import sys
import weakref
from collections.abc import Callable
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32,
                    c_uint64, c_void_p)
from typing import Any

from ._errors import Status, error_of

SONAME = "libfrt.so.0.1"
NO_TIMEOUT = 2**64 - 1
DEVICE_SPACE, PINNED_SPACE, HOST_SPACE, SHARED_SPACE = range(4)


class Sized(Structure):
    """A struct that says its size."""

    def __init__(self, **members: Any):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **members)


LogCall = CFUNCTYPE(None, c_void_p, c_uint32, c_char_p, c_char_p)
ProgressCall = CFUNCTYPE(c_int32, c_void_p, c_char_p, c_uint32, c_uint64, c_uint64)


class frt_error(Structure):
    _fields_ = [("code", c_int32), ("message", c_char * 512)]


class frt_embed_versions(Sized):
    _fields_ = [("struct_size", c_uint32), ("embed_major", c_uint32), ("embed_minor", c_uint32),
                ("abi_major", c_uint32), ("abi_minor", c_uint32), ("reserved", c_uint32)]


class frt_runtime_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("manifest", c_char_p), ("manifest_text", c_char_p),
                ("base_folder", c_char_p), ("plugin_folders", POINTER(c_char_p)), ("plugin_folder_count", c_uint32),
                ("set_count", c_uint32), ("sets", POINTER(c_char_p)), ("log_level", c_uint32), ("reserved", c_uint32),
                ("log", LogCall), ("log_user", c_void_p), ("progress", ProgressCall), ("progress_user", c_void_p)]


class frt_runtime_device(Sized):
    _fields_ = [("struct_size", c_uint32), ("compute_units", c_uint32), ("name", c_char_p), ("backend", c_char_p),
                ("product", c_char_p), ("architecture", c_char_p), ("memory_total", c_uint64),
                ("memory_free", c_uint64)]


class frt_runtime_model(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("name", c_char_p), ("plugin", c_char_p),
                ("device", c_char_p), ("checkpoint", c_char_p)]


class frt_device_tables(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("name", c_char_p), ("context", c_void_p),
                ("exec_table", c_void_p)]


class frt_instance_tables(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("name", c_char_p), ("model_table", c_void_p),
                ("model", c_void_p), ("exec_table", c_void_p), ("context", c_void_p), ("state_table", c_void_p),
                ("capsules_table", c_void_p)]


class frt_lm_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("queue_limit", c_uint32)]


class frt_lm_facts(Sized):
    _fields_ = [("struct_size", c_uint32), ("vocabulary", c_uint32), ("context", c_uint32), ("slots", c_uint32),
                ("has_tokenizer", c_uint32), ("has_chat", c_uint32), ("name", c_char_p)]


class frt_sampling_options(Structure):
    _fields_ = [("given", c_uint32), ("temperature", c_float), ("top_p", c_float), ("min_p", c_float),
                ("top_k", c_int32), ("repetition_penalty", c_float), ("presence_penalty", c_float),
                ("frequency_penalty", c_float), ("seed", c_uint64)]


class frt_generate_request(Sized):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("prompt", c_char_p), ("prompt_bytes", c_uint64),
                ("prompt_ids", POINTER(c_int32)), ("prompt_id_count", c_uint64), ("messages", c_char_p),
                ("tools", c_char_p), ("chat_options", c_char_p), ("max_tokens", c_uint64),
                ("sampling", frt_sampling_options), ("stops", POINTER(c_char_p)), ("stop_count", c_uint32),
                ("priority", c_int32), ("stop_ids", POINTER(c_int32)), ("stop_id_count", c_uint64),
                ("deadline_ms", c_uint64)]


class frt_generation_event(Sized):
    _fields_ = [("struct_size", c_uint32), ("kind", c_uint32), ("text", c_void_p), ("bytes", c_uint64),
                ("call", c_uint32), ("token", c_int32), ("log_probability", c_float), ("reserved", c_uint32)]


class frt_generation_result(Sized):
    _fields_ = [("struct_size", c_uint32), ("finish", c_uint32), ("prompt_tokens", c_uint64),
                ("reused_tokens", c_uint64), ("new_tokens", c_uint64), ("seed", c_uint64), ("queue_seconds", c_double),
                ("prefill_seconds", c_double), ("decode_seconds", c_double), ("stop_text", c_char_p)]


class frt_capsule_facts(Sized):
    _fields_ = [("struct_size", c_uint32), ("space", c_uint32), ("tokens", c_uint64), ("bytes", c_uint64),
                ("other_build", c_char_p)]


class frt_server_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("model_count", c_uint32), ("models", POINTER(c_char_p)),
                ("listen", c_char_p), ("drain_ms", c_uint64)]


class frt_server_facts(Sized):
    _fields_ = [("struct_size", c_uint32), ("port", c_uint32), ("device_lost", c_uint32), ("model_count", c_uint32),
                ("models", POINTER(c_char_p)), ("address", c_char_p)]


class frt_policy_facts(Sized):
    _fields_ = [("struct_size", c_uint32), ("horizon", c_uint32), ("action_dim", c_uint32), ("network_dim", c_uint32),
                ("state_dim", c_uint32), ("views", c_uint32), ("default_steps", c_uint32),
                ("guidance_branches", c_uint32), ("name", c_char_p), ("inputs", c_char_p), ("metadata", c_char_p)]


class frt_infer_options(Sized):
    _fields_ = [("struct_size", c_uint32), ("steps", c_uint32), ("seed", c_uint64), ("draw", c_uint64)]


class frt_array(Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("dtype", c_uint32), ("rank", c_uint32),
                ("shape", c_int64 * 8)]


class frt_observation(Sized):
    _fields_ = [("struct_size", c_uint32), ("array_count", c_uint32), ("arrays", POINTER(frt_array)),
                ("prompt", c_char_p), ("prompt_tokens", POINTER(c_int32)), ("prompt_token_count", c_uint32),
                ("reserved", c_uint32), ("options", c_char_p)]


EventSink = CFUNCTYPE(c_int32, c_void_p, POINTER(frt_generation_event))

_H, _OUT = c_void_p, POINTER(c_void_p)  # a handle, and where one is written
# Arguments without the final frt_error; CLOSING have none.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "frt_embed_version": (POINTER(frt_embed_versions),),
    "frt_runtime_open": (POINTER(frt_runtime_options), _OUT),
    "frt_runtime_device_at": (_H, c_uint32, POINTER(frt_runtime_device)),
    "frt_runtime_model_at": (_H, c_uint32, POINTER(frt_runtime_model)),
    "frt_device_open": (_H, c_char_p, _OUT),
    "frt_device_tables_of": (_H, POINTER(frt_device_tables)),
    "frt_device_extension": (_H, c_char_p, _OUT),
    "frt_instance_open": (_H, c_char_p, _OUT),
    "frt_instance_tables_of": (_H, POINTER(frt_instance_tables)),
    "frt_instance_extension": (_H, c_char_p, _OUT),
    "frt_lm_open": (_H, c_char_p, POINTER(frt_lm_options), _OUT),
    "frt_lm_facts_of": (_H, POINTER(frt_lm_facts)),
    "frt_lm_encode": (_H, c_char_p, c_uint64, c_uint32, POINTER(c_int32), c_uint64, POINTER(c_uint64)),
    "frt_lm_decode": (_H, POINTER(c_int32), c_uint64, c_uint32, c_char_p, c_uint64, POINTER(c_uint64)),
    "frt_lm_render": (_H, c_char_p, c_char_p, c_char_p, c_char_p, c_uint64, POINTER(c_uint64)),
    "frt_lm_generate": (_H, _H, POINTER(frt_generate_request), _OUT),
    "frt_generation_next": (_H, c_uint64, POINTER(frt_generation_event)),
    "frt_generation_run": (_H, EventSink, c_void_p),
    "frt_generation_result_of": (_H, POINTER(frt_generation_result)),
    "frt_session_open": (_H, _OUT),
    "frt_session_tokens": (_H, POINTER(c_int32), c_uint64, POINTER(c_uint64)),
    "frt_session_held": (_H, POINTER(c_uint64)),
    "frt_session_fork": (_H, _OUT),
    "frt_session_snapshot": (_H, c_uint32, _OUT),
    "frt_session_restore": (_H, _H),
    "frt_lm_capsule_facts": (_H, POINTER(frt_capsule_facts)),
    "frt_lm_capsule_save": (_H, c_char_p, c_char_p, c_uint32),
    "frt_lm_capsule_load": (_H, c_char_p, c_char_p, _OUT),
    "frt_server_open": (_H, POINTER(frt_server_options), _OUT),
    "frt_server_facts_of": (_H, POINTER(frt_server_facts)),
    "frt_policy_open": (_H, c_char_p, _OUT),
    "frt_policy_facts_of": (_H, POINTER(frt_policy_facts)),
    "frt_policy_observe": (_H, POINTER(frt_observation)),
    "frt_policy_guide": (_H, POINTER(c_double), c_uint32, c_uint32),
    "frt_policy_infer": (_H, POINTER(frt_infer_options), POINTER(c_double), c_uint64, POINTER(c_float), c_uint64),
    "frt_policy_snapshot": (_H, _OUT),
    "frt_policy_restore": (_H, _H),
    "frt_policy_capsule_facts": (_H, POINTER(frt_capsule_facts)),
}
CLOSING = ("frt_runtime_close", "frt_device_close", "frt_instance_close", "frt_lm_close", "frt_generation_close",
           "frt_generation_cancel", "frt_session_close", "frt_lm_capsule_close", "frt_server_close",
           "frt_policy_close", "frt_policy_capsule_close")


def _places() -> list[str]:
    """Where the library may be: what FRT_LIBRARY names alone, else beside the package, in a prefix, and where the
    dynamic linker looks."""
    if given := os.environ.get("FRT_LIBRARY"):
        return [given]
    package = pathlib.Path(__file__).resolve().parent
    # In an installed prefix the package lies in lib/python3/dist-packages, the library in lib.
    folders = [package, package / "lib", *package.parents[2:3], pathlib.Path(sys.prefix) / "lib"]
    if prefix := os.environ.get("FRT_PREFIX"):
        folders.insert(0, pathlib.Path(prefix) / "lib")
    files = [str(folder / SONAME) for folder in folders if (folder / SONAME).exists()]
    return [*files, SONAME]


@functools.cache
def library() -> ctypes.CDLL:
    problems = []
    for place in _places():
        try:
            loaded = ctypes.CDLL(place)
        except OSError as error:
            problems.append(str(error))
            continue
        for name, arguments in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.argtypes, function.restype = [*arguments, POINTER(frt_error)], c_int32
        for name in CLOSING:
            function = getattr(loaded, name)
            function.argtypes, function.restype = [c_void_p], c_int32
        loaded.frt_embed_status_name.argtypes, loaded.frt_embed_status_name.restype = [c_int32], c_char_p
        return loaded
    raise ImportError(f"{SONAME} is not there: {'; '.join(problems)}; set FRT_LIBRARY to the file, or FRT_PREFIX to "
                      "the folder that `cmake --install --component runtime` wrote to")


def library_path() -> str:
    """The file that is in use."""
    return library()._name


def call(name: str, *arguments: Any) -> None:
    """Calls a function of the library; an error is an exception."""
    error = frt_error()
    status = getattr(library(), name)(*arguments, ctypes.byref(error))
    if status != Status.OK:
        raise error_of(status, error.message.decode(errors="replace"))


def opened(name: str, *arguments: Any) -> int:
    """The handle that a function writes behind its other arguments."""
    handle = c_void_p()
    call(name, *arguments, ctypes.byref(handle))
    assert handle.value is not None
    return handle.value


def text_of(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(path)


def texts(values: list[bytes]) -> Any:
    return (c_char_p * len(values))(*values) if values else None


def ids_of(name: str, *arguments: Any) -> list[int]:
    """What a call with room, capacity and count gives, of ids; the size may change between two calls."""
    count, room = c_uint64(), (c_int32 * 0)()
    while True:
        call(name, *arguments, room if len(room) else None, len(room), ctypes.byref(count))
        if count.value <= len(room):
            return room[:count.value]
        room = (c_int32 * count.value)()


def text_from(name: str, *arguments: Any) -> str:
    count, room = c_uint64(), ctypes.create_string_buffer(4096)
    while True:
        call(name, *arguments, room, len(room), ctypes.byref(count))
        if count.value < len(room):
            return room.raw[:count.value].decode()
        room = ctypes.create_string_buffer(count.value + 1)


def _close_in(process: int, close: Callable[[int], Any], handle: int) -> None:
    """A process that was forked has a copy of the handles, and none of the threads behind them."""
    if os.getpid() == process:
        close(handle)


class Handle:
    """Owns one handle, and closes it once: with close(), at the end of `with`, or when nobody holds it."""
    _close = ""

    def __init__(self, handle: int):
        self._handle: int | None = handle
        self._closing: Callable[[], Any] = weakref.finalize(self, _close_in, os.getpid(), getattr(library(), self._close),
                                                            handle)

    def close(self) -> None:
        """Closing twice is no error."""
        self._handle = None
        self._closing()

    @property
    def closed(self) -> bool:
        return self._handle is None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
