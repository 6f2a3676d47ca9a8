# SPDX-License-Identifier: Apache-2.0
"""Environments of plugins in rollout and handoff: how a manifest names one, and what becomes of one that is broken. What
it does wrong ends the command with the name of the environment and of its plugin."""
import json
import os
import signal
import subprocess
import unittest

import test_robot_rollout as rollout
from support import FAILED, HOST, MANIFEST, OK, PLUGIN, TIMEOUT, USAGE, clean_environment

FAULTY = os.environ["FRT_DEFECT_PLUGIN_DIR"]
SENDER = "environment 'world' (plugin test.environment)"
# The defect (tests/unit/plugin_defects/defect_environment.cpp), the exit status, and words of the error.
MADE = [
    ("environment_missing", PLUGIN, "plugin test.environment offers no frt.environment/1"),
    ("environment_no_step", PLUGIN, "frt.environment/1 has no step, which version"),
    ("environment_size_3", PLUGIN, "says that it has 3 bytes"),
    ("create_makes_nothing", FAILED, f"{SENDER}: create reported success but made no object"),
    ("environment_no_ports", FAILED, f"{SENDER}: its role says port_count = 0"),
    ("environment_port_type", FAILED, f"{SENDER}: port 1 'observation/state' is f64[2]; a state is f32[values]"),
    ("environment_port_names", FAILED, f"{SENDER}: two ports are called 'observation/image'"),
    ("environment_action_short", FAILED, f"{SENDER}: the action is f32[2]; it must be f64 of 1 to 256 values"),
    ("environment_period_nan", FAILED, f"{SENDER}: period_s is nan"),
    ("environment_doc_null", FAILED, f"{SENDER}: its frt_environment_info has no doc"),
    ("environment_task_null", FAILED, f"{SENDER}: the instruction of task 1 is NULL"),
    ("environment_flags", FAILED, f"{SENDER}: its info has the flags 64"),
    ("environment_chance", FAILED, f"{SENDER}: it draws episodes and does not say that it is deterministic"),
]
RUN = [
    ("reset_throws", f"{SENDER}: its `reset` threw across the ABI: no such luck; ask its author for a fix"),
    ("reset_fails", f"{SENDER}: the arm is not plugged in"),
    ("observe_throws", f"{SENDER}: its `observe` threw across the ABI: no such luck"),
    ("observe_no_prompt", f"{SENDER}: its `observe` gives no prompt"),
    ("observe_shape", f"{SENDER}: its array 'observation/image' is u8[14,28,3], its port says u8[28,28,3]"),
    ("observe_type", f"{SENDER}: its array 'observation/state' is i32[2], its port says f32[2]"),
    ("observe_no_data", f"{SENDER}: its array 'observation/state' has no data"),
    ("observe_one_array", f"{SENDER}: its `observe` gives 1 arrays, it has 2 ports"),
    ("observe_state_nan", f"{SENDER}: its array 'observation/state' has nan as value 1"),
    ("step_throws", f"{SENDER}: its `step` threw across the ABI: no such luck"),
    ("step_fails", f"{SENDER}: the arm is stuck"),
    ("step_code_alone", f"{SENDER}: its `step`"),
    ("step_flags", f"{SENDER}: its `step` gives the flags 128"),
    ("reward_nan", f"{SENDER}: its `step` gives the reward nan; a reward is finite"),
]


class Environments(rollout.Episodes):
    def world(self, more="", environment='[environment.world]\nplugin = "test.environment"'):
        return self.robot(more=more, environment=environment)

    def act(self, defect, *arguments):
        return self.frt("-q", "--plugin-dir", rollout.PLUGINS, "--plugin-dir", FAULTY, *arguments,
                        env={"FRT_TEST_DEFECT": defect})

    def test_an_environment_without_a_defect_runs_and_is_rewarded(self):
        result = self.act("", "rollout", self.world(), "-n", 2, "--takeover", "0:10", "--json", "--picture", "w.svg")
        self.assertEqual(result.returncode, OK, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["stop_reasons"], {"task_over": 2})
        self.assertEqual(report["ticks"], 20)
        self.assertAlmostEqual(report["mean_reward"], 5)     # the expert's 0.5 in ten steps
        self.assertEqual((self.folder / "w.svg").read_text().count('<circle r="0.1"/>'), 2)

    def test_one_that_cannot_be_made_is_named_before_an_episode(self):
        for defect, status, words in MADE:
            with self.subTest(defect):
                result = self.act(defect, "rollout", self.world(), "-n", 1)
                self.assertEqual(result.returncode, status, result.stderr)
                self.assertIn(words, result.stderr)

    def test_one_that_fails_in_an_episode_ends_it_with_its_name(self):
        for defect, words in RUN:
            with self.subTest(defect):
                result = self.act(defect, "rollout", self.world(), "-n", 1)
                self.assertEqual(result.returncode, FAILED, result.stderr)
                self.assertIn(words, result.stderr)
        for defect, words in (("expert_nan", "its `expert_action` gives nan as value 0"),):
            result = self.act(defect, "rollout", self.world(), "-n", 1, "--takeover", "0:5")
            self.assertEqual(result.returncode, FAILED, result.stderr)
            self.assertIn(f"{SENDER}: {words}", result.stderr)
        for defect, words in (("draw_huge", "its drawing has more than 4194304 bytes"), ("draw_garbage", "its drawing is no text")):
            result = self.act(defect, "rollout", self.world(), "-n", 1, "--picture", "w.svg")
            self.assertEqual(result.returncode, FAILED, result.stderr)
            self.assertIn(SENDER, result.stderr)
            self.assertIn(words, result.stderr)
            self.assertFalse((self.folder / "w.svg").exists())

    def test_a_handoff_ends_as_a_rollout_does(self):
        for defect, words in (("reward_nan", "a reward is finite"), ("observe_shape", "its port says u8[28,28,3]")):
            result = self.act(defect, "handoff", self.world(), "--seconds", 1)
            self.assertEqual(result.returncode, FAILED, result.stderr)
            self.assertIn(f"{SENDER}: ", result.stderr)
            self.assertIn(words, result.stderr)

    def test_one_that_hangs_in_a_reset_is_named_in_the_log(self):
        log = self.folder / "log"
        environment = {**clean_environment(), "FRT_TEST_DEFECT": "reset_hangs", "FRT_TEST_LOG": str(log)}
        with open(log, "wb") as stderr:
            result = subprocess.run(
                [HOST, "--plugin-dir", rollout.PLUGINS, "--plugin-dir", FAULTY, "--setup-patience", "0.02", "rollout",
                 self.world(), "-n", "1"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
                cwd=self.folder, timeout=TIMEOUT)
        said = log.read_text(encoding="utf-8", errors="replace")
        self.assertEqual(result.returncode, OK, said)
        self.assertIn("test.environment: its `reset` has not returned for 0.02 s", said)

    def hanging(self, call, *arguments, how="hangs"):
        """A command whose environment hangs in `call`, for good or how="takes_long" for 1.5 s."""
        environment = {**clean_environment(), "FRT_TEST_DEFECT": f"{call}_{how}"}
        process = subprocess.Popen(
            [HOST, "-q", "--plugin-dir", rollout.PLUGINS, "--plugin-dir", FAULTY, *map(str, arguments)], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.folder, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual(process.stderr.readline(), "hangs\n")
        return process

    def test_a_signal_ends_a_command_whose_environment_hangs_and_names_it(self):
        rows = [(number, call, command) for number in (signal.SIGINT, signal.SIGTERM)
                for call, command in (("step", ("rollout", "-n", 1)), ("observe", ("rollout", "-n", 1)),
                                      ("expert_action", ("rollout", "-n", 1, "--takeover", "0:5")),
                                      ("step", ("handoff", "--seconds", 60)))]
        rows.append((signal.SIGTERM, "reset", ("rollout", "-n", 1)))
        for number, call, (command, *arguments) in rows:
            with self.subTest(number=number, call=call, command=command):
                process = self.hanging(call, command, self.world(), *arguments)
                process.send_signal(number)
                said = process.communicate(timeout=TIMEOUT)[1]
                self.assertEqual(process.returncode, 128 + number, said)
                self.assertEqual(said, f"error: {SENDER}: its `{call}` did not come back in time; ended without it\n")

    def test_a_slow_step_is_waited_for_and_its_episode_recorded(self):
        process = self.hanging("step", "rollout", self.world(), "-n", 1, "--record", "kept", how="takes_long")
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=TIMEOUT)[1]
        self.assertEqual(process.returncode, 128 + signal.SIGINT, said)
        self.assertNotIn("did not come back", said)
        self.assertTrue((self.folder / "kept/episode_000000.npz").exists(), said)

    def test_an_interrupted_reset_may_take_its_time_and_a_second_interrupt_ends_it(self):
        process = self.hanging("reset", "rollout", self.world(), "-n", 1)
        process.send_signal(signal.SIGINT)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(6)     # more than a tick has
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(TIMEOUT), 128 + signal.SIGINT)

    def test_hz_follows_the_environment_and_may_not_contradict_it(self):
        result = self.act("environment_slow", "rollout", self.world(), "-n", 1, "--json", "--record", "one")
        self.assertEqual(result.returncode, OK, result.stderr)
        episode = rollout.read_npz(self.folder / "one/episode_000000.npz")
        self.assertEqual(json.loads(rollout.text(episode["meta"]))["hz"], 10)
        result = self.act("environment_slow", "rollout", self.world(), "-n", 1, "--set", "host.robot.hz=25")
        self.assertEqual(result.returncode, MANIFEST, result.stderr)
        self.assertIn("a step of the environment 'world' takes 0.1 s, and [host.robot] says hz = 25; leave hz out, or set it to 10",
                      result.stderr)

    def test_what_is_wrong_in_a_manifest_is_told_with_what_to_write(self):
        def said(status, manifest, *arguments, command="rollout"):
            result = self.act("", command, manifest, *arguments)
            self.assertEqual(result.returncode, status, result.stderr)
            return result.stderr
        for command in ("rollout", "handoff"):
            text = said(MANIFEST, self.world(environment=""), command=command)
            self.assertIn("has no environment; add a table [environment.NAME]", text)
            self.assertIn('plugin = "frt.reach"', text)
        two = '[environment.world]\nplugin = "test.environment"\n[environment.reach]\nplugin = "frt.reach"'
        self.assertIn("choose one with --environment; there are: world, reach", said(USAGE, self.world(environment=two)))
        self.assertIn("no environment is called 'raech' (did you mean `reach`?)",
                      said(USAGE, self.world(environment=two), "--environment", "raech"))
        self.assertIn("did you mean `frt.reach`?",
                      said(MANIFEST, self.world(environment='[environment.world]\nplugin = "frt.raech"')))
        self.assertIn("'frt.cpu' is a backend plugin; here belongs an environment plugin",
                      said(MANIFEST, self.world(environment='[environment.world]\nplugin = "frt.cpu"')))

    def test_config_shows_environments(self):
        checked = self.check(OK, "--plugin-dir", rollout.PLUGINS, "config", "check", self.robot()).stdout
        self.assertIn("1 environments", checked)
        dump = json.loads(self.check(OK, "--plugin-dir", rollout.PLUGINS, "config", "dump", self.robot(), "--json").stdout)
        self.assertEqual(dump["environment"]["reach"]["plugin"]["value"], "frt.reach")
        shown = self.check(OK, "plugins", "show", "frt.reach").stdout
        self.assertIn("(environment)", shown)
        self.assertNotIn("operators", shown)
        one = ("--plugin-dir", rollout.PLUGINS, "plugins", "show", "frt.reach", "--manifest", self.robot())
        shown = self.check(OK, *one).stdout
        for line in (r"environment +reach", r"gives image +observation/image u8\[28,28,3\]: RGB: .*",
                     r"action +f64\[2\]: a step in x and y, in sides of the square, at most 0.06 long", r"tasks +red, green, blue",
                     r"episode +at most 40 steps", r"pace +any", r"deterministic +yes", r"draws +yes"):
            self.assertRegex(shown, "(?m)^" + line + "$")
        [facts] = json.loads(self.check(OK, *one, "--json").stdout)["environments"]
        self.assertEqual(facts["tasks"][1], {"name": "green", "instruction": "reach the green disc"})
        other = self.check(USAGE, "--plugin-dir", rollout.PLUGINS, "--plugin-dir", FAULTY, "plugins", "show", "test.environment",
                           "--manifest", self.robot()).stderr
        self.assertIn("no environment of", other)


if __name__ == "__main__":
    unittest.main()
