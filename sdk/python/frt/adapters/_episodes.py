# SPDX-License-Identifier: Apache-2.0
"""A policy for several environments at once, which begin anew when they are told to."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..policy import Policy, PolicyCapsule

Strengths = float | Sequence[float] | Sequence[Sequence[float]]


class Episodes:
    """Chunks of one policy for environments 0, 1, ...: one inference after the other, each from what its own environment's
    last inference left. One thread at a time.

    Where neither an observation nor a call brings noise, that of the i-th such inference since this object was made is
    (seed, i), so a run depends on its observations alone."""

    def __init__(self, policy: Policy, *, seed: int = 0, steps: int = 0, guidance: Strengths = 1.0):
        self._policy, self._seed, self._steps, self._guidance = policy, seed, steps, guidance
        self._draws = 0
        self._start: PolicyCapsule | None = None       # before the first inference
        self._kept: dict[int, PolicyCapsule] = {}      # what each environment's last inference left
        self._at: int | None = None                    # the environment whose state the policy holds
        self._guided: Strengths | None = None          # the strengths that it holds, if they are known

    def chunk(self, observation: Mapping[str, Any], *, environment: int = 0, keep: bool = False, seed: int | None = None,
              steps: int = 0, guidance: Strengths | None = None, **more: Any) -> Any:
        """A chunk of actions, (horizon, action_dim) f64. `keep`: other environments follow before this one's next chunk.
        `seed`: takes the place of the next noise. `steps`, `guidance`: of this chunk alone. `more`: as of Policy.observe; no
        prompt: the checkpoint's own."""
        policy = self._policy
        if self._at != environment and self._start is not None:
            policy.restore(self._kept.get(environment, self._start))
            self._at, self._guided = environment, None
        wanted = self._guidance if guidance is None else guidance
        if wanted != self._guided and (policy.guidance_branches or wanted != 1):
            policy.guide(wanted)
            self._guided = wanted
        policy.observe(observation, **more)
        if self._start is None:
            self._start = policy.snapshot()
        self._at = None  # an inference that fails leaves nothing to go on from
        draws = seed is None and "noise" not in observation
        chunk = policy.infer(steps=steps or self._steps, seed=self._seed if seed is None else seed,
                             draw=self._draws if draws else 0)
        self._draws += draws
        self._at = environment
        if keep:
            before = self._kept.pop(environment, None)
            self._kept[environment] = policy.snapshot()
            if before is not None:
                before.close()
        return chunk

    def reset(self) -> None:
        """Every environment begins an episode. What went before leaves nothing but the count of the noise."""
        for capsule in self._kept.values():
            capsule.close()
        self._kept.clear()
        self._at = None
