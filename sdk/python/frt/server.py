# SPDX-License-Identifier: Apache-2.0
"""Language models behind HTTP, in this process."""
from __future__ import annotations

import contextlib
import ctypes
import math
import threading
import time
from collections.abc import Sequence

from . import _library as c
from ._errors import DeviceLost, InvalidArgument, OutOfRange, Status

_LOOK = 0.5  # seconds between two looks at the device


class Server(c.Handle):
    """Use Runtime.serve() or serve(). close() lets answers end for `drain` seconds, then ends the others with an error
    by which clients send the request again."""
    _close = "frt_server_close"

    def __init__(self, runtime: int | None, models: Sequence[str], listen: str | None, drain: float | None):
        names = [name.encode() for name in models]
        options = c.frt_server_options(models=c.texts(names), model_count=len(names),
                                       listen=None if listen is None else listen.encode(), drain_ms=_ms(drain))
        super().__init__(c.opened("frt_server_open", runtime, ctypes.byref(options)))
        self._ended, self._ending = threading.Event(), threading.Lock()
        facts = self._facts()
        self._url, self._port = c.text_of(facts.address), int(facts.port)
        self._models = [c.text_of(facts.models[i]) for i in range(facts.model_count)]

    def _facts(self) -> c.frt_server_facts:
        facts = c.frt_server_facts()
        c.call("frt_server_facts_of", self._handle, ctypes.byref(facts))
        return facts

    @property
    def url(self) -> str:
        """"http://127.0.0.1:41234", "https://...", "unix:/run/frt.sock"."""
        return self._url

    @property
    def address(self) -> tuple[str, int] | str:
        """Host and port, or the path of a UNIX socket."""
        if self._url.startswith("unix:"):
            return self._url.removeprefix("unix:")
        return self._url.partition("://")[2].rpartition(":")[0].strip("[]"), self._port

    @property
    def models(self) -> list[str]:
        """As clients name them, the default one first."""
        return list(self._models)

    @property
    def device_lost(self) -> bool:
        """Requests fail from now on; close the server."""
        return bool(self._facts().device_lost)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until another thread closes the server; False: `timeout` seconds are over. DeviceLost if its device is
        lost. Ctrl-C ends it as it ends any Python code."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            if self._ended.wait(min(_LOOK, left)):
                return True
            with contextlib.suppress(InvalidArgument):  # it closes now
                if self.device_lost:
                    raise DeviceLost(Status.DEVICE_LOST, f"the device of {self._url} is lost; close the server")
            if left <= _LOOK:
                return False

    def close(self) -> None:
        """Closing twice is no error; who comes second waits for the first."""
        with self._ending:
            try:
                super().close()
            finally:    # after a Ctrl-C, too
                self._ended.set()

    def __enter__(self) -> Server:
        return self


def _ms(drain: float | None) -> int:
    if drain is None:
        return 0
    if not 0 <= drain <= 86400:
        raise OutOfRange(Status.OUT_OF_RANGE, f"drain is {drain}; give seconds, 0 to 86400")
    return max(1, round(drain * 1000))
