# SPDX-License-Identifier: Apache-2.0
"""A device's buffers, streams, graphs and plans (frt/exec.h), and memory shared with other libraries.

    context = frt.load("m.toml").context("gpu0")
    x = context.wrap(tensor)                    # torch's memory, no copy
    y = context.buffer((64, 128), "f32")
    graph = context.graph("copy")
    graph.capture(1, lambda recorder: recorder.copy(y, x))
    graph.replay(1, stream)
    stream.sync()
    other = torch.from_dlpack(y)

One thread at a time works on a device: calls of several threads take turns here, but a policy of that device must not
infer at the same time. Work runs in the order of its stream. Sharing memory orders nothing: wrap the other library's
stream, or wait for it.
"""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _dlpack, _exec_tables as tables, _library as c
from ._arrays import packed
from ._errors import Error, NotReady, Status, error_of

DTYPES = ("", "f32", "bf16", "f16", "f8_e4m3", "f8_e5m2", "f4_e2m1", "i8", "u8", "i32", "u32", "i64", "u64", "f64",
          "i16", "u16", "bool", "f8_e8m0", "u4", "i4")
SPACES = ("device", "pinned", "host", "shared")
_BITS = (0, 32, 16, 16, 8, 8, 4, 8, 8, 32, 32, 64, 64, 64, 16, 16, 8, 8, 4, 4)
_DLPACK_CODES = {"f32": 2, "bf16": 4, "f16": 2, "f8_e4m3": 10, "f8_e5m2": 12, "f4_e2m1": 17, "i8": 0, "u8": 1, "i32": 0,
                 "u32": 1, "i64": 0, "u64": 1, "f64": 2, "i16": 0, "u16": 1, "bool": 6, "f8_e8m0": 14}
_FORMATS = {"f32": "f", "f16": "e", "i8": "b", "u8": "B", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f64": "d",
            "i16": "h", "u16": "H", "bool": "?"}
_TYPESTR = {"f32": "<f4", "f16": "<f2", "i8": "|i1", "u8": "|u1", "i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8",
            "f64": "<f8", "i16": "<i2", "u16": "<u2", "bool": "|b1"}


def key(kind: int, a: int = 0, b: int = 0, c: int = 0) -> int:
    """Packs four 16-bit fields, as frt_key_pack."""
    if any(not 0 <= field < 1 << 16 for field in (kind, a, b, c)):
        raise ValueError("a field of a key has 16 bits")
    return kind << 48 | a << 32 | b << 16 | c


def _dtype(name: str) -> int:
    if name not in DTYPES or not name:
        raise ValueError(f"dtype '{name}' is none of: {', '.join(DTYPES[1:])}")
    return DTYPES.index(name)


def _bytes(shape: Sequence[int], dtype: str) -> int:
    if any(size < 0 for size in shape):
        raise ValueError("a size is negative")
    return -(-math.prod(shape) * _BITS[_dtype(dtype)] // 8)


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class _Turn:
    """Of the threads that work on one device, whoever opened it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0      # of calls within calls: a recording's


_turns: weakref.WeakValueDictionary[int, _Turn] = weakref.WeakValueDictionary()


class _Driver:
    """The device's handle, its table, and turns of threads. What nobody holds any more is released by the next call:
    never while a recording is made, nor on a thread that is in the middle of another call. What another library still
    reads is released when it is done, and the device after it."""

    def __init__(self, handle: int):
        found = c.frt_device_tables()
        c.call("frt_device_tables_of", handle, ctypes.byref(found))
        self.handle, self.context = handle, found.context
        self.exec = tables.Table(found.exec_table, tables.EXEC, sized=True)
        self.turn = _turns.setdefault(self.context, _Turn())
        self.process = os.getpid()
        self.numbers = itertools.count(1)
        self.live: dict[int, tuple[Callable[[Any], None], int]] = {}  # how each object is released, and its handle
        self.dropped: list[int] = []
        self.holds: dict[int, Any] = {}     # what an object works on, until it is released
        self.exports: dict[int, set[int]] = {}  # the takers of a buffer; what ends one, on any thread, is one step
        self.closed: set[int] = set()       # objects that are closed, and have takers
        self.kept: dict[int, Any] = {}  # what the library calls, or borrows, by the number it is given
        self.open = True
        self.to_close = [handle]
        self.closing = False    # close() is at it
        self._drafts: dict[bytes, tables.Table] = {}
        _drivers.add(self)

    def draft(self, id: bytes, members: Any) -> tables.Table:
        if id not in self._drafts:
            self._drafts[id] = tables.Table(c.opened("frt_device_extension", self.handle, id), members, sized=False)
        return self._drafts[id]

    def __enter__(self) -> _Driver:
        if os.getpid() != self.process:
            raise error_of(Status.BAD_STATE, "the device is that of the process that opened it, not of a forked one")
        self.turn.lock.acquire()
        if not self.open:
            self.turn.lock.release()
            raise error_of(Status.BAD_STATE, "the device is closed")
        if self.turn.depth == 0:
            self.release_dropped()
        self.turn.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.turn.depth -= 1
        self.turn.lock.release()

    def do(self, function: Any, *arguments: Any) -> None:
        """A call that writes a frt_error. Objects stand for their handles, which are looked up in this thread's turn."""
        error = c.frt_error()
        with self:
            status = function(*map(_plain, arguments), ctypes.byref(error))
        if status != Status.OK:
            raise error_of(status, error.message.decode(errors="replace"))

    def submit(self, function: Any, *arguments: Any) -> None:
        """A call whose words are asked for afterwards."""
        with self:
            status = function(*map(_plain, arguments))
            if status == Status.OK:
                return
            error = c.frt_error()
            self.exec.context_last_error(self.context, ctypes.byref(error))
        raise error_of(status, error.message.decode(errors="replace"))

    def ask(self, function: Any, *arguments: Any) -> Any:
        """A call that cannot fail."""
        with self:
            return function(*map(_plain, arguments))

    def make(self, function: Any, *arguments: Any) -> int:
        """The handle that a call writes behind its arguments."""
        made = ctypes.c_void_p()
        self.do(function, *arguments, ctypes.byref(made))
        assert made.value is not None
        return made.value

    def keep(self, value: Any) -> int:
        number = next(self.numbers)
        self.kept[number] = value
        return number

    def add(self, release: Callable[[Any], None], handle: int, holds: Any) -> int:
        number = next(self.numbers)
        self.live[number] = (release, handle)
        self.holds[number] = holds
        return number

    def release_one(self, number: int) -> None:
        if self.exports.get(number):
            self.closed.add(number)
            return
        release, handle = self.live.pop(number, (None, 0))
        if release:
            release(handle)
        self.closed.discard(number)
        self.exports.pop(number, None)
        self.holds.pop(number, None)    # after the work that reads it

    def export(self, number: int, keeps: Any) -> _Export:
        """What a taker holds: while one does, the memory stays."""
        export, taker = _Export(keeps), next(self.numbers)
        self.exports.setdefault(number, set()).add(taker)
        weakref.finalize(export, self.export_over, number, taker).atexit = False
        return export

    def export_over(self, number: int, taker: int) -> None:
        self.exports.get(number, set()).discard(taker)
        if os.getpid() != self.process:
            return
        if self.open:
            self.dropped.extend([number] if number in self.closed else [])
        elif not self.closing and not any(self.exports.values()):
            self.finish()

    def release_dropped(self) -> None:
        _dlpack.sweep()
        while self.dropped:
            self.release_one(self.dropped.pop(0))

    def close(self) -> None:
        if os.getpid() != self.process:
            self.open = False
            return
        with self.turn.lock:
            if not self.open:
                return
            _dlpack.sweep()
            self.open, self.closing = False, True
            for number in sorted(self.live, reverse=True):
                self.release_one(number)
            self.closing = False
            if not any(self.exports.values()):
                self.finish()

    def finish(self) -> None:
        """Once, by whoever comes first."""
        while self.to_close:
            for number in sorted(self.live, reverse=True):
                self.release_one(number)
            with contextlib.suppress(IndexError):
                c.library().frt_device_close(self.to_close.pop())

    def __del__(self) -> None:
        if getattr(self, "open", False):
            self.close()


_drivers: weakref.WeakSet[_Driver] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for driver in list(_drivers):
        driver.close()


class _Export:
    """Held by who takes a buffer's memory."""

    def __init__(self, keeps: Any):
        self.keeps = keeps


def _plain(value: Any) -> Any:
    return value._handle if isinstance(value, _Owned) else value


class _Owned:
    """One object of a device: released with close(), after nobody holds it, or with its device. `holds`: what its work
    reads and writes, kept until it is released."""

    def __init__(self, driver: _Driver, release: Callable[[Any], None], handle: int, holds: Any = None):
        self._driver, self._native_handle = driver, handle
        self._number = driver.add(release, handle, holds)
        weakref.finalize(self, driver.dropped.append, self._number).atexit = False

    @property
    def _handle(self) -> int:
        if self._number not in self._driver.live or self._number in self._driver.closed:
            raise error_of(Status.BAD_STATE, f"the {type(self).__name__.lower()} is closed")
        return self._native_handle

    def close(self) -> None:
        """Waits for its work. Closing twice is no error."""
        if self._driver.open:
            with self._driver:
                self._driver.release_one(self._number)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Stream(_Owned):
    """Work in order. Streams run beside each other."""

    @property
    def native(self) -> int:
        """Of the device's API, cudaStream_t for "cuda"; 0: its default stream, or none (the CPU)."""
        return self._driver.ask(self._driver.exec.stream_native, self) or 0

    def sync(self) -> None:
        """Waits for its work; raises what a part of it met."""
        self._driver.submit(self._driver.exec.stream_sync, self)

    def wait(self, event: Event) -> None:
        """Later work waits for the event, the caller does not."""
        self._driver.submit(self._driver.exec.stream_wait, self, event)


class Event(_Owned):
    def record(self, stream: Stream) -> None:
        self._driver.submit(self._driver.exec.event_record, self, stream)

    def done(self) -> bool:
        try:
            self._driver.submit(self._driver.exec.event_query, self)
        except NotReady:
            return False
        return True

    def sync(self) -> None:
        self._driver.submit(self._driver.exec.event_sync, self)

    def elapsed_ms(self, end: Event) -> float:
        """Until `end`; both were made with timing, and are done."""
        ms = ctypes.c_double()
        self._driver.submit(self._driver.exec.event_elapsed, self, end, ctypes.byref(ms))
        return ms.value


class Buffer(_Owned):
    """Memory of a device or of the host, row-major. It is no array: what computes on it is a graph, or the library
    that shares it (DLPack, __cuda_array_interface__, and for host memory the buffer protocol through memory())."""

    def __init__(self, driver: _Driver, handle: int, shape: tuple[int, ...], dtype: str, parent: Buffer | None = None):
        super().__init__(driver, driver.exec.buffer_release, handle)
        info = tables.frt_buffer_info()
        driver.submit(driver.exec.buffer_info, handle, ctypes.byref(info))
        self.shape, self.dtype = shape, dtype
        self.name = c.text_of(info.name)
        self.space: str = SPACES[info.space]
        self.pointer: int = info.pointer
        self.nbytes: int = info.bytes
        self._parent = parent

    def view(self, shape: int | Sequence[int], dtype: str | None = None, offset: int = 0, name: str = "view") -> Buffer:
        """A part from byte `offset` on, of the same memory."""
        dtype = dtype or self.dtype
        handle = self._driver.make(self._driver.exec.buffer_view, self, offset, _bytes(_shape(shape), dtype),
                                   name.encode())
        return Buffer(self._driver, handle, _shape(shape), dtype, self)

    def copy_from(self, source: Buffer, stream: Stream, *, nbytes: int | None = None, offset: int = 0,
                  source_offset: int = 0) -> None:
        """In the order of `stream`; None: as much as `source` has behind its offset. Offsets in bytes."""
        self._driver.submit(self._driver.exec.buffer_copy, self, offset, source, source_offset,
                            source.nbytes - source_offset if nbytes is None else nbytes, stream)

    def fill(self, value: int, stream: Stream, *, nbytes: int | None = None, offset: int = 0) -> None:
        """Every byte, 0 to 255, in the order of `stream`."""
        if not 0 <= value <= 255:
            raise ValueError("a byte is 0 to 255")
        self._driver.submit(self._driver.exec.buffer_fill, self, offset,
                            self.nbytes - offset if nbytes is None else nbytes, value, stream)

    def memory(self) -> memoryview:
        """Host and shared memory itself, writable, as an array where Python has the dtype, else as bytes. The memory
        stays while somebody holds the view; no work that touches the bytes may be in flight."""
        if self.space == "device" and not self._host_device():
            raise BufferError(f"buffer '{self.name}' lies in the device's memory; copy it to a buffer in 'pinned'")
        with self._driver:
            _ = self._handle    # it is not closed
            block = (ctypes.c_uint8 * self.nbytes).from_address(self.pointer)
            block._keeps = self._driver.export(self._number, self)  # type: ignore[attr-defined]
        view = memoryview(block).cast("B")
        if self.dtype not in _FORMATS or _bytes(self.shape, self.dtype) != self.nbytes:
            return view
        try:
            return view.cast(_FORMATS[self.dtype], list(self.shape)) if self.shape else view.cast(_FORMATS[self.dtype])
        except ValueError:      # Python 3.11 casts to no f16
            return view

    def _host_device(self) -> bool:
        return _info(self._driver).device.contents.dlpack_type == _dlpack.CPU

    def __dlpack_device__(self) -> tuple[int, int]:
        return _device_of(self._driver, self.space)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """Waits for the device's work first, unless `stream` is -1."""
        if copy:
            raise BufferError("a buffer is shared, not copied")
        if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
            raise BufferError(f"buffer '{self.name}' lies on DLPack device {self.__dlpack_device__()}")
        if self.dtype not in _DLPACK_CODES:
            raise BufferError(f"DLPack has no dtype {self.dtype}")
        self._require_whole()
        if stream != -1:
            self._driver.submit(self._driver.exec.context_sync, self._driver.context)
        with self._driver:
            _ = self._handle    # it is not closed
            export = self._driver.export(self._number, self)
        return _dlpack.give(export, self.pointer, self.__dlpack_device__(), _DLPACK_CODES[self.dtype],
                            _BITS[_dtype(self.dtype)], self.shape, bool(max_version and max_version[0] >= 1))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.__dlpack_device__()[0] not in (_dlpack.CUDA, _dlpack.CUDA_HOST, _dlpack.CUDA_MANAGED):
            raise AttributeError(f"buffer '{self.name}' is not CUDA's")
        if self.dtype not in _TYPESTR:
            raise AttributeError(f"the CUDA array interface has no dtype {self.dtype}; use DLPack")
        self._require_whole()
        return {"version": 3, "shape": self.shape, "typestr": _TYPESTR[self.dtype], "strides": None,
                "data": (self.pointer, False), "stream": None}

    def _require_whole(self) -> None:
        _ = self._handle  # it is not closed
        if _bytes(self.shape, self.dtype) > self.nbytes:
            raise BufferError(f"buffer '{self.name}' has {self.nbytes} bytes, its shape needs more")


@dataclass(frozen=True)
class Recorder:
    """What a recording submits to; good while its function runs. `native`: the device API's stream, into which another
    library may submit work that allocates nothing and waits for nothing."""
    capturing: bool
    native: int
    _driver: _Driver
    _stream: int
    _backend_stream: int

    def copy(self, target: Buffer, source: Buffer, *, nbytes: int | None = None, offset: int = 0,
             source_offset: int = 0) -> None:
        self._driver.submit(self._driver.exec.buffer_copy, target, offset, source, source_offset,
                            source.nbytes - source_offset if nbytes is None else nbytes, self._stream)

    def fill(self, buffer: Buffer, value: int, *, nbytes: int | None = None, offset: int = 0) -> None:
        self._driver.submit(self._driver.exec.buffer_fill, buffer, offset,
                            buffer.nbytes - offset if nbytes is None else nbytes, value, self._stream)

    def launch(self, kernel: Kernel, arguments: ctypes.Structure) -> None:
        kernel._launch(self._backend_stream, arguments)


Record = Callable[[Recorder], Any]


class Graph(_Owned):
    """Recorded work by keys: captured once, replayed for ever."""

    def __init__(self, driver: _Driver, handle: int):
        self._keeps: dict[int, Any] = {}  # of each variant
        self._met: list[BaseException] = []  # what a recipe raised last
        super().__init__(driver, driver.exec.graph_release, handle, self._keeps)

    def capture(self, key: int, record: Record, keep: Any = None) -> None:
        """Records `key`; replaces a variant that is there. `record` submits work, and waits for nothing. The variant
        keeps the buffers that `recorder.copy` and `.fill` touch; `keep` is for what else it reads and writes."""
        met, driver = self._met, self._driver   # not the graph itself, which goes when nobody holds it
        met.clear()

        def called(_: Any, recorder: Any, _key: int, error: Any) -> int:
            given = recorder.contents
            native = driver.exec.backend_stream_native(given.context, given.backend_stream) or 0
            try:
                record(Recorder(bool(given.capturing), native, driver, given.stream, given.backend_stream))
                return Status.OK
            except BaseException as raised:
                met[:] = [raised]
                error.contents.code = Status.CALLBACK
                error.contents.message = repr(raised).encode(errors="replace")[:500]
                return Status.CALLBACK

        function = tables.Record(called)
        with driver:
            try:
                driver.do(driver.exec.graph_capture, self, key, function, None)
            except Error:
                self._raise_what_was_met()
                raise
            self._keep(key, (function, record, keep))

    def adopt(self, key: int, executable: int, keep: Any) -> None:
        """An executable of another library (cudaGraphExec_t) as a variant. It stays that library's: `keep` is the
        object that owns it, and the memory it works on."""
        draft = self._driver.draft(tables.GRAPH_ID, tables.GRAPH)
        with self._driver:
            self._driver.do(draft.adopt, self, key, executable, 0)
            self._keep(key, keep)

    def _keep(self, key: int, keep: Any) -> None:
        self._keeps[key] = keep
        for other in list(self._keeps):     # those that were evicted to make room
            if other not in self:
                del self._keeps[other]

    def _raise_what_was_met(self) -> None:
        if self._met:
            raise self._met.pop()

    def replay(self, key: int, stream: Stream) -> None:
        """On a device without capture the recipe runs now, and what it raises is raised here."""
        try:
            self._driver.submit(self._driver.exec.graph_replay, self, key, stream)
        except Error:
            self._raise_what_was_met()
            raise

    def evict(self, key: int) -> None:
        """Waits for its last replay."""
        self._driver.submit(self._driver.exec.graph_evict, self, key)
        self._keeps.pop(key, None)

    def __contains__(self, key: int) -> bool:
        return bool(self._driver.ask(self._driver.exec.graph_has_variant, self, key))

    def __len__(self) -> int:
        return int(self._driver.ask(self._driver.exec.graph_variant_count, self))


class Plan(_Owned):
    """Graphs in an order of their data, executed as one launch where the device can. In draft, as frt/draft/plan.h."""

    def __init__(self, driver: _Driver, handle: int):
        self._table = driver.draft(tables.PLAN_ID, tables.PLAN)
        self._keeps: list[Any] = []
        super().__init__(driver, self._table.release, handle, self._keeps)

    def add(self, graph: Graph, key: int, stream: Stream, after: Iterable[int] = ()) -> int:
        """A node, which starts when the nodes `after` are done. Returns its number."""
        node = ctypes.c_uint32()
        self._driver.do(self._table.add, self, graph, key, stream, ctypes.byref(node))
        self._keeps.append((graph, stream))
        for other in after:
            self._driver.do(self._table.after, self, node.value, other)
        return node.value

    def compile(self, fuse: bool = True) -> bool:
        """Checks and prepares it, again after a change of its graphs. True: it runs as one launch."""
        self._driver.do(self._table.compile, self, 0 if fuse else 1)
        return bool(self._driver.ask(self._table.fused, self))

    def execute(self, stream: Stream) -> None:
        """After what `stream` holds; its later work runs after all of it."""
        self._driver.submit(self._table.execute, self, stream)


class Kernel:
    """An operator of the backend (frt/kernels.h)."""

    def __init__(self, driver: _Driver, name: str, found: tables.frt_kernel):
        self.name = name
        self._driver, self._found = driver, found
        self._function = tables.Launch(found.launch)

    def launch(self, stream: Stream, arguments: ctypes.Structure) -> None:
        """`arguments`: the struct of the operator's header; its first member, struct_size, is filled here."""
        with self._driver:
            self._launch(self._driver.ask(self._driver.exec.stream_backend, stream), arguments)

    def _launch(self, backend_stream: int, arguments: ctypes.Structure) -> None:
        setattr(arguments, arguments._fields_[0][0], ctypes.sizeof(arguments))
        self._driver.do(self._function, self._found.self, backend_stream, ctypes.byref(arguments))


class Context:
    """A device of a manifest. While it is open no language model drives the device."""

    def __init__(self, handle: int):
        self._driver = _Driver(handle)
        info = _info(self._driver)
        self.name, self.backend, self.native_kind = map(c.text_of, (info.name, info.backend_id, info.native_kind))
        self.eager = bool(info.eager)

    def close(self) -> None:
        """Releases everything that was made on it. Closing twice is no error."""
        self._driver.close()

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def memory_free(self) -> int:
        return int(_info(self._driver).memory_free)

    @property
    def counters(self) -> dict[str, int]:
        """captures, captures_since_ready, replays, evictions, and bytes of buffers by space."""
        found = tables.frt_counters()
        self._driver.submit(self._driver.exec.context_counters, self._driver.context, ctypes.byref(found))
        return {**{name: getattr(found, name) for name in ("captures", "captures_since_ready", "replays", "evictions")},
                **{f"{space}_bytes": found.buffer_bytes[i] for i, space in enumerate(SPACES)}}

    def sync(self) -> None:
        self._driver.submit(self._driver.exec.context_sync, self._driver.context)

    def buffer(self, shape: int | Sequence[int], dtype: str = "u8", *, space: str = "device",
               name: str = "buffer") -> Buffer:
        """New memory, uninitialised."""
        if space not in SPACES:
            raise ValueError(f"space '{space}' is none of: {', '.join(SPACES)}")
        handle = self._driver.make(self._driver.exec.buffer_alloc, self._driver.context, SPACES.index(space),
                                   _bytes(_shape(shape), dtype), name.encode())
        return Buffer(self._driver, handle, _shape(shape), dtype)

    def wrap(self, value: Any, name: str = "wrapped") -> Buffer:
        """The memory of a packed array of another library: DLPack (torch, numpy, jax), __cuda_array_interface__, or
        the buffer protocol. No copy; the array lives as long as the buffer does. TypeError, BufferError for what
        cannot be shared: another device, strides, read-only or empty memory."""
        for share in (self._of_dlpack, self._of_cuda, self._of_buffer):
            shared = share(value)
            if shared:
                return self._wrapped(name, *shared)
        raise TypeError(f"{type(value).__name__} offers neither DLPack, nor __cuda_array_interface__, nor a buffer")

    def _wrapped(self, name: str, pointer: int, space: str, shape: tuple[int, ...], dtype: str, keeps: Any) -> Buffer:
        nbytes = _bytes(shape, dtype)
        number = self._driver.keep(keeps)
        try:
            if nbytes == 0:
                raise BufferError("the array is empty")
            handle = self._driver.make(self._driver.exec.buffer_wrap, self._driver.context, SPACES.index(space), pointer,
                                       nbytes, name.encode(), _done_of(self._driver), number)
        except BaseException:
            self._driver.kept.pop(number, None)
            _give_back(keeps)
            raise
        return Buffer(self._driver, handle, shape, dtype)

    def _space_of(self, device: tuple[int, int]) -> str:
        for space in ("device", "pinned", "host", "shared"):
            if _device_of(self._driver, space) == device:
                return space
        raise BufferError(f"the array lies on DLPack device {device}, neither on device '{self.name}' nor in host memory")

    def _of_dlpack(self, value: Any) -> Any:
        if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
            return None
        kind, number = map(int, value.__dlpack_device__())
        space = self._space_of((kind, number))
        given = {} if kind in (_dlpack.CPU, _dlpack.CUDA_HOST, _dlpack.ROCM_HOST) else {"stream": -1}
        try:
            capsule = value.__dlpack__(max_version=(1, 1), **given)
        except TypeError:
            capsule = value.__dlpack__(**given)
        taken = _dlpack.Taken(capsule)
        try:
            tensor = taken.tensor
            shape = tuple(tensor.shape[:tensor.ndim])
            dtype = next((name for name, code in _DLPACK_CODES.items()
                          if (code, _BITS[_dtype(name)], 1) == (tensor.code, tensor.bits, tensor.lanes)), None)
            if dtype is None:
                raise TypeError(f"DLPack type {tensor.code} of {tensor.bits} bits is not known here")
            if taken.read_only:
                raise BufferError("the array is read-only")
            if tensor.strides and not packed(shape, tensor.strides[:tensor.ndim]):
                raise BufferError("the array is not packed; make it contiguous first")
        except Exception:
            taken.release()
            raise
        return (tensor.data or 0) + tensor.byte_offset, space, shape, dtype, taken

    def _of_cuda(self, value: Any) -> Any:
        found = getattr(value, "__cuda_array_interface__", None)
        if found is None:
            return None
        if _device_of(self._driver, "device")[0] != _dlpack.CUDA:
            raise BufferError(f"the array is CUDA's, device '{self.name}' is not")
        dtype = next((name for name, text in _TYPESTR.items() if text == found["typestr"]), None)
        if dtype is None:
            raise TypeError(f"'{found['typestr']}' is not known here")
        pointer, read_only = found["data"]
        if read_only:
            raise BufferError("the array is read-only")
        shape, size = tuple(found["shape"]), _BITS[_dtype(dtype)] // 8
        if found.get("strides") and not packed(shape, [step // size for step in found["strides"]]):
            raise BufferError("the array is not packed; make it contiguous first")
        return pointer, "device", shape, dtype, value

    def _of_buffer(self, value: Any) -> Any:
        try:
            view = memoryview(value)
        except TypeError:
            return None
        dtype = next((name for name, letter in _FORMATS.items()
                      if letter == view.format.lstrip("@=<") and _BITS[_dtype(name)] == 8 * view.itemsize), None)
        if dtype is None:
            raise TypeError(f"elements of type '{view.format}' are not known here")
        if view.readonly or not view.c_contiguous:
            raise BufferError("the array is read-only" if view.readonly else "the array is not packed")
        if view.nbytes == 0:
            raise BufferError("the array is empty")
        memory = ctypes.c_char.from_buffer(view.cast("B") if view.ndim != 1 or view.format != "B" else view)
        return ctypes.addressof(memory), "host", tuple(view.shape), dtype, (memory, view)

    def stream(self, priority: int = 0, name: str = "stream") -> Stream:
        """`priority`: 0 normal, negative more urgent."""
        return self._stream(self._driver.make(self._driver.exec.stream_create, self._driver.context, priority,
                                              name.encode()))

    def wrap_stream(self, native: int, name: str = "wrapped") -> Stream:
        """A stream of another library (torch.cuda.current_stream().cuda_stream), which keeps it; 0: the device API's
        default stream."""
        return self._stream(self._driver.make(self._driver.exec.stream_wrap, self._driver.context, native or None,
                                              name.encode()))

    def _stream(self, handle: int) -> Stream:
        return Stream(self._driver, self._driver.exec.stream_release, handle)

    def event(self, timing: bool = False) -> Event:
        return Event(self._driver, self._driver.exec.event_release,
                     self._driver.make(self._driver.exec.event_create, self._driver.context, int(timing)))

    def graph(self, name: str = "graph", capacity: int = 16) -> Graph:
        """`capacity`: the most variants; one more evicts the one that was not used for longest."""
        return Graph(self._driver, self._driver.make(self._driver.exec.graph_create, self._driver.context, name.encode(),
                                                     capacity))

    def plan(self, name: str = "plan") -> Plan:
        draft = self._driver.draft(tables.PLAN_ID, tables.PLAN)
        return Plan(self._driver, self._driver.make(draft.create, self._driver.context, name.encode()))

    def kernel(self, name: str, inputs: Iterable[str] = (), outputs: Iterable[str] = ()) -> Kernel:
        """The operator "frt.add/1" for these dtypes; NotFound."""
        found = tables.frt_kernel()
        self._driver.do(self._driver.exec.kernels_resolve, self._driver.context, None, (ctypes.c_char_p * 1)(name.encode()),
                        1, sum(1 << _dtype(one) for one in set(inputs)), sum(1 << _dtype(one) for one in set(outputs)), None,
                        0, ctypes.byref(found))
        return Kernel(self._driver, name, found)


def _info(driver: _Driver) -> tables.frt_context_info:
    info = tables.frt_context_info()
    driver.submit(driver.exec.context_info, driver.context, ctypes.byref(info))
    return info


def _device_of(driver: _Driver, space: str) -> tuple[int, int]:
    """The DLPack device of a space."""
    device = _info(driver).device.contents
    kind = device.dlpack_type
    if space == "device":
        return kind, 0 if kind == _dlpack.CPU else device.ordinal
    pairs = {("pinned", _dlpack.CUDA): _dlpack.CUDA_HOST, ("pinned", _dlpack.ROCM): _dlpack.ROCM_HOST,
             ("shared", _dlpack.CUDA): _dlpack.CUDA_MANAGED}
    return pairs.get((space, kind), _dlpack.CPU), 0


def _give_back(keeps: Any) -> None:
    """To who shared it."""
    if isinstance(keeps, _dlpack.Taken):
        keeps.release()


def _done_of(driver: _Driver) -> Any:
    """Called when the last owner of wrapped memory goes."""
    if 0 not in driver.kept:
        kept = driver.kept

        def done(number: int) -> None:
            _give_back(kept.pop(number, None))
        driver.kept[0] = tables.Done(done)
    return driver.kept[0]
