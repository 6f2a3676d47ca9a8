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
from .exec import Buffer, Context, Graph, Kernel, Plan, Recorder, Stream, key
from .lm import Answer, Capsule, Event, Generation, LanguageModel, Result, Session, ToolCall
from .policy import Policy, PolicyCapsule
from .runtime import Device, ModelEntry, Runtime, load, loads, serve, versions
from .server import Server

__all__ = ["Answer", "Buffer", "Cancelled", "Capsule", "Context", "Device", "DeviceLost", "Error", "Event",
           "Generation", "Graph", "InvalidArgument", "Kernel", "LanguageModel", "ModelEntry", "NotFound", "NotReady",
           "OutOfMemory", "OutOfRange", "Plan", "Policy", "PolicyCapsule", "Recorder", "Result", "Runtime", "Server",
           "Session", "Status", "Stream", "ToolCall", "Unsupported", "key", "library_path", "load", "loads", "serve",
           "versions"]
