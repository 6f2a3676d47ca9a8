# SPDX-License-Identifier: Apache-2.0
"""A policy of openpi's kind: `infer(observation) -> {"actions": ...}`, in this process.

    from frt.adapters.openpi import OpenpiPolicy

    policy = OpenpiPolicy(frt.load("arm.toml")["arm"])
    policy.infer({"observation/image": image, "observation/state": state, "prompt": "pick up the cup"})["actions"]

openpi's server, ActionChunkBroker and PolicyAgent take it; it is an openpi_client BasePolicy where openpi-client is
installed. It reads requests as `frt-host serve` does (share/doc/frt-runtime/robot/PROTOCOL.md). Its answers are equal,
bit for bit."""
from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..policy import Policy
from ._episodes import Episodes, Strengths
from ._images import image_of

if TYPE_CHECKING:
    _Base = object
else:
    try:
        from openpi_client.base_policy import BasePolicy as _Base
    except ImportError:
        _Base = object

_OPTIONS = ("rl/beta", "rl/positive")


class OpenpiPolicy(_Base):
    """`seed`: of the noise where a request brings none. `steps`: denoising steps, 0: the policy's own. `guidance`: strengths as
    of Policy.guide. `default_prompt`: of requests without one. It holds `policy`; close that yourself. One thread at a
    time."""

    def __init__(self, policy: Policy, *, seed: int = 0, steps: int = 0, guidance: Strengths = 1.0,
                 default_prompt: str = ""):
        self._policy = policy
        self._episodes = Episodes(policy, seed=seed, steps=steps, guidance=guidance)
        self._default_prompt = default_prompt
        self._inputs = {entry["name"]: entry for entry in policy.inputs}

    @property
    def metadata(self) -> dict[str, Any]:
        """What a server sends first: the checkpoint's own, `model`, `action_horizon`, `action_dim`, and `inputs`, a list of
        {"name", "dtype", "shape", "required"}; None in a shape: not fixed."""
        inputs = [{"name": entry["name"], "dtype": "u8" if entry["kind"] == "image" else "f32", "shape": entry["shape"],
                   "required": entry["required"]} for entry in self._policy.inputs]
        return {**self._policy.metadata, "model": self._policy.name, "action_horizon": self._policy.horizon,
                "action_dim": self._policy.action_dim, "inputs": inputs}

    def infer(self, obs: Mapping[str, Any], *, noise: Any = None) -> dict[str, Any]:
        """`obs`: arrays by the names of `metadata["inputs"]`, nested or joined by '/'; images u8 or floats from 0 to 1, channels
        last or first; `prompt`. Options: `seed` or `noise` (horizon, network_dim), `num_steps`, `prompt_token_ids`,
        `rl/beta`, `rl/positive`. Other names are passed over.

        Gives `actions`, (horizon, action_dim) f64 in the robot's units, and `policy_timing`, {"infer_ms"}. ValueError and
        TypeError for a request that is wrong in itself, frt.Error for one that the policy refuses."""
        request = _flat(obs)
        if noise is not None:
            request["noise"] = noise
        if "rtc" in obs or any(name.startswith("rtc/") for name in request):
            raise ValueError("'rtc' is for a client of frt-host serve, which gives network_actions")
        for name in request:
            if name.startswith("rl/") and name not in _OPTIONS:
                raise ValueError(f"'{name}' is no key that is known; known are {', '.join(_OPTIONS)}")
        arrays = {name: self._array(name, request[name]) for name in self._inputs if name in request}
        seed = _whole(request, "seed")
        if "noise" in request:
            if seed is not None:
                raise ValueError("'seed' is beside 'noise', which leaves nothing to draw; give one of them")
            arrays["noise"] = np.ascontiguousarray(request["noise"], dtype=np.float32)
        more = self._prompt(request)
        if "rl/positive" in request:
            more["options"] = {"positive": bool(_whole(request, "rl/positive"))}
        if "rl/beta" in request:
            more["guidance"] = np.asarray(request["rl/beta"], dtype=np.float64).tolist()
        start = time.monotonic()
        chunk = self._episodes.chunk(arrays, seed=seed, steps=_whole(request, "num_steps") or 0, **more)
        return {"actions": np.asarray(chunk), "policy_timing": {"infer_ms": (time.monotonic() - start) * 1000}}

    def reset(self) -> None:
        """An episode begins: nothing of the last one is left but the count of the noise."""
        self._episodes.reset()

    def _array(self, name: str, value: Any) -> Any:
        entry = self._inputs[name]
        if entry["kind"] == "image":
            return image_of(name, value, *entry["shape"][-1:])
        return np.asarray(value)

    def _prompt(self, request: Mapping[str, Any]) -> dict[str, Any]:
        ids = request.get("prompt_token_ids")
        prompt = request.get("prompt")
        if prompt is not None and ids is not None:
            raise ValueError("'prompt' is beside 'prompt_token_ids', which take its place; give one of them")
        if ids is not None:
            return {"prompt_ids": [int(each) for each in np.ravel(ids)]}
        if prompt is not None:
            prompt = np.asarray(prompt).item() if not isinstance(prompt, str) else prompt
            if not isinstance(prompt, str):
                raise TypeError(f"'prompt' is {type(prompt).__name__}, not text")
            return {"prompt": prompt}
        return {"prompt": self._default_prompt} if self._default_prompt else {}


def _flat(tree: Mapping[str, Any], parent: str = "") -> dict[str, Any]:
    """Names of nested maps joined by '/'."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        if not isinstance(name, str):
            raise TypeError(f"a name in '{parent or 'the observation'}' is {type(name).__name__}, not text")
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{parent}{name}/")
        else:
            flat[parent + name] = value
    return flat


def _whole(request: Mapping[str, Any], name: str) -> int | None:
    """The number `name`, None where it is absent; the library checks its range."""
    value = request.get(name)
    if value is None:
        return None
    number = np.asarray(value).item() if np.size(value) == 1 else None
    if not isinstance(number, (bool, int, float)) or number != int(number) or number < 0:
        raise ValueError(f"'{name}' is {value!r}, not a whole number")
    return int(number)
