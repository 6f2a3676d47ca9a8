# SPDX-License-Identifier: Apache-2.0
"""A manifest at work: its devices and its models by name."""
from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import _library as c
from ._errors import NotFound, Status
from .exec import Context
from .lm import LanguageModel
from .policy import Policy
from .server import Server

Log = Callable[[int, str, str], None]
Progress = Callable[[str, int, int], bool | None]

_ALL_DEVICES = 2  # FRT_RUNTIME_ALL_DEVICES
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.ERROR, logging.ERROR)


@dataclass(frozen=True)
class Device:
    name: str
    backend: str
    product: str
    architecture: str
    compute_units: int
    memory_total: int
    memory_free: int


@dataclass(frozen=True)
class ModelEntry:
    """A model of the manifest, loaded or not."""
    name: str
    plugin: str
    device: str
    checkpoint: str


def versions() -> dict[str, str]:
    """Of the library: {"embed": "0.1", "abi": "0.9"}."""
    found = c.frt_embed_versions()
    c.call("frt_embed_version", ctypes.byref(found))
    return {"embed": f"{found.embed_major}.{found.embed_minor}", "abi": f"{found.abi_major}.{found.abi_minor}"}


def load(manifest: str | os.PathLike[str], **options: Any) -> Runtime:
    """The runtime of a manifest, or of a folder with a checkpoint. Options as of Runtime."""
    return Runtime({"manifest": c.path_bytes(manifest)}, **options)


def loads(text: str, base_folder: str | os.PathLike[str] = ".", **options: Any) -> Runtime:
    """The same of a manifest's text; its relative paths start at `base_folder`."""
    return Runtime({"manifest_text": text.encode(), "base_folder": c.path_bytes(base_folder)}, **options)


def serve(manifest: str | os.PathLike[str], *, models: Sequence[str] = (), listen: str | None = None,
          drain: float | None = None, **options: Any) -> Server:
    """The server of a manifest's language models, as Runtime.serve() of load(manifest, **options)."""
    return load(manifest, **options).serve(models=models, listen=listen, drain=drain)


class Runtime(c.Handle):
    """Use load() or loads(). `runtime["name"]` loads a model: a LanguageModel or a Policy."""
    _close = "frt_runtime_close"

    def __init__(self, source: dict[str, bytes], *, plugin_folders: Sequence[str | os.PathLike[str]] = (),
                 sets: Sequence[str] = (), log: Log | logging.Logger | None = None, log_level: int = 1,
                 progress: Progress | None = None, all_devices: bool = False):
        """`sets`: "model.demo.options.slots=2", over the manifest. `log`: a logger, or a function of level (0 to 5,
        as in frt/log.h), source and text, which any thread calls; None: warnings go to stderr. `progress`: a function
        of phase, done and total (0: unknown); False ends the load with Cancelled. `all_devices`: opens those that no
        model uses, too."""
        folders = [c.path_bytes(folder) for folder in plugin_folders]
        settings = [text.encode() for text in sets]
        # The library calls these as long as the runtime lives: longer than this object, perhaps.
        self._log = c.LogCall(_log_call(log)) if log is not None else c.LogCall()
        self._progress = c.ProgressCall(_progress_call(progress)) if progress else c.ProgressCall()
        if log is not None or progress:
            _KEPT.append((self._log, self._progress))
        options = c.frt_runtime_options(
            flags=_ALL_DEVICES if all_devices else 0, plugin_folders=c.texts(folders), plugin_folder_count=len(folders),
            sets=c.texts(settings), set_count=len(settings), log=self._log, log_level=log_level,
            progress=self._progress, **source)
        super().__init__(c.opened("frt_runtime_open", ctypes.byref(options)))

    @property
    def devices(self) -> list[Device]:
        """Those that are open."""
        return [Device(c.text_of(d.name), c.text_of(d.backend), c.text_of(d.product), c.text_of(d.architecture),
                       d.compute_units, d.memory_total, d.memory_free)
                for d in self._entries("frt_runtime_device_at", c.frt_runtime_device)]

    @property
    def models(self) -> list[ModelEntry]:
        return [ModelEntry(c.text_of(m.name), c.text_of(m.plugin), c.text_of(m.device), c.text_of(m.checkpoint))
                for m in self._entries("frt_runtime_model_at", c.frt_runtime_model)]

    def _entries(self, name: str, kind: type[Any]) -> Iterator[Any]:
        index = 0
        while True:
            entry = kind()
            try:
                c.call(name, self._handle, index, ctypes.byref(entry))
            except ValueError as error:
                if getattr(error, "status", None) != Status.OUT_OF_RANGE:
                    raise
                return
            yield entry
            index += 1

    def lm(self, name: str | None = None) -> LanguageModel:
        """None: the only model of the manifest."""
        return LanguageModel(c.opened("frt_lm_open", self._handle, _name(name), None))

    def policy(self, name: str | None = None) -> Policy:
        return Policy(c.opened("frt_policy_open", self._handle, _name(name)))

    def context(self, name: str | None = None) -> Context:
        """A device, for buffers and graphs of one's own (frt.exec); None: the only open one."""
        return Context(c.opened("frt_device_open", self._handle, _name(name)))

    def serve(self, *, models: Sequence[str] = (), listen: str | None = None, drain: float | None = None) -> Server:
        """Serves language models over HTTP on threads of the library, as [host.http] of the manifest says. Over it:
        `models` by name, the default one first; `listen` on "127.0.0.1:0" (port 0: any that is free) or "unix:PATH";
        `drain` seconds for answers when the server closes. A served model is the server's alone: close it before, and
        close the server before asking for the model again."""
        return Server(self._handle, models, listen, drain)

    def __getitem__(self, name: str) -> LanguageModel | Policy:
        """The model by its role. Asked again it is the same model, not loaded twice."""
        instance = c.opened("frt_instance_open", self._handle, name.encode())
        try:
            c.opened("frt_instance_extension", instance, b"frt.role.lm/1")
            return self.lm(name)
        except NotFound:
            return self.policy(name)
        finally:
            c.library().frt_instance_close(instance)

    def __iter__(self) -> Iterator[str]:
        return iter([model.name for model in self.models])


# Functions that the library may still call.
_KEPT: list[Any] = []


def _name(name: str | None) -> bytes | None:
    return None if name is None else name.encode()


def _log_call(log: Log | logging.Logger) -> Callable[..., None]:
    def told(_: Any, level: int, source: bytes, text: bytes) -> None:
        if isinstance(log, logging.Logger):
            log.log(_LEVELS[min(level, len(_LEVELS) - 1)], "%s: %s", c.text_of(source), c.text_of(text))
        else:
            log(level, c.text_of(source), c.text_of(text))
    return told


def _progress_call(progress: Progress) -> Callable[..., int]:
    def told(_: Any, phase: bytes, _unit: int, done: int, total: int) -> int:
        return Status.CANCELLED if progress(c.text_of(phase), done, total) is False else Status.OK
    return told
