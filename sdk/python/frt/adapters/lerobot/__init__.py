# SPDX-License-Identifier: Apache-2.0
"""A policy of a manifest that lerobot (0.4.4) evaluates as one of its own:

    lerobot-eval --plugin.discover_packages_path=frt.adapters.lerobot --policy.type=frt --policy.manifest=arm.toml \\
        --env.type=libero --eval.n_episodes=10

Importing this registers the policy type "frt" with lerobot. In a program:

    policy = FrtPolicy(FrtConfig(manifest="arm.toml"))        # or FrtPolicy(FrtConfig(), policy=runtime["arm"])
    preprocessor, postprocessor = make_frt_pre_post_processors(policy.config)

The checkpoint's own normalisation, resizing and prompt belong to the model's plugin, so the processors only rename, add
the batch dimension and move tensors."""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.processor import (AddBatchDimensionProcessorStep, DeviceProcessorStep, PolicyProcessorPipeline,
                               RenameObservationsProcessorStep)
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from lerobot.utils.constants import POLICY_POSTPROCESSOR_DEFAULT_NAME, POLICY_PREPROCESSOR_DEFAULT_NAME
from torch import Tensor

from ...policy import Policy
from ...runtime import load
from .._episodes import Episodes
from .._images import image_of
from .._names import match

__all__ = ["FrtConfig", "FrtPolicy", "make_frt_pre_post_processors"]

_NOT_TRAINED = "a policy of FRT is evaluated, not trained; train its checkpoint where it comes from"


@PreTrainedConfig.register_subclass("frt")
@dataclass
class FrtConfig(PreTrainedConfig):
    manifest: str = ""      # a manifest, or a folder with a checkpoint
    model: str = ""         # its name there; "": the only one
    sets: list[str] = field(default_factory=list)            # over the manifest: "model.arm.options.steps=5"
    plugin_folders: list[str] = field(default_factory=list)  # searched before the installed plugins
    n_action_steps: int = 0  # actions of a chunk that are executed before the next one; 0: all
    steps: int = 0           # denoising steps; 0: the policy's own
    seed: int = 0            # of the noise
    guidance: float = 1.0    # strength of guided branches; 1: none
    default_prompt: str = ""  # where the environment names no task
    # Input of the policy -> feature of lerobot, where the names do not tell: {"image/base_0_rgb": "observation.images.top"}
    names: dict[str, str] = field(default_factory=dict)
    device: str | None = "cpu"  # where actions are given; the manifest says where the policy runs

    @property
    def observation_delta_indices(self) -> None:
        return None

    @property
    def action_delta_indices(self) -> None:
        return None

    @property
    def reward_delta_indices(self) -> None:
        return None

    def validate_features(self) -> None:
        """FrtPolicy compares the features with the policy when it is made."""

    def get_optimizer_preset(self) -> Any:
        raise NotImplementedError(_NOT_TRAINED)

    def get_scheduler_preset(self) -> Any:
        raise NotImplementedError(_NOT_TRAINED)


class FrtPolicy(PreTrainedPolicy):
    """One policy for a batch of environments: an inference each, one after the other, each environment's own state kept
    apart. One thread at a time. `policy`: one that is loaded already; it stays open then."""

    config_class = FrtConfig
    name = "frt"

    def __init__(self, config: FrtConfig, *, policy: Policy | None = None, **_: Any):
        """`config.output_features`, where lerobot has set them, must fit the policy: ValueError. What is the policy's input is
        decided by what comes in, which lerobot may rename. Further arguments, such as a dataset's statistics, are
        lerobot's and not needed."""
        super().__init__(config)
        if policy is None:
            policy = _open(config)
        self._policy = policy
        if not 0 <= config.n_action_steps <= policy.horizon:
            raise ValueError(f"n_action_steps is {config.n_action_steps}; a chunk of '{policy.name}' has "
                             f"{policy.horizon} actions")
        action = config.action_feature
        if action is not None and tuple(action.shape) != (policy.action_dim,):
            raise ValueError(f"an action of the environment has the shape {tuple(action.shape)}; one of '{policy.name}' has "
                             f"{policy.action_dim} values")
        self._offered: dict[str, str] = {}  # feature of lerobot -> "image" or "state", as of the last batch
        self._sources: dict[str, str] = {}  # input of the policy -> feature
        self._channels = {entry["name"]: entry["shape"][-1:] for entry in policy.inputs if entry["kind"] == "image"}
        self._episodes = Episodes(policy, seed=config.seed, steps=config.steps, guidance=config.guidance)
        self._actions: deque[Tensor] = deque()  # each (batch, action_dim)

    @property
    def policy(self) -> Policy:
        return self._policy

    def reset(self) -> None:
        """An episode begins in every environment."""
        self._actions.clear()
        self._episodes.reset()

    @torch.no_grad()
    def predict_action_chunk(self, batch: dict[str, Any], noise: Tensor | None = None) -> Tensor:
        """(batch, horizon, action_dim) f32 in the robot's units, on `config.device`. `batch`: "observation..." tensors, images
        f32 0 to 1 or u8; "task": an instruction each. `noise`: (batch, horizon, network_dim)."""
        observations = {name: value for name, value in batch.items()
                        if name.startswith("observation") and isinstance(value, Tensor)}
        offered = {name: "image" if value.ndim == 4 else "state" for name, value in observations.items()}
        if offered != self._offered:
            self._sources, self._offered = match(self._policy.inputs, offered, self.config.names), offered
        used = {name: observations[source] for name, source in self._sources.items()}
        if not used:
            raise ValueError(f"the batch has no observation; it has {', '.join(map(repr, batch)) or 'nothing'}")
        size = len(next(iter(used.values())))
        tasks = batch.get("task") or [""] * size
        tasks = [tasks] * size if isinstance(tasks, str) else tasks
        if len(tasks) != size or any(len(value) != size for value in used.values()):
            raise ValueError(f"the batch is of one size: {len(tasks)} tasks, "
                             f"{', '.join(f'{len(value)} of {name}' for name, value in used.items())}")
        host = {name: value.detach().to("cpu") for name, value in used.items()}
        chunks = []
        for index, task in enumerate(tasks):
            observation = {name: self._array(name, value[index]) for name, value in host.items()}
            if noise is not None:
                observation["noise"] = noise[index].detach().to("cpu", torch.float32).contiguous().numpy()
            prompt = task or self.config.default_prompt
            chunk = self._episodes.chunk(observation, environment=index, keep=size > 1,
                                         **({"prompt": prompt} if prompt else {}))
            chunks.append(torch.from_numpy(chunk))
        return torch.stack(chunks).to(self.config.device, torch.float32)

    @torch.no_grad()
    def select_action(self, batch: dict[str, Any], noise: Tensor | None = None) -> Tensor:
        """The next action of each environment, (batch, action_dim) f32. The policy looks only when the last chunk is used
        up."""
        if not self._actions:
            chunk = self.predict_action_chunk(batch, noise)
            self._actions.extend(chunk[:, :self.config.n_action_steps or self._policy.horizon].transpose(0, 1))
        return self._actions.popleft()

    def forward(self, batch: dict[str, Tensor]) -> tuple[Tensor, dict[str, Any] | None]:
        raise NotImplementedError(_NOT_TRAINED)

    def get_optim_params(self) -> dict[str, Any]:
        raise NotImplementedError(_NOT_TRAINED)

    @classmethod
    def from_pretrained(cls, pretrained_name_or_path: str | Path, *, config: PreTrainedConfig | None = None,
                        **options: Any) -> FrtPolicy:
        """Of a folder that save_pretrained() wrote; `options` are lerobot's, of downloads."""
        policy = cls(config or PreTrainedConfig.from_pretrained(pretrained_name_or_path, **options))
        policy.eval()
        return policy

    def _save_pretrained(self, save_directory: Path) -> None:
        """The configuration and the processors, for --policy.path; weights stay where the manifest names them."""
        config = self.config
        manifest, config.manifest = config.manifest, str(Path(config.manifest).resolve()) if config.manifest else ""
        try:
            config._save_pretrained(save_directory)
        finally:
            config.manifest = manifest
        for processor in make_frt_pre_post_processors(config):
            processor.save_pretrained(save_directory)

    def _array(self, name: str, value: Tensor) -> Any:
        if name in self._channels:
            return image_of(name, value.numpy(), *self._channels[name])
        return value.contiguous().numpy()


def make_frt_pre_post_processors(
        config: FrtConfig, dataset_stats: dict[str, dict[str, Tensor]] | None = None
) -> tuple[PolicyProcessorPipeline[dict[str, Any], dict[str, Any]], PolicyProcessorPipeline[Any, Any]]:
    """lerobot calls it by its name. `dataset_stats` are not needed: the model's plugin has those of its checkpoint."""
    return (
        PolicyProcessorPipeline(
            steps=[RenameObservationsProcessorStep(rename_map={}), AddBatchDimensionProcessorStep(),
                   DeviceProcessorStep(device=config.device or "cpu")],
            name=POLICY_PREPROCESSOR_DEFAULT_NAME),
        PolicyProcessorPipeline(
            steps=[DeviceProcessorStep(device="cpu")], name=POLICY_POSTPROCESSOR_DEFAULT_NAME,
            to_transition=policy_action_to_transition, to_output=transition_to_policy_action))


def _open(config: FrtConfig) -> Policy:
    if not config.manifest:
        raise ValueError("the configuration names no manifest; set manifest (--policy.manifest=arm.toml)")
    runtime = load(config.manifest, plugin_folders=config.plugin_folders, sets=config.sets)
    return runtime.policy(config.model or None)
