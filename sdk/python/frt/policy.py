# SPDX-License-Identifier: Apache-2.0
"""Robot policies: observations in, a chunk of actions out."""
from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import _library as c
from ._arrays import View


class PolicyCapsule(c.Handle):
    """All that a policy carries from one inference to the next, its observation included."""
    _close = "frt_policy_capsule_close"

    @property
    def bytes(self) -> int:
        facts = c.frt_capsule_facts()
        c.call("frt_policy_capsule_facts", self._handle, ctypes.byref(facts))
        return int(facts.bytes)

    def __enter__(self) -> PolicyCapsule:
        return self


class Policy(c.Handle):
    """A robot policy. Calls of several threads take turns."""
    _close = "frt_policy_close"

    def __init__(self, handle: int):
        super().__init__(handle)
        facts = c.frt_policy_facts()
        c.call("frt_policy_facts_of", handle, ctypes.byref(facts))
        self.name = c.text_of(facts.name)
        self.horizon: int = facts.horizon
        self.action_dim: int = facts.action_dim
        self.network_dim: int = facts.network_dim
        self.state_dim: int = facts.state_dim
        self.views: int = facts.views
        self.default_steps: int = facts.default_steps
        self.guidance_branches: int = facts.guidance_branches
        # [{"name", "kind": "image" | "state", "shape", "required"}, ...]; None in a shape: not fixed
        self.inputs: list[dict[str, Any]] = [
            {"name": "", "kind": "state", "shape": [], "required": True, **entry} for entry in json.loads(facts.inputs)]
        self.metadata: dict[str, Any] = json.loads(facts.metadata)

    def observe(self, observation: Mapping[str, Any], *, prompt: str | None = None,
                prompt_ids: Sequence[int] = (), options: Mapping[str, Any] | None = None) -> None:
        """Arrays by the names of `inputs`: numpy arrays, torch tensors on the CPU, buffers, numbers. Read before it
        returns. "noise", f32 (horizon, network_dim), is the noise of the inferences to come."""
        views = [View(name, value) for name, value in observation.items()]
        arrays = (c.frt_array * len(views))(*[view.array() for view in views])
        given = c.frt_observation(arrays=arrays, array_count=len(views))
        if prompt is not None:
            given.prompt = prompt.encode()
        if prompt_ids:
            given.prompt_tokens = (ctypes.c_int32 * len(prompt_ids))(*prompt_ids)
            given.prompt_token_count = len(prompt_ids)
        if options is not None:
            given.options = json.dumps(options).encode()
        c.call("frt_policy_observe", self._handle, ctypes.byref(given))

    def infer(self, observation: Mapping[str, Any] | None = None, *, prompt: str | None = None, steps: int = 0,
              seed: int = 0, draw: int = 0, **more: Any) -> Any:
        """A chunk of actions in the robot's units, (horizon, action_dim) f64: a numpy array where numpy is there, else
        a memoryview. Without an observation: for the one before. (seed, draw) give the noise."""
        if observation is not None:
            self.observe(observation, prompt=prompt, **more)
        elif prompt is not None or more:
            raise TypeError("a prompt comes with an observation")
        values = (ctypes.c_double * (self.horizon * self.action_dim))()
        options = c.frt_infer_options(steps=steps, seed=seed, draw=draw)
        c.call("frt_policy_infer", self._handle, ctypes.byref(options), values, len(values), None, 0)
        chunk = memoryview(values).cast("B").cast("d", (self.horizon, self.action_dim))
        try:
            import numpy
        except ImportError:
            return chunk
        return numpy.asarray(chunk)

    def guide(self, strengths: float | Sequence[float] | Sequence[Sequence[float]]) -> None:
        """Strengths of the guided branches, 1 to 100: one number, one per denoising step, or a row of one per branch
        for each step."""
        rows: list[float | Sequence[float]] = [strengths] if isinstance(strengths, (int, float)) else list(strengths)
        table = [[row] if isinstance(row, (int, float)) else list(row) for row in rows]
        if not table or any(len(row) != len(table[0]) for row in table):
            raise ValueError("strengths are rows of one length")
        flat = [value for row in table for value in row]
        c.call("frt_policy_guide", self._handle, (ctypes.c_double * len(flat))(*flat), len(table), len(table[0]))

    def snapshot(self) -> PolicyCapsule:
        return PolicyCapsule(c.opened("frt_policy_snapshot", self._handle))

    def restore(self, capsule: PolicyCapsule) -> None:
        """What follows equals what followed the snapshot, bit for bit."""
        c.call("frt_policy_restore", self._handle, capsule._handle)

    def __enter__(self) -> Policy:
        return self
