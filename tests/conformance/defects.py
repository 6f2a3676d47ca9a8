#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""frt-plugin-check over plugins with one defect each: the case of that place fails, by name and with what to
mend, and no other one (but ALSO); whatever a plugin does, the checker ends with 1 and a verdict, and nothing that it
started lives on.

    defects.py <frt-plugin-check> <folder of the plugins with defects> <backend with defects> <CPU plugin> <small model>

The rows of tests/unit/plugin_defects say what a host refuses; the checker must find each defect of a backend among them.
"""
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import one_core  # noqa: E402

CHECK, FOLDER, BACKEND_WITH_DEFECTS, CPU = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)
SMALL = sys.argv.pop(1)
ROWS = (pathlib.Path(__file__).parents[1] / "unit/plugin_defects/plugin_defects_test.cpp").read_text(encoding="utf-8")

# The defect (tests/unit/plugin_defects), the case that finds it, its verdict, and words of the message.
BACKEND = [
    ("backend_missing", "plugin tables", "FAIL", "offers no frt.backend/1"),
    ("backend_no_copy", "plugin tables", "FAIL", "has no copy"),
    ("kernel_no_launch", "plugin device", "FAIL", "test.nothing/1 has no launch function"),
    ("kernels_null", "plugin device", "FAIL", "list of kernels is NULL"),
    ("kernels_count", "plugin device", "FAIL", "18446744073709551615 entries"),
    ("kernels_stride", "plugin device", "FAIL", "stride of 0 bytes"),
    ("device_count_huge", "plugin device", "FAIL", "4294967295 devices"),
    ("device_count_throws", "plugin device", "FAIL", "`device_count` threw"),
    ("device_count_exits", "plugin device", "CRASH", "exit status 0"),
    ("device_open_throws", "plugin device", "FAIL", "no such luck"),
    ("device_open_without_object", "plugin device", "FAIL", "made no device"),
    ("device_status_any_device", "plugin device status", "FAIL", "of device 1 of 1 returns FRT_OK"),
    ("fact_null", "plugin device status", "FAIL", "its fact is NULL"),
    ("device_info_ignores_size", "plugin host of a later minor version", "FAIL", "leaves the struct_size 648 in a struct of 456"),
]
# Defects of a model that no checkpoint is needed for, as above.
MODEL = [
    ("model_missing", "model tables", "FAIL", "offers no frt.model/1"),
    ("open_throws", "plugin opens twice", "FAIL", "no key in the lock"),
    ("open_wants_same_size", "plugin host of a later minor version", "FAIL", "without a message"),
    ("open_refuses_oddly", "plugin host of a later minor version", "FAIL", "refuses a newer host"),
    ("open_log_unchecked", "plugin host without optional extensions", "CRASH", "Segmentation fault"),
    ("atexit_aborts", "plugin load", "CRASH", "when its process ends: signal Aborted"),
]
# Defects of a model that has to be made to show them, as above; each case alone, as the model's graph does nothing.
MADE = [
    ("prefill_key_fails", "model hot calls do not allocate", "FAIL", "prefill_key returns FRT_ERR_NO_VARIANT"),
    ("prefill_key_grows_text", "model hot calls do not allocate", "FAIL", "prefill_key allocates memory"),
    ("prefill_key_aligns", "model hot calls do not allocate", "FAIL", "prefill_key allocates memory"),
    ("create_code_alone", "model rare options", "FAIL", "option width = 1: `create` returns FRT_ERR_IO without a message"),
    ("create_code_alone", "model no checkpoint", "FAIL", "`create` returns FRT_ERR_IO without a message"),
    ("leaks", "model leaves nothing behind", "FAIL", "still has 1 buffer(s)"),
    ("lm_info_ignores_size", "plugin host of a later minor version", "FAIL", "leaves the struct_size 256 in a struct of 248"),
    ("fingerprint_no_name", "model capsule version", "FAIL", "the name of a field of the fingerprint is NULL"),
]
# Defects of an environment, as above.
ENVIRONMENT = [
    ("environment_missing", "environment tables", "offers no frt.environment/1"),
    ("environment_no_step", "environment tables", "has no step"),
    ("create_makes_nothing", "environment tables", "returns FRT_OK and no environment"),
    ("environment_port_type", "environment tables", "a state is f32[values]"),
    ("environment_task_words", "environment tables", "the name of task 1 is no single word: 'the green'"),
    ("environment_task_twice", "environment tables", "task 0 and task 1 have one name: 'red'"),
    ("environment_chance", "environment tables", "does not say that it is deterministic"),
    ("reset_throws", "environment gives what it says", "`reset` threw"),
    ("observe_shape", "environment gives what it says", "its port says u8[28,28,3]"),
    ("observe_state_nan", "environment gives what it says", "has nan as value 1"),
    ("reward_nan", "environment gives what it says", "gives the reward nan"),
    ("never_over", "environment gives what it says", "after max_steps = 10 steps the episode is not over"),
    ("environment_remembers", "environment same seed, same episode", "the same seed a second time: after step 0 the arrays differ"),
    ("observe_moves", "environment looking changes nothing", "an episode with more looks: after step 0 the arrays differ"),
    ("step_unchecked", "environment refuses", "step with nan as value 0 returns FRT_OK, it must be FRT_ERR_INVALID_ARGUMENT"),
    ("step_error_stays", "environment reset after an error", "it failed once"),
    ("set_task_ignored", "environment tasks", "after set_task of task 1 the instruction is"),
    ("expert_nan", "environment expert action", "gives nan as value 0"),
    ("expert_far", "environment expert action", "gives 2.000000 as value 0"),
    ("draw_open", "environment draws", "is not made of whole SVG elements"),
    ("draw_ignores_sink", "environment draws", "draw with a sink that returns FRT_ERR_CANCELLED returns FRT_OK"),
]
# The rule that the small model breaks (tests/conformance/small_model), as above. Of a language model ...
SMALL_LM = [
    ("launch_works", "model captured equals eager", "captured, "),
    ("capsule_forgets_row", "model capsules", "restored: "),
    ("state_outside", "model capsules", "restored: "),
    ("encode_loses", "model tokenizer round trip", '"Hello, world!" is encoded and decoded to "Hell, wrld!"'),
    ("stream_splits", "model tokenizer streams", "the stream gives "),
    ("stream_any_id", "model tokenizer ids", "decode of id -1 returns FRT_OK, it must be FRT_ERR_OUT_OF_RANGE"),
    ("encode_without_limit", "model tokenizer limits", "with max_tokens one less returns FRT_OK"),
    ("encode_trusts", "model tokenizer control tokens", 'writes the control token "<|user|>" for a plain part'),
    ("render_trusts", "model chat prompts", "does not say that the content of a message is plain"),
    ("render_parts_behind", "model chat prompts", "parts are sorted, disjoint and within the text"),
    ("chat_loses", "model chat answers", "in pieces of 1 bytes, is "),
    ("chat_complete_early", "model chat answers", 'without FRT_CHAT_FINAL says "complete": true'),
    ("chat_takes_back", "model chat answers", "takes back what it reported"),
    ("defaults_stop", "model chat defaults", "stop_token_ids has 1000, which is no id"),
    ("defaults_stop_large", "model chat defaults", "stop_token_ids has 4294967301, which is no id"),
    ("selftest_takes_anything", "model self-test", "no-such-goldens returns FRT_OK, it must be an error"),
    ("render_names_checkpoint", "model chat prompts", "names the checkpoint: synthetic:lm: a message"),
    ("create_any_flag", "model unknown flags", "a flag that no version has returns FRT_OK, it must be FRT_ERR_UNSUPPORTED"),
    ("encode_any_flag", "model tokenizer unknown flags", "encode with a flag that no version has returns FRT_OK"),
    ("decode_any_flag", "model tokenizer unknown flags", "decode with a flag that no version has returns FRT_OK"),
    ("stream_create_any_flag", "model tokenizer unknown flags", "stream_create with a flag that no version has returns FRT_OK"),
    ("parse_any_flag", "model chat unknown flags", "parse with a flag that no version has returns FRT_OK"),
    ("option_out_of_range", "model rare options", "option width = 0 is accepted, outside the 1 to 8"),
    ("option_refused_unnamed", "model rare options", "option rate = -1: `create` refuses with words that name neither"),
]
# ... and of a policy.
SMALL_POLICY = [
    ("policy_launch_works", "policy captured equals eager", "captured against eager"),
    ("capsule_forgets_previous", "policy capsules", "value "),
    ("capsule_forgets_noise", "policy capsules", "value "),
    ("prompt_kept", "policy default instruction", "not what came before"),
    ("no_prompt_oddly", "policy default instruction", "without an instruction returns FRT_ERR_INVALID_ARGUMENT"),
    ("set_prompt_ignored", "policy prompts", "leaves id 0 of branch 0 unwritten"),
    ("set_prompt_miscounts", "policy prompts", "says that the prompt has 8 tokens, and prompt_length of branch 0 is 7"),
    ("set_prompt_wants_tokens", "policy prompts", "signal Aborted"),
    ("set_prompt_ascii", "policy prompts", "signal Aborted"),
    ("set_prompt_borrows", "policy prompts", "against `write` of the same words"),
    ("set_prompt_all_branches", "policy prompts", "changes the prompt of branch 1"),
    ("set_prompt_any_branch", "policy prompts", "set_prompt of branch 2 returns FRT_OK"),
    ("set_prompt_silent", "policy prompts", 'set_prompt of "" returns FRT_ERR_INVALID_ARGUMENT without a message'),
    ("set_prompt_refusal_writes", "policy prompts", "is refused, but changes the prompt of branch 0"),
    ("set_prompt_remembers", "policy prompts", "after other prompts"),
    ("set_prompt_becomes_default", "policy prompts", "without an instruction"),
    ("set_prompt_captured", "policy prompts", "captured against eager"),
    ("types_judged", "policy refuses observations", "FRT_ERR_INVALID_ARGUMENT, it must be FRT_ERR_UNSUPPORTED"),
    ("guidance_ignored", "policy guidance", "the chunk is the same with the strengths 1.5 and 4"),
    ("guidance_unchecked", "policy guidance", "with a last strength of nan returns FRT_OK"),
    ("previous_ignored", "policy continuation", "the chunk is the same with FRT_CONTINUE_GUIDED"),
    ("clean_ignored", "policy continuation", "FRT_CONTINUE_CLEAN with a delay of 1 against the previous chunk"),
    ("previous_unchecked", "policy continuation", "set_continuation with the mode 99 returns FRT_OK"),
    ("chunk_short", "policy writes its outputs alone", "value 9 of the 12 of a chunk"),
    ("chunk_behind", "policy writes its outputs alone", "writes byte 48 of `actions`, behind the 48"),
    ("input_written", "policy writes its outputs alone", "writes to its input `noise`"),
    ("finish_behind", "policy writes its outputs alone", "finish writes value 12 of `robot`"),
    ("calibration_keeps", "policy calibration", "write after begin, with no frame since returns "),
    ("calibration_unchecked", "policy calibration", "write after a frame with NaN as noise returns FRT_OK"),
]
# Other cases that a rule is broken for, too.
ALSO = {
    "encode_trusts": {"model chat prompts"},
    "policy_launch_works": {"policy prompts"},
    "input_written": {"policy guidance", "policy continuation"},
}
# Backend defects of the rows that come later than `plugin device`: submissions, which no case of a plugin makes.
LATER = {"fill_throws", "sync_throws"}


def rows_of_backends():
    """(defect, parts of the message) of each row whose defect is the backend's."""
    return [(defect, re.findall(r'"([^"]*)"', parts))
            for defect, parts in re.findall(r'\{"device",\s*"(\w+)",\s*FRT_ERR_\w+,\s*\{([^{}]*)\}', ROWS)]


def backend_with(defect, cases, *options, **how):
    result = subprocess.run([CHECK, BACKEND_WITH_DEFECTS, "--reference", CPU, "--threads", "1", "--filter", cases, *options],
                            env={**os.environ, "FRT_TEST_DEFECT": defect, **how}, capture_output=True, text=True, timeout=300,
                            errors="replace")
    return result.returncode, result.stdout, result.stderr


SANITIZED = os.environ.get("FRT_SANITIZE") == "address"


def small(defect, checkpoint, *options):
    result = subprocess.run([CHECK, SMALL, "--reference", CPU, "--checkpoint", f"synthetic:{checkpoint}", *options],
                            env={**os.environ, "FRT_TEST_DEFECT": defect}, capture_output=True, text=True, timeout=300,
                            errors="replace")
    return result.returncode, result.stdout + result.stderr


def check(plugin, defect, *options, **how):
    defaults = {"--filter": "plugin", "--timeout": "60"}
    defaults = [text for pair in defaults.items() if pair[0] not in options for text in pair]
    result = subprocess.run([CHECK, str(FOLDER / plugin), "--reference", CPU, *defaults, *options],
                            env={**os.environ, "FRT_TEST_DEFECT": defect}, capture_output=True, text=True, timeout=300,
                            errors="replace", **how)
    return result.returncode, result.stdout + result.stderr


class Defects(unittest.TestCase):
    def assert_names_one_case(self, text, plugin):
        """A filter that matches nothing would check nothing."""
        listed = subprocess.run([CHECK, str(plugin), "--reference", CPU, "--filter", text, "--list"], check=False,
                                capture_output=True, text=True)
        self.assertEqual(listed.returncode, 0, f"no case is named {text}: {listed.stderr}")
        self.assertEqual(len(listed.stdout.splitlines()), 1, listed.stdout)

    def test_a_backend_without_a_defect_passes(self):
        code, text = check("defect_backend.so", "")
        self.assertEqual(code, 0, text)
        self.assertIn("12 passed, 0 failed", text)

    def test_a_backend_that_knows_more_than_the_checker_passes(self):
        code, text = check("defect_backend.so", "device_info_knows_more")
        self.assertEqual(code, 0, text)

    def test_each_defect_fails_its_own_case(self):
        for defect, case, verdict, words in BACKEND:
            with self.subTest(defect):
                code, text = check("defect_backend.so", defect)
                self.assertEqual(code, 1, text)
                found = [line for line in text.splitlines() if line.split(" ")[0] in ("FAIL", "CRASH", "HANG")]
                self.assertEqual(len(found), 1, text)
                self.assertRegex(found[0], rf"^{verdict} +{case} ")
                self.assertIn(words, found[0])

    def test_each_defect_of_a_model_fails_its_own_case(self):
        for defect, case, verdict, words in MODEL:
            with self.subTest(defect):
                code, text = check("defect_model.so", defect, "--filter", "")
                self.assertEqual(code, 1, text)
                found = [line for line in text.splitlines() if line.split(" ")[0] in ("FAIL", "CRASH", "HANG")]
                self.assertEqual(len(found), 1, text)
                self.assertRegex(found[0], rf"^{verdict} +{case} ")
                if not (SANITIZED and verdict == "CRASH"):    # it has words of its own for a NULL pointer
                    self.assertIn(words, found[0])

    def test_each_defect_of_an_environment_fails_its_own_case(self):
        code, text = check("defect_environment.so", "", "--filter", "", "--verbose")
        self.assertEqual(code, 0, text)
        self.assertEqual(re.findall(r"(?m)^skip +(.*?)  +", text), ["environment rare options", "plugin host of the oldest version"])
        code, text = check("defect_environment.so", "environment_long", "--filter", "environment gives what it says")
        self.assertEqual(code, 0, text)     # the check ends before the episode does
        for defect, case, words in ENVIRONMENT:
            with self.subTest(defect):
                code, text = check("defect_environment.so", defect, "--filter", "")
                self.assertEqual(code, 1, text)
                found = [line for line in text.splitlines() if line.split(" ")[0] in ("FAIL", "CRASH", "HANG")]
                self.assertEqual(len(found), 1, text)
                self.assertRegex(found[0], rf"^FAIL +{case} ")
                self.assertIn(words, found[0])
        code, text = check("defect_environment.so", "environment_ignores_seed", "--filter", "")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^warn +environment same seed, same episode .*is the seed used")

    def test_each_defect_of_a_model_that_is_made_fails_its_own_case(self):
        made = ("--checkpoint", "synthetic:x", "--backend", str(FOLDER / "defect_backend.so"))
        for defect, case, verdict, words in MADE:
            with self.subTest(defect, case=case):
                self.assert_names_one_case(case, FOLDER / "defect_model.so")
                code, text = check("defect_model.so", "", *made, "--filter", case, "--verbose")
                if "does not count allocations" in text:
                    continue  # with a sanitizer
                self.assertEqual(code, 0, text)
                code, text = check("defect_model.so", defect, *made, "--filter", case)
                self.assertEqual(code, 1, text)
                self.assertRegex(text, rf"(?m)^{verdict} +{case} ")
                self.assertIn(words, text)

    def test_the_small_model_without_a_defect_passes_every_case_of_its_kind(self):
        skipped = set()
        for checkpoint, others in (("lm", "policy "), ("policy", "model ")):
            code, text = small("", checkpoint, "--verbose")
            self.assertEqual(code, 0, text)
            names = re.findall(r"(?m)^skip +(.*?)  +", text)
            self.assertFalse([name for name in names if not name.startswith((others, "plugin host of the oldest"))
                              and "hot calls" not in name], text)
            skipped |= set(names)
        self.assertIn("policy calibration", skipped)

    def test_each_rule_that_the_small_model_breaks_fails_its_own_case(self):
        for checkpoint, rows in (("lm", SMALL_LM), ("policy", SMALL_POLICY)):
            for defect, case, words in rows:
                if SANITIZED and defect == "finish_behind":    # it ends every case that calls `finish`
                    continue
                with self.subTest(defect):
                    code, text = small(defect, checkpoint)
                    self.assertEqual(code, 1, text)
                    found = dict(re.findall(r"(?m)^(?:FAIL|CRASH|HANG) +(\S.*?)  +(.*)$", text))
                    self.assertEqual(set(found), {case} | ALSO.get(defect, set()), text)
                    self.assertIn(words, found[case])

    def test_a_model_that_prompts_differently_is_read_by_ids_or_skipped(self):
        code, text = small("no_words", "policy", "--filter", "policy ")
        self.assertEqual(code, 0, text)
        code, text = small("no_words_no_ids", "policy", "--filter", "policy captured", "--verbose")
        self.assertEqual(code, 1, text)
        self.assertRegex(text, r"(?m)^skip +policy captured equals eager +the policy has no tokenizer and reads no ids")

    def test_a_refusal_of_another_version_in_words_is_right_while_the_major_number_is_0(self):
        code, text = check("defect_model.so", "open_refuses_newer")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^warn +plugin host of a later minor version .*no such version")

    def test_a_host_without_shorter_tables_is_not_said_to_be_checked(self):
        code, text = check("defect_model.so", "", "--verbose")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^skip +plugin host of the oldest version .*no table of a host has grown")

    def test_each_backend_that_a_host_refuses_fails(self):
        rows = rows_of_backends()
        self.assertGreater(len(rows), 20)
        for defect, parts in rows:
            if defect in LATER:
                continue
            with self.subTest(defect):
                code, text = check("defect_backend.so", defect)
                self.assertEqual(code, 1, text)
                found = [line for line in text.splitlines() if line.startswith(("FAIL ", "CRASH ", "HANG "))]
                self.assertEqual(len(found), 1, text)
                for part in parts:
                    self.assertIn(part, found[0])

    def test_a_model_whose_creation_takes_most_of_the_time_does_not_hang(self):
        code, text = check("defect_model.so", "create_slow", "--checkpoint", "synthetic:x", "--backend",
                           str(FOLDER / "defect_backend.so"), "--filter", "model created twice", "--timeout", "1.2")
        self.assertEqual(code, 0, text)

    def test_a_model_without_a_version_of_its_state_is_told(self):
        code, text = check("defect_model.so", "fingerprint_no_version", "--checkpoint", "synthetic:x", "--backend",
                           str(FOLDER / "defect_backend.so"), "--filter", "model capsule version")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^warn +model capsule version .*no field `state`")

    def verdicts(self, text, cases):
        """Name to verdict; every case has exactly one."""
        listed = subprocess.run([CHECK, BACKEND_WITH_DEFECTS, "--reference", CPU, "--filter", cases, "--list"], check=True,
                                capture_output=True, text=True).stdout.splitlines()
        told = json.loads(text)["cases"]
        names = [case["name"] for case in told if case["name"] != "plugin process"]
        self.assertEqual(sorted(names), sorted(listed))
        return {case["name"]: (case["result"], case.get("message", "")) for case in told}

    def test_a_crash_as_the_process_of_the_operators_ends_belongs_to_none_of_them(self):
        cases = "frt.silu_mul/1 bf16 7x33"
        code, text, _ = backend_with("exit_aborts", cases, "--json")
        self.assertEqual(code, 1)
        verdicts = self.verdicts(text, cases)
        result, message = verdicts.pop("plugin process")
        self.assertEqual(result, "CRASH")
        self.assertRegex(message, rf"^after the case `{cases}.*`: signal Aborted")
        self.assertEqual({result for result, _ in verdicts.values()}, {"ok"})

    def test_no_case_is_lost_where_a_device_opens_no_more_after_a_crash(self):
        cases = "frt.silu_mul/1 bf16"
        with tempfile.TemporaryDirectory() as folder:
            code, text, _ = backend_with("crash_once", cases, "--json", FRT_TEST_DEFECT_FILE=f"{folder}/crashed")
        self.assertEqual(code, 1)
        results = [result for result, _ in self.verdicts(text, cases).values()]
        self.assertGreater(results.count("skip"), 0, results)
        self.assertEqual(results.count("CRASH"), 2, results)  # the case, and the process after it

    def test_a_backend_that_takes_no_memory_beside_work_is_found(self):
        self.assert_names_one_case("memory is taken beside work", BACKEND_WITH_DEFECTS)
        code, text, errors = backend_with("alloc_beside_work", "memory is taken beside work")
        self.assertEqual(code, 1, text + errors)
        self.assertRegex(text, r"(?m)^FAIL +frt.backend/1 memory is taken beside work +.*a stream has work")

    def test_a_launch_that_waits_is_found(self):
        self.assert_names_one_case("hot calls do not wait", BACKEND_WITH_DEFECTS)
        code, text, errors = backend_with("launch_waits", "hot calls do not wait")
        self.assertEqual(code, 1, text + errors)
        self.assertRegex(text, r"(?m)^FAIL +frt.backend/1 hot calls do not wait +exec_launch ")

    def test_what_a_backend_does_wrong_is_named(self):
        for defect, case, words in (
                ("wait_does_nothing", "events order streams", "runs before the event that event_wait told it to wait for"),
                ("fill_other", "copies and fills between all spaces", "fill wrote 0x5b, asked for 0x5a"),
                ("abort_keeps_recording", "captures out of turn", "capture_abort leaves the stream recording")):
            with self.subTest(defect):
                self.assert_names_one_case(case, BACKEND_WITH_DEFECTS)
                code, text, errors = backend_with(defect, case)
                self.assertEqual(code, 1, text + errors)
                self.assertRegex(text, rf"(?m)^FAIL +frt.backend/1 {case} +.*{words}")

    def test_a_wait_without_effect_is_found_each_time(self):
        code, text, errors = backend_with("wait_does_nothing", "events order streams", "--repeat", "20", "--json")
        self.assertEqual(code, 1, text + errors)
        self.assertEqual(json.loads(text)["failed"], 20)

    def test_a_launch_that_allocates_is_told(self):
        self.assert_names_one_case("hot calls do not allocate", BACKEND_WITH_DEFECTS)
        code, text, errors = backend_with("launch_allocates", "hot calls do not allocate", "--verbose")
        if "does not count allocations" in text:
            self.skipTest("a build with a sanitizer does not count allocations")
        self.assertEqual(code, 0, text + errors)
        self.assertRegex(text, r"(?m)^warn +frt.backend/1 hot calls do not allocate +memory is allocated by exec_launch ")

    def test_a_process_that_the_checker_did_not_start_lives_on(self):
        with tempfile.NamedTemporaryFile("r", suffix=".pid") as number:
            script = 'sleep 600 >/dev/null 2>&1 & echo $! >"$0"; exec "$@"'
            result = subprocess.run(["sh", "-c", script, number.name, CHECK, str(FOLDER / "defect_backend.so"), "--filter",
                                     "plugin load"], capture_output=True, text=True, timeout=300)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
            pid = int(number.read())
        status = pathlib.Path(f"/proc/{pid}/status")
        self.assertTrue(status.exists(), "it was killed")
        self.assertNotIn("zombie", status.read_text(encoding="utf-8"))
        os.kill(pid, signal.SIGKILL)

    def test_what_a_plugin_writes_into_files_of_the_checker_is_no_verdict(self):
        code, text = check("defect_model.so", "constructor_writes_to_all_files", "--filter", "plugin load", "--json")
        self.assertEqual(code, 0, text)
        told, _ = json.JSONDecoder().raw_decode(text)  # what the plugin wrote is behind it
        self.assertEqual([case["result"] for case in told["cases"]], ["ok"])

    def test_a_verdict_beside_that_of_the_case_fails_it(self):
        code, text = check("defect_model.so", "constructor_forges", "--filter", "plugin load", "--json")
        self.assertEqual(code, 1, text)
        told, _ = json.JSONDecoder().raw_decode(text)  # what the plugin wrote is behind it
        self.assertEqual([case["result"] for case in told["cases"]], ["FAIL"])
        self.assertIn("a verdict came that no case gave", told["cases"][0]["message"])

    def test_a_plugin_does_not_read_the_input_of_the_checker(self):
        read_end, write_end = os.pipe()  # nothing comes, and no end
        result = subprocess.run([CHECK, str(FOLDER / "defect_model.so"), "--filter", "plugin load", "--timeout", "20"],
                                env={**os.environ, "FRT_TEST_DEFECT": "constructor_reads"}, stdin=read_end,
                                capture_output=True, text=True, timeout=300)
        os.close(read_end)
        os.close(write_end)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_words_of_a_plugin_make_no_line_and_move_no_cursor(self):
        code, text = check("defect_model.so", "open_forges")
        self.assertEqual(code, 1, text)
        self.assertNotRegex(text, r"(?m)^ok ")
        self.assertIn(r"no key\nok    plugin device\x1b[2J", text)

    def test_a_report_that_cannot_be_written_is_an_error(self):
        for options in ((), ("--json",), ("--list",)):
            with self.subTest(options), open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([CHECK, str(FOLDER / "defect_model.so"), "--filter", "plugin load", *options],
                                        stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(result.returncode, 1)
                self.assertIn("could not be written", result.stderr)

    def test_a_full_temporary_folder_is_not_the_plugins_fault(self):
        result = subprocess.run(
            [CHECK, str(FOLDER / "defect_model.so"), "--checkpoint", "synthetic:x", "--backend",
             str(FOLDER / "defect_backend.so"), "--filter", "model created twice"], capture_output=True, text=True,
            restore_signals=False,  # a file that grows too long is an error, no signal
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        self.assertEqual(result.returncode, 1)
        self.assertIn("File too large", result.stdout)

    def test_a_temporary_folder_that_is_none_is_named(self):
        result = subprocess.run([CHECK, str(FOLDER / "defect_model.so"), "--filter", "plugin load"], capture_output=True,
                                text=True, env={**os.environ, "TMPDIR": "/no/such/folder"})
        self.assertEqual(result.returncode, 1)
        self.assertIn("set TMPDIR", result.stderr)

    def test_an_interrupted_check_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                pid = pathlib.Path(folder) / "pid"
                (pathlib.Path(folder) / "tmp").mkdir()
                checker = subprocess.Popen(
                    [CHECK, str(FOLDER / "defect_model.so"), "--filter", "plugin load"], stderr=subprocess.PIPE, text=True,
                    env={**os.environ, "FRT_TEST_DEFECT": "constructor_daemon_hangs", "FRT_TEST_PID": str(pid),
                         "TMPDIR": f"{folder}/tmp"})
                self.assertEqual(checker.stderr.readline(), "hangs\n")
                checker.send_signal(number)
                checker.communicate(timeout=60)
                self.assertEqual(checker.returncode, -number)
                self.assertEqual(os.listdir(f"{folder}/tmp"), [])
                self.assertFalse(pathlib.Path(f"/proc/{int(pid.read_text())}").exists())

    def test_a_relative_checkpoint_starts_from_the_working_directory(self):
        with tempfile.TemporaryDirectory() as folder:
            here = pathlib.Path(folder).resolve() / "here"
            here.mkdir()
            code, text = check("defect_model.so", "create_tells_checkpoint", "--checkpoint", "here", "--backend",
                               str(FOLDER / "defect_backend.so"), "--filter", "model created twice", cwd=folder)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, rf"(?m)^FAIL +model created twice .*{re.escape(str(here))}")

    def test_a_checkpoint_that_is_missing_is_told_before_any_case(self):
        code, text = check("defect_model.so", "", "--checkpoint", "no-such-weights", "--filter", "model ")
        self.assertEqual(code, 1, text)
        self.assertEqual(len(text.splitlines()), 1, text)
        self.assertIn("--checkpoint no-such-weights: no such file or folder", text)

    def test_the_summary_says_why_cases_were_skipped(self):
        code, text = check("defect_model.so", "", "--filter", "model ca")
        self.assertEqual(code, 1, text)
        self.assertTrue(text.startswith("checking test.model: 3 cases\n"), text)
        self.assertRegex(text, r"(?m)^0 passed, 0 failed, 3 skipped\nskipped: 3: no model is made: give")

    def test_an_interrupted_check_sums_up(self):
        checker = subprocess.Popen([CHECK, str(FOLDER / "defect_model.so"), "--filter", "plugin "], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env={**os.environ, "FRT_TEST_DEFECT": "schema_hangs"})
        self.assertRegex(checker.stdout.readline(), r"^checking test.model: \d+ cases$")
        checker.send_signal(signal.SIGINT)
        text, _ = checker.communicate(timeout=60)
        self.assertEqual(checker.returncode, -signal.SIGINT)
        self.assertRegex(text, r"(?m)^\d+ passed, 0 failed, 0 skipped, \d+ not run$")

    def test_a_model_that_refuses_a_host_without_execution_is_right(self):
        code, text = check("defect_model.so", "", "--filter", "plugin host without extensions")
        self.assertEqual(code, 0, text)
        self.assertNotRegex(text, r"(?m)^warn ")

    def test_an_option_without_an_effect_is_an_error(self):
        model, backend = str(FOLDER / "defect_model.so"), str(FOLDER / "defect_backend.so")
        for plugin, *options in ((model, "--device", "0"), (model, "--strict"), (model, "--once"), (model, "--seconds", "1"),
                                 (model, "--set", "width=1"), (model, "--backend", backend),
                                 (backend, "--checkpoint", "x"), (backend, "--backend", backend),
                                 (backend, "--json", "--verbose"), (backend, "--list", "--json"),
                                 (backend, "--in-process", "--timeout", "3")):
            with self.subTest(options):
                result = subprocess.run([CHECK, plugin, "--filter", "plugin", *options], capture_output=True, text=True)
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn("has no effect", result.stderr)

    def test_a_name_that_no_case_has_is_an_error(self):
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
            names.write("plugin load\nplugin lode\n")
            names.flush()
            code, text = check("defect_backend.so", "", "--cases", names.name)
        self.assertEqual(code, 1)
        self.assertIn("no case `plugin lode`", text)
        code, text = check("defect_backend.so", "", "--list", "--filter", "no such case")
        self.assertEqual(code, 1)
        self.assertIn("nothing was checked", text)

    def test_json_has_the_verdict_of_a_process_that_ended(self):
        code, text = check("defect_backend.so", "device_count_exits", "--json")
        self.assertEqual(code, 1)
        self.assertIn("exit status 0", json.dumps(json.loads(text)))


one_core.take()
unittest.main(argv=[sys.argv[0], "-v"])
