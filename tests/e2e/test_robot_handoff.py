# SPDX-License-Identifier: Apache-2.0
"""frt-host handoff: a planner and an actor, in real time."""
import json
import unittest

import test_robot_rollout as rollout
from support import FIXTURES, MANIFEST, OK, USAGE


class Handoffs(rollout.Episodes):
    def handoff(self, enough, seconds, *arguments):
        """The report of a run of some seconds, and its stderr; of a longer run where the machine was too slow for what
        `enough` asks of the report."""
        for longer in (1, 4, 16):
            result = self.check(OK, *arguments, "--seconds", seconds * longer, "--json")
            report = json.loads(result.stdout)
            if enough(report):
                break
        return report, result.stderr

    def test_a_language_model_plans_and_a_trained_policy_acts_on_one_device(self):
        manifest = FIXTURES.parent.parent / "hosts/manifests/handoff.toml"
        report, text = self.handoff(lambda report: report["plans"] and report["reached"], 4, "handoff", manifest,
                                    "--plan-every", 0.5, "--interrupts", 3)
        self.assertGreaterEqual(report["plans"], 1)
        self.assertGreaterEqual(report["reached"], 1)
        self.assertEqual(report["captures_since_ready"], 0)
        self.assertEqual(report["refused_total"], 0)
        self.assertEqual(len(report["interrupts"]), 3)
        for times in report["interrupts"]:
            self.assertNotEqual(times["before"], times["after"])
        self.assertRegex(text, "plan: .* -> reach the (red|green|blue) disc")

    def test_interrupts_change_the_action_without_waiting_for_a_tick(self):
        manifest = self.robot("hz = 20")
        report, _ = self.handoff(lambda report: report["plans"] >= 3, 2, "--plugin-dir", rollout.PLUGINS, "handoff",
                                 manifest, "--plan-every", 0.4, "--interrupts", 4)
        self.assertEqual(len(report["interrupts"]), 4)
        self.assertGreaterEqual(report["plans"], 3)
        self.assertEqual(report["captures_since_ready"], 0)
        for times in report["interrupts"]:
            self.assertLessEqual(times["overwritten_ms"], times["action_ms"])
            self.assertGreater(times["replay_ms"], 0)

    def test_a_language_model_plans_on_a_device_of_its_own(self):
        planner = (f'[device.cpu1]\nbackend = "frt.cpu"\n[device.cpu1.options]\nthreads = 1\n'
                   f'[model.talk]\nplugin = "frt.qwen36"\ndevice = "cpu1"\ncheckpoint = "{FIXTURES / "demo"}"')
        report, text = self.handoff(lambda report: report["plans"], 2, "--plugin-dir", rollout.PLUGINS, "handoff",
                                    self.robot("hz = 20", more=planner), "--planner", "talk", "--plan-every", 0.5,
                                    "--interrupts", 1)
        self.assertGreaterEqual(report["plans"], 1)
        ready = [line for line in text.splitlines() if line.startswith("ready in")]
        self.assertEqual(len(ready), 2)
        self.assertIn("plugins", ready[0])
        self.assertNotIn("plugins", ready[1], "phases of the first model in the line of the second")
        shared = planner.replace('"cpu1"', '"cpu0"')
        text = self.check(MANIFEST, "--plugin-dir", rollout.PLUGINS, "handoff", self.robot(more=shared), "--planner", "talk",
                          "--seconds", 1).stderr
        self.assertIn("one of its own", text)

    def test_a_prompt_without_a_planner_is_refused(self):
        text = self.check(USAGE, "--plugin-dir", rollout.PLUGINS, "handoff", self.robot(), "--prompt", "Felix").stderr
        self.assertIn("--planner", text)


if __name__ == "__main__":
    unittest.main()
