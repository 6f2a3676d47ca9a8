# SPDX-License-Identifier: Apache-2.0
"""What the adapters have in common, without the libraries that they are for."""
import unittest

from frt.adapters._episodes import Episodes
from frt.adapters._names import match

from linear_policy import LinearPolicyTest

REACH = [{"name": "image/base_0_rgb", "kind": "image", "shape": [None, None, 3], "required": False},
         {"name": "image/left_wrist_0_rgb", "kind": "image", "shape": [None, None, 3], "required": False},
         {"name": "state", "kind": "state", "shape": [2], "required": True}]
IMAGE, STATE = "image", "state"


class Names(unittest.TestCase):
    def test_equal_names_are_one_input_however_their_parts_are_joined(self):
        inputs = [{"name": "observation.images.top", "kind": IMAGE, "required": True},
                  {"name": "observation/state", "kind": STATE, "required": True}]
        self.assertEqual(match(inputs, {"observation/images/top": IMAGE, "observation.state": STATE}),
                         {"observation.images.top": "observation/images/top", "observation/state": "observation.state"})

    def test_last_parts_tell_cameras_apart(self):
        offered = {"observation.images.left_wrist_0_rgb": IMAGE, "observation.images.base_0_rgb": IMAGE,
                   "observation.state": STATE}
        self.assertEqual(match(REACH, offered), {"image/base_0_rgb": "observation.images.base_0_rgb",
                                                 "image/left_wrist_0_rgb": "observation.images.left_wrist_0_rgb",
                                                 "state": "observation.state"})

    def test_one_camera_for_one_view_needs_no_name(self):
        self.assertEqual(match(REACH[::2], {"observation.image": IMAGE, "observation.qpos": STATE}),
                         {"image/base_0_rgb": "observation.image", "state": "observation.qpos"})

    def test_two_cameras_with_one_last_part_are_not_guessed(self):
        offered = {"a/base_0_rgb": IMAGE, "b/base_0_rgb": IMAGE, "state": STATE}
        with self.assertRaisesRegex(ValueError, "'image/base_0_rgb', 'image/left_wrist_0_rgb'.*'a/base_0_rgb'"):
            match(REACH, offered)
        self.assertEqual(match(REACH, offered, {"image/base_0_rgb": "b/base_0_rgb"})["image/base_0_rgb"], "b/base_0_rgb")

    def test_a_camera_is_no_state(self):
        with self.assertRaisesRegex(ValueError, "known to be 'state'; it has 'observation.image'"):
            match(REACH[2:], {"observation.image": IMAGE})

    def test_a_policy_that_would_see_nothing_is_refused(self):
        with self.assertRaisesRegex(ValueError, "Say which in 'names': {'image/base_0_rgb': NAME}"):
            match(REACH, {"observation.image": IMAGE, "observation.state": STATE})
        self.assertEqual(match(REACH, {"observation.state": STATE}), {"state": "observation.state"})  # blind by intent

    def test_pairs_that_do_not_exist_are_named(self):
        offered = {"observation.image": IMAGE, "observation.state": STATE}
        with self.assertRaisesRegex(ValueError, "reads no 'image/top'; it reads 'image/base_0_rgb'"):
            match(REACH, offered, {"image/top": "observation.image"})
        with self.assertRaisesRegex(ValueError, "'observation.top', which the observation has not"):
            match(REACH, offered, {"image/base_0_rgb": "observation.top"})


class Chunks(LinearPolicyTest):
    """The linear policy remembers its instruction, so it tells whose state it is in."""

    def setUp(self):
        self.state = [0.5, -0.25, 1.0]
        self.zero = self.observation(self.state)

    def chunk(self, prompt):
        return self.rows(self.policy.infer(self.zero, prompt=prompt))

    def test_the_noise_counts_on_over_episodes(self):
        observation = self.observation(self.state)
        del observation["noise"]
        episodes = Episodes(self.policy, seed=7)
        got = []
        for _ in range(2):
            got += [self.rows(episodes.chunk(observation, prompt="do")) for _ in range(2)]
            episodes.reset()
        self.assertEqual(got, [self.rows(self.policy.infer(observation, prompt="do", seed=7, draw=draw))
                               for draw in range(4)])
        self.assertEqual(self.rows(episodes.chunk(observation, prompt="do", seed=3)),
                         self.rows(self.policy.infer(observation, prompt="do", seed=3)))

    def test_each_environment_goes_on_from_its_own_state(self):
        one, other = self.chunk("one"), self.chunk("other")
        self.assertNotEqual(one, other)
        episodes = Episodes(self.policy)
        for environment, prompt in enumerate(("one", "other")):
            episodes.chunk(self.zero, environment=environment, keep=True, prompt=prompt)
        for _ in range(2):
            self.assertEqual(self.rows(episodes.chunk(self.zero, environment=0, keep=True, prompt="one")), one)
            self.assertEqual(self.rows(episodes.chunk(self.zero, environment=1, keep=True, prompt="other")), other)

    def test_an_episode_begins_as_the_first_one_did(self):
        episodes = Episodes(self.policy)
        first = self.rows(episodes.chunk(self.zero))
        self.assertEqual(first, self.chunk(""))  # the checkpoint's own instruction
        self.assertNotEqual(self.rows(episodes.chunk(self.zero, prompt="other")), first)
        episodes.reset()
        self.assertEqual(self.rows(episodes.chunk(self.zero)), first)

    def test_an_observation_that_is_refused_changes_nothing(self):
        episodes = Episodes(self.policy)
        episodes.chunk(self.zero, environment=0, keep=True, prompt="one")
        episodes.chunk(self.zero, environment=1, keep=True, prompt="other")
        with self.assertRaisesRegex(Exception, "observation/state"):
            episodes.chunk(self.observation([1.0]), environment=0, keep=True)
        self.assertEqual(self.rows(episodes.chunk(self.zero, environment=0, prompt="one")), self.chunk("one"))

    def test_guidance_of_a_policy_without_it_is_refused(self):
        with self.assertRaisesRegex(Exception, "guidance"):
            Episodes(self.policy, guidance=2.0).chunk(self.zero, prompt="one")


if __name__ == "__main__":
    unittest.main(verbosity=2)
