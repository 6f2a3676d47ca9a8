# SPDX-License-Identifier: Apache-2.0
"""The FRT runtime from Python.

    import frt

    with frt.load("demo.toml") as runtime:
        model = runtime["demo"]
        for piece in model.generate("Once upon a time", max_tokens=32, stream=True):
            print(piece, end="", flush=True)

Objects close by themselves when nobody holds them, in any order, and with `close()` or `with`.
"""
from ._errors import (Cancelled, DeviceLost, Error, InvalidArgument, NotFound, NotReady, OutOfMemory, OutOfRange,
                      Status, Unsupported)
from ._library import library_path
from .lm import Answer, Capsule, Event, Generation, LanguageModel, Result, Session, ToolCall
from .policy import Policy, PolicyCapsule
from .runtime import Device, ModelEntry, Runtime, load, loads, versions

__all__ = ["Answer", "Cancelled", "Capsule", "Device", "DeviceLost", "Error", "Event", "Generation", "InvalidArgument",
           "LanguageModel", "ModelEntry", "NotFound", "NotReady", "OutOfMemory", "OutOfRange", "Policy",
           "PolicyCapsule", "Result", "Runtime", "Session", "Status", "ToolCall", "Unsupported", "library_path",
           "load", "loads", "versions"]
