# SPDX-License-Identifier: Apache-2.0
"""Errors: the library's status and text. Those that Python has a word for are that, too."""
from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """The codes of frt/base.h."""
    OK = 0
    INVALID_ARGUMENT = -1
    OUT_OF_MEMORY = -2
    DEVICE = -3
    NO_VARIANT = -4
    UNBOUND = -5
    UNSUPPORTED = -6
    OUT_OF_RANGE = -7
    NOT_FOUND = -8
    EXISTS = -9
    BAD_STATE = -10
    NOT_READY = -11
    ABI = -12
    DEVICE_LOST = -13
    IO = -14
    FORMAT = -15
    MISMATCH = -16
    CYCLE = -17
    CALLBACK = -18
    CANCELLED = -19
    INTERNAL = -20


class Error(Exception):
    """What the library reports. `status` is its code, the text says what, where and what to do."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = Status(status) if status in Status._value2member_map_ else Status.INTERNAL


class InvalidArgument(Error, ValueError):
    pass


class OutOfRange(Error, ValueError):
    pass


class NotFound(Error, LookupError):
    pass


class OutOfMemory(Error, MemoryError):
    pass


class Unsupported(Error):
    pass


class NotReady(Error):
    """A later try may succeed."""


class DeviceLost(Error):
    pass


class Cancelled(Error):
    pass


_CLASSES: dict[int, type[Error]] = {
    Status.INVALID_ARGUMENT: InvalidArgument, Status.OUT_OF_RANGE: OutOfRange, Status.NOT_FOUND: NotFound,
    Status.OUT_OF_MEMORY: OutOfMemory, Status.UNSUPPORTED: Unsupported, Status.NOT_READY: NotReady,
    Status.DEVICE_LOST: DeviceLost, Status.CANCELLED: Cancelled}


def error_of(status: int, text: str) -> Error:
    return _CLASSES.get(status, Error)(status, text)
