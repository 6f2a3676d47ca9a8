# SPDX-License-Identifier: Apache-2.0
"""The adapter for lerobot with lerobot's own evaluation. It runs in a Python with lerobot 0.4.4 (`tools/test --stage lerobot`
installs it): its rollouts, its command lerobot-eval, its loop for real robots."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing of a test comes from a hub

import gymnasium as gym  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from lerobot.configs.policies import PreTrainedConfig  # noqa: E402
from lerobot.configs.types import FeatureType, PolicyFeature  # noqa: E402
from lerobot.envs.factory import make_env, make_env_pre_post_processors  # noqa: E402
from lerobot.envs.utils import close_envs  # noqa: E402
from lerobot.policies.factory import get_policy_class, make_policy, make_pre_post_processors  # noqa: E402
from lerobot.policies.pretrained import PreTrainedPolicy  # noqa: E402
from lerobot.scripts.lerobot_eval import eval_policy, rollout  # noqa: E402
from lerobot.utils.control_utils import predict_action  # noqa: E402

import frt  # noqa: E402
from frt.adapters.lerobot import FrtConfig, FrtPolicy, make_frt_pre_post_processors  # noqa: E402

from gym_frt_reach import FrtReachEnv  # noqa: E402
from linear_policy import HORIZON, PLUGINS, SIDE, STATE, WIDTH, LinearPolicyTest, expected, save  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
REACH = pathlib.Path(os.environ["FRT_SOURCE"]) / "hosts/manifests/reach.toml"
STEPS, CHUNK = 9, 4
NAMES = {"image/base_0_rgb": "observation.image"}  # the trained policy knows several cameras
TASKS = ("one", "other", "third one")


class Arm(gym.Env):
    """Writes down what it is told. Each environment of a batch has a task and a start of its own."""
    metadata = {"render_fps": 10}

    def __init__(self, index=0):
        self.task_description, self.start = TASKS[index], np.array([0.5, -0.25, 1.0 + index], np.float32)
        self.observation_space = gym.spaces.Dict({
            "pixels": gym.spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8),
            "agent_pos": gym.spaces.Box(-np.inf, np.inf, (STATE,), np.float32)})
        self.action_space = gym.spaces.Box(-np.inf, np.inf, (WIDTH,), np.float32)
        self._max_episode_steps = STEPS

    def look(self):
        return {"pixels": np.full((SIDE, SIDE, 3), 7, np.uint8), "agent_pos": self.state.copy()}

    def reset(self, *, seed=None, options=None):
        self.state, self.steps = self.start.copy(), 0
        return self.look(), {}

    def step(self, action):
        self.state[:WIDTH] += action / 64
        self.steps += 1
        over = self.steps == STEPS
        return self.look(), 1.0, over, False, {"is_success": over}


def arms(count):
    return gym.vector.SyncVectorEnv([lambda index=index: Arm(index) for index in range(count)],
                                    autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)


def predicted(index):
    """The actions of an episode: what the naive formula gives, without noise, chunk by chunk."""
    state, actions = Arm(index).start.copy(), []
    while len(actions) < STEPS:
        chunk = np.array(expected(state.tolist(), TASKS[index]), np.float32).reshape(HORIZON, WIDTH)[:CHUNK]
        for action in chunk[:STEPS - len(actions)]:
            actions.append(action)
            state[:WIDTH] += action / 64
    return np.stack(actions)


class Silent(FrtPolicy):
    """Without noise, so that a naive formula gives its actions."""
    config_class, name = FrtConfig, "frt"

    def select_action(self, batch, noise=None):
        return super().select_action(batch, torch.zeros(len(batch["task"]), HORIZON, WIDTH))


class Evaluated(LinearPolicyTest):
    def made(self, kind=Silent, **options):
        config = FrtConfig(n_action_steps=CHUNK, **options)
        return kind(config, policy=self.policy), *make_frt_pre_post_processors(config)

    def processors(self):
        return make_env_pre_post_processors(FrtReachEnv(), None)

    def test_lerobot_knows_it_by_its_name(self):
        self.assertIs(PreTrainedConfig.get_choice_class("frt"), FrtConfig)
        self.assertIs(get_policy_class("frt"), FrtPolicy)
        self.assertTrue(issubclass(FrtPolicy, PreTrainedPolicy))
        before, after = make_pre_post_processors(FrtConfig())
        self.assertEqual((before.name, after.name), ("policy_preprocessor", "policy_postprocessor"))

    def test_a_rollout_of_a_batch_is_what_the_formula_predicts(self):
        """each environment with its own state and task, twice: the second episode as the first"""
        policy, before, after = self.made()
        for count in (1, 3, 3):
            env = arms(count)
            data = rollout(env, policy, *self.processors(), before, after)
            self.assertEqual(tuple(data["action"].shape), (count, STEPS, WIDTH))
            for index in range(count):
                np.testing.assert_allclose(data["action"][index], predicted(index), rtol=1e-5, atol=1e-4)
            env.close()

    def test_an_evaluation_counts_its_episodes(self):
        policy, before, after = self.made(FrtPolicy)
        env = arms(2)
        self.addCleanup(env.close)
        info = eval_policy(env, policy, *self.processors(), before, after, n_episodes=3, start_seed=5)
        self.assertEqual([episode["seed"] for episode in info["per_episode"]], [5, 6, 7])
        self.assertEqual((info["aggregated"]["pc_success"], info["aggregated"]["avg_sum_reward"]), (100.0, STEPS))

    def test_noise_makes_runs_that_repeat(self):
        runs = []
        for seed in (1, 1, 2):
            policy, before, after = self.made(FrtPolicy, seed=seed)
            env = arms(2)
            runs.append(rollout(env, policy, *self.processors(), before, after)["action"])
            env.close()
        self.assertTrue(torch.equal(runs[0], runs[1]))
        self.assertFalse(torch.equal(runs[0], runs[2]))

    def test_a_chunk_has_a_row_for_each_action_of_each_environment(self):
        policy, *_ = self.made(FrtPolicy)
        state = torch.tensor([[0.5, -0.25, 1.0], [1.0, 1.0, 1.0]])
        batch = {"observation.image": torch.zeros(2, 3, SIDE, SIDE), "observation.state": state, "task": ["a", "b"],
                 "action": None, "next.reward": 0.0}
        chunk = policy.predict_action_chunk(batch, torch.zeros(2, HORIZON, WIDTH))
        self.assertEqual((chunk.shape, chunk.dtype, chunk.device.type), ((2, HORIZON, WIDTH), torch.float32, "cpu"))
        for index, task in enumerate("ab"):
            np.testing.assert_allclose(chunk[index].flatten(), expected(state[index].tolist(), task), atol=1e-4)

    def test_the_loop_of_a_real_robot_takes_it(self):
        policy, before, after = self.made()
        seen = {"observation.image": np.zeros((SIDE, SIDE, 3), np.uint8),
                "observation.state": np.array([0.5, -0.25, 1.0], np.float32)}
        action = predict_action(seen, policy, torch.device("cpu"), before, after, use_amp=False, task="one")
        np.testing.assert_allclose(action.flatten(), expected([0.5, -0.25, 1.0], "one")[:WIDTH], atol=1e-4)

    def test_a_default_prompt_is_for_environments_without_a_task(self):
        policy, *_ = self.made(default_prompt="other")
        batch = {"observation.image": torch.zeros(1, 3, SIDE, SIDE), "observation.state": torch.ones(1, STATE), "task": [""]}
        np.testing.assert_allclose(policy.select_action(batch)[0], expected([1.0] * STATE, "other")[:WIDTH], atol=1e-4)

    def test_what_does_not_fit_is_refused(self):
        def action(values):
            return {"action": PolicyFeature(FeatureType.ACTION, (values,))}

        FrtPolicy(FrtConfig(output_features=action(WIDTH)), policy=self.policy)
        for config, text in ((FrtConfig(output_features=action(7)), r"shape \(7,\); one of 'p' has 2 values"),
                             (FrtConfig(n_action_steps=11), "n_action_steps is 11; a chunk of 'p' has 10 actions")):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                FrtPolicy(config, policy=self.policy)
        with self.assertRaisesRegex(ValueError, "--policy.manifest=arm.toml"):
            FrtPolicy(FrtConfig())
        state, image = torch.zeros(1, STATE), torch.zeros(1, 3, SIDE, SIDE)
        for names, batch, error, text in (
                ({}, {"observation.state": state.repeat(2, 1), "task": ["a"]}, ValueError, "of one size: 1 tasks, 2 of"),
                ({}, {"task": ["a"]}, ValueError, "the batch has no observation; it has 'task'"),
                ({}, {"observation.image": image}, ValueError, "known to be 'observation/state'"),
                ({"state": "observation.state"}, {"observation.state": state}, ValueError, "reads no 'state'"),
                ({}, {"observation.state": state, "observation.a": image, "observation.b": image}, ValueError,
                 "known to be 'observation/image'; it has 'observation.state', 'observation.a', 'observation.b'"),
                ({}, {"observation.state": state * float("nan")}, frt.Error, "observation/state"),
                ({}, {"observation.state": state, "observation.image": image * 2 - 1}, ValueError, "from -1.0 to -1.0")):
            with self.subTest(text), self.assertRaisesRegex(error, text):
                FrtPolicy(FrtConfig(names=names), policy=self.policy).select_action(batch)

    def test_lerobot_may_rename_what_it_shows(self):
        policy, before, after = self.made()
        before.steps[0].rename_map = {"observation.image": "observation.top", "observation.state": "observation.joints"}
        env = arms(1)
        self.addCleanup(env.close)
        data = rollout(env, policy, *self.processors(), before, after)
        np.testing.assert_allclose(data["action"][0], predicted(0), rtol=1e-5, atol=1e-4)

    def test_it_is_not_trained(self):
        policy, *_ = self.made()
        for call in (lambda: policy.forward({}), policy.get_optim_params, policy.config.get_optimizer_preset,
                     policy.config.get_scheduler_preset):
            with self.assertRaisesRegex(NotImplementedError, "not trained"):
                call()


class Saved(unittest.TestCase):
    def test_a_saved_policy_is_made_again_from_its_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            config = FrtConfig(manifest=str(save(folder)), plugin_folders=[PLUGINS], model="p", n_action_steps=3)
            saved = pathlib.Path(folder) / "saved"
            FrtPolicy(config).save_pretrained(saved)
            again = PreTrainedConfig.from_pretrained(saved)
            again.pretrained_path = saved
            policy = make_policy(again, env_cfg=FrtReachEnv(features={
                "agent_pos": PolicyFeature(FeatureType.STATE, (STATE,)), "action": PolicyFeature(FeatureType.ACTION, (WIDTH,))}))
            self.assertIsInstance(policy, FrtPolicy)
            self.assertEqual((policy.config.n_action_steps, policy.policy.name), (3, "p"))
            make_pre_post_processors(again, pretrained_path=saved)


class Reaching(unittest.TestCase):
    def test_the_trained_policy_solves_its_task_and_not_in_the_dark(self):
        """the same evaluation as the command below, in this process"""
        success = {}
        for task in ("reach-v0", "dark-v0"):
            env_config = FrtReachEnv(task=task)
            config = FrtConfig(manifest=str(REACH), model="reach", guidance=1.5, n_action_steps=5, names=NAMES)
            policy = make_policy(config, env_cfg=env_config)
            envs = make_env(env_config, n_envs=3)
            info = eval_policy(envs["frt_reach"][0], policy, *make_env_pre_post_processors(env_config, config),
                               *make_pre_post_processors(config), n_episodes=12, start_seed=1000)
            close_envs(envs)
            success[task] = info["aggregated"]["pc_success"]
        self.assertGreaterEqual(success["reach-v0"], 75, success)
        self.assertLess(success["dark-v0"], 35, success)


class Command(unittest.TestCase):
    """lerobot-eval itself, on the trained policy of the reaching task."""
    EPISODES = 12

    def evaluate(self, folder, *policy):
        command = [sys.executable, "-m", "lerobot.scripts.lerobot_eval", "--env.discover_packages_path=gym_frt_reach",
                   "--plugin.discover_packages_path=frt.adapters.lerobot", *policy, "--env.type=frt_reach",
                   f"--eval.n_episodes={self.EPISODES}", "--eval.batch_size=3", "--seed=1000", f"--output_dir={folder}"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=900, cwd=folder,
                                env={**os.environ, "PYTHONPATH": f"{HERE}:{os.environ['PYTHONPATH']}"})
        self.assertEqual(result.returncode, 0, result.stderr[-6000:])
        return json.loads((pathlib.Path(folder) / "eval_info.json").read_text())["overall"]

    def test_the_command_runs_it_and_again_from_a_saved_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            overall = self.evaluate(folder, "--policy.type=frt", f"--policy.manifest={REACH}", "--policy.model=reach",
                                    "--policy.guidance=1.5", "--policy.n_action_steps=5",
                                    f"--policy.names={json.dumps(NAMES)}")
            self.assertEqual(overall["n_episodes"], self.EPISODES)
            self.assertGreaterEqual(overall["pc_success"], 75)
            saved = pathlib.Path(folder) / "saved"
            FrtPolicy(FrtConfig(manifest=str(REACH), model="reach", guidance=1.5,
                                n_action_steps=5, names=NAMES)).save_pretrained(saved)
            again = self.evaluate(folder, f"--policy.path={saved}")
            self.assertEqual(again["avg_sum_reward"], overall["avg_sum_reward"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
