# SPDX-License-Identifier: Apache-2.0
"""The template of a robot policy: it solves the reaching task, captured and eager alike, and refuses what does not fit."""
import json
import os
import runpy
import unittest

from installed_sdk import BUILD, TemplateTest, run
from serving import Server
from support import FAILED, OK, SOURCE

MAKE_WEIGHTS = runpy.run_path(str(SOURCE / "sdk/templates/policy/make_weights.py"))
EPISODES = 40


class Policy(TemplateTest):
    template = "policy"

    def policy(self, device="", tensors=None, metadata=None):
        MAKE_WEIGHTS["save"](self.folder / "weights.safetensors", tensors or MAKE_WEIGHTS["make"](),
                             metadata or MAKE_WEIGHTS["METADATA"])
        return self.model_manifest("weights.safetensors", "", device, """[environment.reach]
plugin = "frt.reach"
[host.robot]
model = "m"
execute = 10
""", plugin="acme.reach")

    def rollout(self, manifest, *arguments):
        return json.loads(self.check(OK, "-q", "rollout", manifest, "--json", *arguments).stdout)

    def test_it_reaches_the_disc_that_the_instruction_names(self):
        report = self.rollout(self.policy(), "-n", EPISODES, "--seed", 1000)
        self.assertEqual(report["episodes"], EPISODES)
        self.assertGreaterEqual(report["success_rate"], 0.9)
        self.assertEqual(report["captures_since_ready"], 0)

    def test_without_the_image_it_does_not(self):
        blind = MAKE_WEIGHTS["make"]()
        blind["look"] = (blind["look"][0], [0.0] * len(blind["look"][1]))
        report = self.rollout(self.policy(tensors=blind), "-n", EPISODES, "--seed", 1000)
        self.assertLess(report["success_rate"], 0.3)

    def test_captured_and_eager_episodes_are_equal_to_the_bit(self):
        self.rollout(self.policy(), "-n", 3, "--seed", 5, "--record", "episodes")
        records = sorted((self.folder / "episodes").glob("*.npz"))
        self.assertEqual(len(records), 3)
        for device in ("", "capture = false"):
            for record in records:
                self.assertIn("bit for bit", self.check(OK, "replay", record, "--manifest", self.policy(device)).stdout)

    def test_the_tutorial_does_what_it_says(self):
        *_, captured, eager, bench, tests, capsules = self.tutorial()
        self.assertTrue((self.source / "reach.svg").stat().st_size)
        self.assertIn("bit for bit", captured)
        self.assertEqual(captured, eager)
        self.assertIn("infer", bench)
        self.assertIn("100% tests passed", tests)
        self.assertTrue(capsules.endswith("PASS"), capsules)

    def test_serve_knows_a_policy_by_its_role(self):
        """its manifest has no [host.robot]"""
        self.policy()  # its weights
        manifest = self.model_manifest("weights.safetensors", plugin="acme.reach")
        server = Server(manifest, self.folder, self.plugins)
        self.addCleanup(server.process.stderr.close)
        self.addCleanup(server.process.wait)
        self.addCleanup(server.process.kill)
        self.assertIn("serving m on ws://127.0.0.1:", server.said)

    def test_the_host_tells_what_it_reads(self):
        shown = self.check(OK, "plugins", "show", "acme.reach", "--manifest", self.policy()).stdout
        self.assertRegex(shown, r"observation/image u8\[28,28,3\]; observation/state f32\[2\]; prompt")
        self.assertRegex(shown, r"horizon +10 actions")

    def test_bench_measures_what_it_has(self):
        shown = self.check(OK, "bench", "policy", self.policy(), "--prompt", 1, "-r", 2, "--warmup", 0).stdout
        self.assertIn("infer, new prompt", shown)
        self.assertNotIn("noise", shown)

    def test_it_passes_every_case_of_a_policy(self):
        self.policy()
        verdicts = json.loads(run(os.environ["FRT_PLUGIN_CHECK"], self.plugins / "acme_reach.so", "--reference",
                                  f"{BUILD}/lib/frt/plugins/frt_cpu.so", "--checkpoint",
                                  self.folder / "weights.safetensors", "--prompt", "reach the red disc", "--json"))
        results = {case["name"]: case["result"] for case in verdicts["cases"]}
        self.assertLessEqual(set(results.values()), {"ok", "skip"}, verdicts)
        for case in ("captured equals eager", "refuses observations", "default instruction", "prompts",
                     "writes its outputs alone"):
            self.assertEqual(results[f"policy {case}"], "ok", verdicts)

    def test_an_instruction_without_a_goal_is_refused_with_the_goals(self):
        other = self.policy(metadata={"goals": "left middle right"})
        result = self.check(FAILED, "rollout", other, "-n", 1)
        self.assertIn("names no goal; name one of left, middle, right", result.stderr)

    def test_weights_of_another_shape_are_named(self):
        wrong = MAKE_WEIGHTS["make"]()
        wrong["bias"] = ([2], [0.0, 0.0])
        result = self.frt("rollout", self.policy(tensors=wrong), "-n", 1)
        self.assertNotEqual(result.returncode, OK)
        self.assertIn("weights.safetensors: 'bias' is F32 [2], expected F32 [6]", result.stderr)


if __name__ == "__main__":
    unittest.main()
