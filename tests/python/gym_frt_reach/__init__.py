# SPDX-License-Identifier: Apache-2.0
"""The reaching task as an environment of lerobot: --env.discover_packages_path=gym_frt_reach --env.type=frt_reach. World,
drawing and end are those of tools/train-reach/task.py."""
import os
import pathlib
import sys
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.envs.configs import EnvConfig

sys.path.insert(0, str(pathlib.Path(os.environ["FRT_SOURCE"]) / "tools/train-reach"))
import task  # noqa: E402


class Reach(gym.Env):
    metadata = {"render_fps": 10, "render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(self):
        self.observation_space = gym.spaces.Dict({
            "pixels": gym.spaces.Box(0, 255, (task.IMAGE, task.IMAGE, 3), np.uint8),
            "agent_pos": gym.spaces.Box(0, 1, (2,), np.float32)})
        self.action_space = gym.spaces.Box(-1, 1, (2,), np.float32)
        self.task_description = task.instruction(0)
        self._max_episode_steps = task.MAX_STEPS

    def look(self):
        return {"pixels": self.render(), "agent_pos": self.point[0].numpy().copy()}

    def render(self):
        return task.draw(self.point, self.discs)[0].numpy()

    def distance(self):
        return float((self.point - self.discs[:, self.color]).norm())

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        generator = torch.Generator().manual_seed(int(self.np_random.integers(2**31)))
        self.color = int(self.np_random.integers(3))
        while True:  # as the C++ twin: the point begins away from its goal
            self.discs, self.point = task.place(generator, 1)
            if self.distance() >= 0.3:
                break
        self.task_description, self.steps = task.instruction(self.color), 0
        return self.look(), {"is_success": False}

    def step(self, action):
        self.point = task.move(self.point, torch.as_tensor(action, dtype=torch.float32)[None])
        self.steps += 1
        reached = self.distance() < task.REACHED
        return self.look(), float(reached), reached, self.steps >= task.MAX_STEPS, {"is_success": reached}


class Dark(Reach):
    """The same, and the policy sees nothing."""

    def render(self):
        return np.zeros((task.IMAGE, task.IMAGE, 3), np.uint8)


# Bare: lerobot reads the task of the environment itself, which wrappers of gymnasium hide.
for name, kind in (("reach-v0", Reach), ("dark-v0", Dark)):
    gym.register(f"gym_frt_reach/{name}", kind, order_enforce=False, disable_env_checker=True)


@EnvConfig.register_subclass("frt_reach")
@dataclass
class FrtReachEnv(EnvConfig):
    task: str | None = "reach-v0"
    fps: int = 10
    features: dict[str, PolicyFeature] = field(default_factory=lambda: {
        "action": PolicyFeature(FeatureType.ACTION, (2,)),
        "pixels": PolicyFeature(FeatureType.VISUAL, (task.IMAGE, task.IMAGE, 3)),
        "agent_pos": PolicyFeature(FeatureType.STATE, (2,))})
    features_map: dict[str, str] = field(default_factory=lambda: {
        "action": "action", "pixels": "observation.image", "agent_pos": "observation.state"})

    @property
    def gym_kwargs(self):
        return {}
