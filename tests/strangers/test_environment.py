# SPDX-License-Identifier: Apache-2.0
"""The template of an environment: the template of a policy acts in it, its episodes depend on their seeds, and it passes
every case of its kind."""
import json
import os
import sys
import unittest
import xml.etree.ElementTree

from installed_sdk import CMAKE, TemplateTest, run
from support import MANIFEST, OK, USAGE

EPISODES = 40


class Environment(TemplateTest):
    template = "environment"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.policy = cls.build("policy")  # beside it, as the README says
        run(sys.executable, cls.policy / "make_weights.py", cls.policy / "weights.safetensors")

    def template_manifest(self):
        text = (self.source / "manifest.toml").read_text(encoding="utf-8")
        return self.manifest(text.replace('"weights.safetensors"', f'"{self.policy / "weights.safetensors"}"'))

    def act(self, status, command, *arguments):
        return self.check(status, "-q", "--plugin-dir", self.policy / "build", command, self.template_manifest(), *arguments)

    def rollout(self, *arguments, status=OK):
        result = self.act(status, "rollout", *arguments)
        return json.loads(result.stdout) if status == OK else result.stderr

    def test_the_policy_catches_what_drifts_slowly(self):
        report = self.rollout("-n", EPISODES, "--seed", 1000, "--json")
        self.assertEqual(report["episodes"], EPISODES)
        self.assertGreaterEqual(report["success_rate"], 0.8)
        self.assertEqual(report["captures_since_ready"], 0)
        self.assertGreater(report["mean_reward"], 0.2)   # the point begins at least 0.3 away
        still = self.rollout("-n", EPISODES, "--seed", 1000, "--json", "--set", "environment.catch.options.drift=0")
        self.assertGreaterEqual(still["success_rate"], report["success_rate"])
        fast = self.rollout("-n", EPISODES, "--seed", 1000, "--json", "--set", "environment.catch.options.drift=0.03")
        self.assertLess(fast["success_rate"], report["success_rate"])

    def test_the_expert_catches_every_disc(self):
        report = self.rollout("-n", EPISODES, "--takeover", "0:60", "--json")
        self.assertEqual(report["successes"], EPISODES)

    def test_a_takeover_behind_the_end_and_a_wrong_option_are_refused(self):
        self.assertIn("at most 60 ticks", self.rollout("--takeover", "60:70", status=USAGE))
        said = self.rollout("--set", "environment.catch.options.drfit=1", status=MANIFEST)
        self.assertIn("did you mean `drift`?", said)

    def test_a_list_hands_the_discs_to_the_policy(self):
        report = json.loads(self.act(OK, "handoff", "--seconds", 1, "--plan-every", 0.3, "--interrupts", 2, "--json").stdout)
        self.assertEqual(len(report["interrupts"]), 2)
        for times in report["interrupts"]:
            self.assertRegex(times["instruction"], "^catch the (red|green|blue) disc$")

    def test_the_tutorial_does_what_it_says(self):
        *_, rollout, checked, expert, recorded = self.tutorial()
        self.assertIn("of 20 episodes", rollout)
        self.assertRegex(checked, r"\d\d passed, 0 failed")
        self.assertIn("success 20 of 20 episodes", expert)
        self.assertIn("of 1 episodes", recorded)
        picture = xml.etree.ElementTree.parse(self.source / "catch.svg").getroot()
        self.assertEqual(len([e for e in picture.iter() if e.tag.endswith("animate")]), 12 * 4)
        self.assertTrue((self.source / "episodes/episode_000000.npz").stat().st_size)

    def test_it_passes_every_case_of_an_environment(self):
        verdicts = json.loads(run(os.environ["FRT_PLUGIN_CHECK"], self.plugins / "acme_catch.so", "--json"))
        results = {case["name"]: case["result"] for case in verdicts["cases"]}
        bad = {name for name, result in results.items() if result != "ok"}
        self.assertEqual(bad, {"plugin host of the oldest version"}, verdicts)
        for case in ("same seed, same episode", "reset after an error", "gives what it says", "actions out of range"):
            self.assertEqual(results[f"environment {case}"], "ok", verdicts)

    def test_its_own_test_runs_the_checker(self):
        ctest = os.path.join(os.path.dirname(CMAKE), "ctest")
        self.assertIn("100% tests passed", run(ctest, "--test-dir", self.plugins))


if __name__ == "__main__":
    unittest.main()
