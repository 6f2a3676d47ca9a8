# SPDX-License-Identifier: Apache-2.0
"""Which array of an observation is which input of a policy."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def match(inputs: Iterable[Mapping[str, Any]], offered: Mapping[str, str],
          names: Mapping[str, str] | None = None) -> dict[str, str]:
    """Input of the policy -> name in the observation. `inputs`: Policy.inputs. `offered`: name -> "image" or "state".
    `names`: pairs that the caller is sure of. The others are found in this order, each within its kind:

        1. the same name, '.' and '/' being one: "observation.state" is "observation/state"
        2. the same last part: "observation.images.top" is "image/top"
        3. the only one left on either side

    ValueError where a required input has none, or where cameras are offered and the policy would see none of them."""
    wanted = {entry["name"]: entry for entry in inputs}
    found: dict[str, str] = {}
    for name, source in (names or {}).items():
        if name not in wanted:
            raise ValueError(f"the policy reads no '{name}'; it reads {_listed(wanted)}")
        if source not in offered:
            raise ValueError(f"'{name}' is to be '{source}', which the observation has not; it has {_listed(offered)}")
        found[name] = source
    for kind in ("image", "state"):
        left = [name for name, entry in wanted.items() if entry["kind"] == kind and name not in found]
        free = [name for name, its in offered.items() if its == kind and name not in found.values()]
        for same in (_path, _last_part):
            sources = _unique(free, same)
            for key, name in _unique(left, same).items():
                if key in sources:
                    found[name] = sources[key]
                    left.remove(name)
                    free.remove(sources[key])
        if len(left) == len(free) == 1:
            found[left[0]] = free[0]
    missing = [name for name, entry in wanted.items() if entry["required"] and name not in found]
    cameras = [name for name, kind in offered.items() if kind == "image"]
    views = [name for name, entry in wanted.items() if entry["kind"] == "image"]
    if not missing and cameras and views and not any(name in found for name in views):
        missing = views
    if missing:
        raise ValueError(f"nothing of the observation is known to be {_listed(missing)}; it has {_listed(offered)}. "
                         f"Say which in 'names': {{'{missing[0]}': NAME}}")
    return found


def _path(name: str) -> str:
    return name.replace(".", "/")


def _last_part(name: str) -> str:
    return _path(name).rpartition("/")[2]


def _unique(names: Iterable[str], key: Any) -> dict[str, str]:
    """Key -> name, of the names whose key no other one has."""
    by_key: dict[str, list[str]] = {}
    for name in names:
        by_key.setdefault(key(name), []).append(name)
    return {its: sharing[0] for its, sharing in by_key.items() if len(sharing) == 1}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "nothing"
