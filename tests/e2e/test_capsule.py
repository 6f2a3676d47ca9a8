# SPDX-License-Identifier: Apache-2.0
"""Capsules from the command line: saved by one process, restored by another, forked, taken back."""
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import time
import unittest

from support import (FAILED, FIXTURES, HOST, MANIFEST, OK, USAGE, HostTest, clean_environment)

PROMPT = "Once upon a time, there was a little"


class CapsuleTest(HostTest):
    def demo(self, capsules=True, **options):
        extra = '[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\n' if capsules else ""
        return self.model_manifest(FIXTURES / "demo", extra=extra, **options)

    @property
    def files(self):
        return self.folder / "capsules"

    def text(self, manifest, *arguments):
        return self.check(OK, "-q", "run", manifest, *arguments).stdout


class Run(CapsuleTest):
    def test_another_process_goes_on_where_the_first_one_stopped(self):
        manifest = self.demo()
        for sampling in (["--greedy"], ["--seed", 5, "--temperature", 1.1]):
            with self.subTest(sampling):
                name = f"a{len(sampling)}"
                whole = self.run_json(manifest, "-p", PROMPT, "-n", 24, "--logprobs", "--ignore-eos",
                                      *sampling)
                self.assertEqual(self.text(manifest, "-p", PROMPT, "--max-new", 0, "--save-capsule",
                                           name, *sampling), "")
                rest = self.run_json(manifest, "--from-capsule", name, "-n", 24, "--logprobs",
                                     "--ignore-eos")
                self.assertEqual(rest["ids"], whole["ids"])
                self.assertEqual(rest["logprobs"], whole["logprobs"])
                plain = self.text(manifest, "--from-capsule", name, "-n", 24, "--ignore-eos")
                self.assertEqual(plain, whole["text"] + "\n")  # the continuation alone

    def test_a_rebuilt_plugin_goes_on_from_a_named_capsule_and_says_so(self):
        plugins = self.folder / "plugins"
        plugins.mkdir()
        manifest = self.demo()
        first = self.run_json(manifest, "-p", PROMPT, "-n", 4, "--greedy", "--save-capsule", "half")
        # The same code in another file, as a build with other flags would be.
        built = HOST.parent.parent / "lib/frt/plugins/frt_qwen36.so"
        (plugins / built.name).write_bytes(built.read_bytes() + b"\0")
        rest = self.check(OK, "--plugin-dir", plugins, "run", manifest, "--from-capsule", "half",
                          "-n", 4)
        self.assertIn("capsule 'half' was stored by another build (build.plugin.file: here ",
                      rest.stderr)
        whole = self.run_json(manifest, "-p", PROMPT, "-n", 8, "--greedy")
        self.assertEqual(whole["ids"][:4], first["ids"])
        self.assertIn(rest.stdout.strip(), whole["text"])

    def test_without_a_folder_each_step_to_one_is_said(self):
        manifest = self.demo(capsules=False)
        told = self.frt("run", manifest, "-p", PROMPT, "-n", 1, "--save-capsule", "x").stderr
        self.assertIn('set `capsule_dir = "DIR"` in the table [host.lm] of the manifest, and write that '
                      'table with `model = "NAME"` where there is none', told)
        told = self.check(MANIFEST, "run", manifest, "-p", PROMPT, "-n", 1, "--save-capsule", "x", "--set",
                          "host.lm.capsule_dir=capsules").stderr
        self.assertIn("write [host.lm] there first, with what it requires", told)
        manifest = self.model_manifest(FIXTURES / "demo", extra='[host.lm]\nmodel = "m"\n')
        self.check(OK, "run", manifest, "-p", PROMPT, "-n", 1, "--save-capsule", "x", "--set",
                   f"host.lm.capsule_dir={self.folder}/capsules")

    def test_a_text_that_was_cut_goes_on_without_a_seam(self):
        manifest = self.demo()
        arguments = ["--greedy", "--ignore-eos"]
        whole = self.run_json(manifest, "-p", PROMPT, "-n", 20, *arguments)
        first = self.run_json(manifest, "-p", PROMPT, "-n", 9, "--save-capsule", "half", *arguments)
        second = self.run_json(manifest, "--from-capsule", "half", "-n", 11, "--ignore-eos")
        self.assertEqual(first["ids"] + second["ids"], whole["ids"])

    def test_a_prompt_may_be_added_to_a_capsule(self):
        manifest = self.demo(options="prefill_chunk = 16")
        ids = [i * 7 % 2000 for i in range(40)]
        listed = ",".join(map(str, ids))
        cold = self.run_json(manifest, "--prompt-ids", listed, "-n", 8, "--greedy", "--logprobs")
        self.check(OK, "run", manifest, "--prompt-ids", ",".join(map(str, ids[:32])), "-n", 0,
                   "--save-capsule", "edge")
        warm = self.run_json(manifest, "--from-capsule", "edge", "--prompt-ids",
                             ",".join(map(str, ids[32:])), "-n", 8, "--greedy", "--logprobs")
        self.assertEqual((warm["ids"], warm["logprobs"]), (cold["ids"], cold["logprobs"]))
        self.assertEqual(warm["prefix"]["reused"], 32)

    def test_penalties_of_a_request_do_not_see_what_another_one_generated(self):
        manifest = self.demo(options="prefill_chunk = 16")
        penalties = ["--greedy", "--ignore-eos", "--presence-penalty", 1.5, "--frequency-penalty", 0.5]
        start = [i * 7 % 2000 for i in range(20)]
        first = self.run_json(manifest, "--prompt-ids", ",".join(map(str, start)), "-n", 30,
                              "--save-capsule", "a", *penalties)
        more = [i * 11 % 2000 for i in range(20)]
        warm = self.run_json(manifest, "--from-capsule", "a", "--prompt-ids",
                             ",".join(map(str, more)), "-n", 20, *penalties)
        whole = start + first["ids"] + more
        self.assertEqual(warm["prompt_tokens"], len(whole))  # the last token given out included
        cold = self.run_json(manifest, "--prompt-ids", ",".join(map(str, whole)), "-n", 20, *penalties)
        self.assertEqual(warm["ids"], cold["ids"])

    def test_a_request_that_goes_on_keeps_its_penalties(self):
        manifest = self.demo()
        penalties = ["--greedy", "--ignore-eos", "--presence-penalty", 1.5]
        whole = self.run_json(manifest, "-p", PROMPT, "-n", 30, *penalties)
        first = self.run_json(manifest, "-p", PROMPT, "-n", 12, "--save-capsule", "a", *penalties)
        second = self.run_json(manifest, "--from-capsule", "a", "-n", 18, "--ignore-eos")
        self.assertEqual(first["ids"] + second["ids"], whole["ids"])

    def test_mistakes_name_the_fix(self):
        manifest = self.demo()
        self.check(OK, "run", manifest, "-p", "x", "-n", 0, "--save-capsule", "a")
        again = self.check(FAILED, "run", manifest, "-p", "x", "-n", 9, "--save-capsule", "a")
        self.assertIn("frt-host capsule rm", again.stderr)
        self.assertIn("--replace", again.stderr)
        self.assertEqual(again.stdout, "")      # said before anything was generated, and lost
        self.check(OK, "run", manifest, "-p", "x", "-n", 0, "--save-capsule", "a", "--replace")
        missing = self.check(FAILED, "run", manifest, "--from-capsule", "b", "-n", 1)
        self.assertIn("frt-host capsule ls", missing.stderr)
        for name in ("../a", ".a", "a/b", "-a", "a" * 129, "ä"):
            result = self.check(FAILED, "run", manifest, "-p", "x", "-n", 0,
                                f"--save-capsule={name}")
            self.assertIn("name", result.stderr)
        self.assertEqual(sorted(p.name for p in self.files.glob("*.capsule")), ["a.capsule"])
        bare = self.demo(capsules=False)
        result = self.check(FAILED, "run", bare, "-p", "x", "-n", 0, "--save-capsule", "a")
        self.assertIn("capsule_dir", result.stderr)

    def test_another_model_is_refused_by_name_of_the_field(self):
        self.check(OK, "run", self.demo(), "-p", "x", "-n", 0, "--save-capsule", "a")
        other = self.model_manifest("synthetic:qwen3.6-tiny",
                                    extra='[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\n')
        result = self.check(FAILED, "run", other, "--from-capsule", "a", "-n", 1)
        self.assertRegex(result.stderr, "config|weights|layout")

    def test_files_are_the_owners_alone(self):
        self.check(OK, "run", self.demo(), "-p", "x", "-n", 0, "--save-capsule", "a")
        self.assertEqual(self.files.stat().st_mode & 0o777, 0o700)
        for path in self.files.iterdir():
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, path)


class Chat(CapsuleTest):
    ARGUMENTS = ("--greedy", "--no-thinking")

    def talk(self, manifest, *lines, status=OK, arguments=()):
        return self.check(status, "-q", "chat", manifest, *self.ARGUMENTS, *arguments,
                          stdin="".join(line + "\n" for line in lines))

    def test_a_talk_goes_on_in_another_process(self):
        manifest = self.demo()
        whole = self.talk(manifest, "What is 2 + 2?", "What is 3 + 4?", "What is 5 + 1?")
        first = self.talk(manifest, "What is 2 + 2?", "What is 3 + 4?", "/save talk")
        self.assertIn("saved talk", first.stderr)
        second = self.talk(manifest, "/restore talk", "What is 5 + 1?", "/stats")
        self.assertEqual(first.stdout + second.stdout, whole.stdout)
        self.assertIn("restored talk: 4 messages", second.stderr)
        self.assertRegex(second.stderr, r"continued \d+ of \d+ tokens in the slot")
        third = self.talk(manifest, "What is 5 + 1?", arguments=["--from-capsule", "talk"])
        self.assertEqual(third.stdout, second.stdout)

    def test_branches_do_not_see_each_other_and_turns_are_taken_back(self):
        manifest = self.demo()
        start, one, other = "What is 2 + 2?", "What is 3 + 4?", "Tell me a story."
        straight = self.talk(manifest, start, one).stdout.splitlines()
        branched = self.talk(manifest, start, "/fork b", other, "/branches", "/restore main", one,
                             "/branches")
        self.assertEqual(branched.stdout.splitlines()[0], straight[0])
        self.assertEqual(branched.stdout.splitlines()[-1], straight[-1])
        self.assertRegex(branched.stderr, r"\* b: 2 turns, \d+ tokens")
        self.assertRegex(branched.stderr, r"\* main: 2 turns, \d+ tokens")
        back = self.talk(manifest, start, other, "/back", one).stdout.splitlines()
        self.assertEqual([back[0], back[-1]], [straight[0], straight[-1]])
        again = self.talk(manifest, start, one, other, "/back 3", start, one).stdout.splitlines()
        self.assertEqual(again[-len(straight):], straight)

    def test_reasoning_that_is_left_out_later_costs_no_second_reading(self):
        manifest = self.model_manifest(
            FIXTURES / "demo",
            extra='[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\ncapsule_min_tokens = 8\n')
        result = self.check(OK, "-q", "chat", manifest, "--greedy", "--drop-thinking",
                            stdin="What is 12 + 13?\n/stats\nWhat is 3 + 4?\n/stats\n")
        self.assertRegex(result.stderr, r"restored \d+ of \d+ tokens from a user-turn boundary")

    def test_mistakes_are_told_and_the_talk_goes_on(self):
        result = self.talk(self.demo(), "/restore nowhere", "/back", "/fork", "/fork main", "/save",
                           "/back x", "What is 2 + 2?", status=FAILED)
        for text in ("nowhere", "0", "needs a name", "/branches", "number of turns"):
            self.assertIn(text, result.stderr)
        self.assertIn("4", result.stdout)
        bare = self.talk(self.demo(capsules=False), "/save a", status=FAILED)
        self.assertIn("capsule_dir", bare.stderr)


class Trust(CapsuleTest):
    def test_a_listing_and_a_check_trust_what_a_restore_trusts(self):
        self.toml = self.demo()
        self.check(OK, "run", self.toml, "-p", PROMPT, "-n", 0, "--save-capsule", "a")
        file = self.files / "a.capsule"

        def judged():
            """Whether a restore, a listing and a check take the capsule, and what the two say."""
            restore = self.frt("run", self.toml, "--from-capsule", "a", "-n", 1).returncode == OK
            listing = self.check(OK, "capsule", "ls", self.toml)
            [row] = json.loads(self.check(OK, "capsule", "ls", self.toml, "--json").stdout)["capsules"]
            self.assertEqual(row["trusted"], "untrusted" not in listing.stdout)
            verify = self.frt("capsule", "verify", self.toml)
            self.assertEqual(restore, row["trusted"])
            self.assertEqual(restore, verify.returncode == OK, verify.stdout)
            return restore, listing.stdout + listing.stderr + verify.stdout
        self.assertTrue(judged()[0])
        for path, mode, fix in ((file, 0o666, "chmod 600"), (self.files, 0o777, "chmod 700")):
            before = path.stat().st_mode & 0o7777
            path.chmod(mode)
            trusted, said = judged()
            self.assertFalse(trusted)
            self.assertIn("untrusted", said)
            self.assertGreaterEqual(said.count(fix), 2, said)   # both name the fix
            self.assertIn("untrusted", self.check(OK, "capsule", "ls", self.files).stdout)
            for command in ("ls", "verify"):
                self.assertNotIn("untrusted", self.check(OK, "capsule", command, self.files, "--trust").stdout)
            path.chmod(before)
        self.assertTrue(judged()[0])


class Shared(CapsuleTest):
    """Several processes on one folder."""

    def setUp(self):
        super().setUp()
        self.toml = self.model_manifest(
            FIXTURES / "demo", extra='[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\n'
            'capsule_device = "1M"\ncapsule_host = "1M"\ncapsule_min_tokens = 1\n')

    def automatic(self):
        return sorted(path.name for path in self.files.glob("auto-*.capsule"))

    def ask(self, chat, question):
        chat.stdin.write(question + "\n")
        chat.stdin.flush()
        return chat.stdout.readline()

    def test_runs_and_replays_leave_the_capsules_of_a_chat_alone(self):
        record = self.folder / "run.json"
        self.check(OK, "run", self.toml, "-p", PROMPT, "-n", 2, "--save-capsule", "a")
        self.check(OK, "run", self.toml, "--from-capsule", "a", "-n", 2, "--record", record)
        with subprocess.Popen([str(HOST), "-q", "chat", str(self.toml), "--greedy", "--no-thinking", "--autosave"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                              cwd=self.folder, env=clean_environment()) as chat:
            for i in range(6):
                self.ask(chat, f"What is {i} + 2?")
            for _ in range(300):  # the chat writes them beside its answers
                before = self.automatic()
                if before:
                    break
                time.sleep(0.1)
            self.assertTrue(before)
            self.check(OK, "run", self.toml, "--from-capsule", "a", "-n", 1)
            self.check(OK, "run", self.toml, "-p", PROMPT, "-n", 1, "--save-capsule", "b")
            self.check(OK, "replay", record)
            self.assertLessEqual(set(before), set(self.automatic()))
            # Another chat with next to no budget may remove what the first one has on the disk alone,
            # and nothing that has a name. The first one goes on.
            self.check(OK, "--set", "host.lm.capsule_disk=1", "chat", self.toml, stdin="")
            names = {path.name for path in self.files.glob("*.capsule")}
            self.assertLessEqual({"a.capsule", "b.capsule"}, names)
            self.assertTrue(self.ask(chat, "What is 1 + 1?"))
            chat.stdin.close()
            self.assertEqual(chat.wait(), OK)
        self.check(OK, "--set", "host.lm.capsule_disk=1", "chat", self.toml, stdin="")
        self.assertEqual(self.automatic(), [])
        self.assertEqual(sorted(path.name for path in self.files.glob("*.capsule")),
                         ["a.capsule", "autosave.capsule", "b.capsule"])  # the chat's, at its end

    def test_a_forged_index_removes_nothing_that_has_a_name(self):
        self.check(OK, "run", self.toml, "-p", PROMPT, "-n", 0, "--save-capsule", "a")
        self.check(OK, "capsule", "ls", self.toml)  # makes the index: the folder is new
        with contextlib.closing(sqlite3.connect(self.files / "index.sqlite")) as index:
            index.execute("UPDATE capsules SET kind = 'oamed' WHERE name = 'a'")
            index.commit()
        self.check(OK, "run", self.toml, "--from-capsule", "a", "-n", 1)
        self.check(OK, "--set", "host.lm.capsule_disk=1", "chat", self.toml, stdin="")
        self.check(OK, "run", self.toml, "--from-capsule", "a", "-n", 1)


class Replay(CapsuleTest):
    def record(self, manifest, *arguments):
        path = self.folder / "run.json"
        self.check(OK, "run", manifest, "--record", path, *arguments)
        return path

    def test_a_recorded_run_is_the_same_to_the_bit(self):
        manifest = self.demo(options="prefill_chunk = 16")
        for arguments in (["-p", PROMPT, "-n", 12, "--greedy"],
                          ["-p", PROMPT * 3, "-n", 12, "--seed", 3, "--ignore-eos"]):
            result = self.check(OK, "replay", self.record(manifest, *arguments))
            self.assertIn("bit for bit", result.stdout)
        self.check(OK, "run", manifest, "-p", PROMPT, "-n", 4, "--save-capsule", "a")
        for arguments in (["--from-capsule", "a", "-n", 6, "--ignore-eos"],
                          ["--from-capsule", "a", "-p", " dog", "-n", 6]):
            result = self.check(OK, "replay", self.record(manifest, *arguments), "--json")
            self.assertTrue(json.loads(result.stdout)["same"])

    def test_the_first_difference_is_named(self):
        path = self.record(self.demo(), "-p", PROMPT, "-n", 12, "--greedy", "--ignore-eos")
        recorded = json.loads(path.read_text())
        changed = dict(recorded, tokens=recorded["tokens"][:7] + [5] + recorded["tokens"][8:])
        path.write_text(json.dumps(changed))
        result = self.check(FAILED, "replay", path)
        self.assertIn("first difference at token 7 of 12: recorded 5", result.stdout)
        bits = recorded["log_probabilities"]
        last = format(int(bits[3], 16) ^ 1, "08x")
        path.write_text(json.dumps(dict(recorded, log_probabilities=bits[:3] + [last] + bits[4:])))
        result = self.check(FAILED, "replay", path)
        self.assertIn("first difference at token 3 of 12", result.stdout)
        self.assertIn(last, result.stdout)

    def test_a_record_that_no_run_wrote_is_refused_before_a_step_is_made(self):
        manifest = self.demo()
        self.check(OK, "run", manifest, "-p", PROMPT, "-n", 4, "--save-capsule", "a")
        for start in ([], ["--from-capsule", "a"]):
            path = self.record(manifest, *start, "-p", PROMPT, "-n", 4, "--greedy", "--ignore-eos")
            recorded = json.loads(path.read_text())
            *before, (_, begin, read), _ = recorded["steps"]
            for hostile in ([["prefill", begin, 400]], [["prefill", begin, 2**64 - 1]],
                            [["prefill", begin, read], ["prefill", read, 400]],
                            [["prefill", begin, read], ["decode", read, 2**64 - 1]],
                            [["prefill", begin, read], ["decode", read, read + 300]]):
                with self.subTest(start=start, steps=hostile):
                    path.write_text(json.dumps(dict(recorded, steps=before + hostile)))
                    self.assertIn("steps", self.check(FAILED, "replay", path).stderr)
            for changes in ({"steps": []}, {"steps": [], "prompt": [], "tokens": [], "log_probabilities": []}):
                with self.subTest(start=start, **changes):
                    path.write_text(json.dumps(dict(recorded, **changes)))
                    self.assertIn("steps", self.check(FAILED, "replay", path).stderr)
            for name in ("prompt", "tokens"):
                for token in (10**6, 2**31 - 1):
                    with self.subTest(start=start, member=name, token=token):
                        path.write_text(json.dumps(dict(recorded, **{name: [token, *recorded[name][1:]]})))
                        self.assertIn(f"is id {token}; ids of model 'm' are 0 ..",
                                      self.check(FAILED, "replay", path).stderr)

    def test_a_record_without_tokens_is_not_the_same(self):
        path = self.record(self.demo(), "-p", PROMPT, "-n", 0)
        for options in ([], ["--json"]):
            result = self.check(FAILED, "replay", path, *options)
            self.assertIn("nothing was compared", result.stderr)
            self.assertNotIn("same", result.stdout)

    def test_a_manifest_that_only_a_record_names_loads_no_plugin_by_its_path(self):
        """A record may come from anywhere, and a plugin is native code."""
        path = self.record(self.demo(capsules=False), "-p", "x", "-n", 2)
        plugin, = (HOST.parent.parent / "lib/frt/plugins").glob("*qwen36*.so")
        shutil.copy(plugin, self.folder / "other.so")
        other = self.folder / "other.toml"
        other.write_text((self.folder / "manifest.toml").read_text() +
                         '\n[[plugin]]\nid = "frt.qwen36"\npath = "other.so"\n')
        record = json.loads(path.read_text())
        record["manifest"] = str(other)
        path.write_text(json.dumps(record))
        result = self.check(MANIFEST, "replay", path)
        self.assertIn("--manifest", result.stderr)
        self.assertIn("frt.qwen36", result.stderr)
        self.check(OK, "replay", path, "--manifest", other)

    def test_a_record_of_a_million_levels_is_refused_at_the_first_that_is_too_many(self):
        path = self.folder / "deep.json"
        for opening, closing in (("[", "]"), ('{"steps":', "}")):
            path.write_text(opening * 10**6 + "1" + closing * 10**6)
            self.assertIn("nested deeper", self.check(FAILED, "replay", path).stderr)

    def test_mistakes_name_the_fix(self):
        manifest = self.demo()
        path = self.record(manifest, "-p", PROMPT, "-n", 2)
        self.assertIn("prefill_chunk", self.check(
            FAILED, "--set", "model.m.options.prefill_chunk=16", "replay", path, "--anyway").stderr)
        other = self.folder / "other.toml"
        other.write_text(manifest.read_text().replace(str(FIXTURES / "demo"),
                                                      "synthetic:qwen3.6-tiny"))
        result = self.check(FAILED, "replay", path, "--manifest", other)
        self.assertIn("--anyway", result.stderr)
        path.write_text("{}")
        self.assertIn("--record", self.check(FAILED, "replay", path).stderr)
        self.check(FAILED, "replay", "nowhere.json")


class Folder(CapsuleTest):
    def setUp(self):
        super().setUp()
        self.toml = self.demo()
        self.check(OK, "run", self.toml, "-p", PROMPT, "-n", 0, "--save-capsule", "one")
        self.check(OK, "run", self.toml, "-p", PROMPT, "-n", 3, "--save-capsule", "two")

    def listed(self):
        return {row["name"]: row for row in
                json.loads(self.check(OK, "capsule", "ls", self.toml, "--json").stdout)["capsules"]}

    def test_listing_and_showing(self):
        rows = self.listed()
        self.assertEqual(sorted(rows), ["one", "two"])
        self.assertEqual(rows["two"]["tokens"], rows["one"]["tokens"] + 2)
        for row in rows.values():
            for time in (row["created"], row["last_used"]):
                self.assertRegex(time, r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn("named", self.check(OK, "capsule", "ls", self.files).stdout)
        shown = json.loads(self.check(OK, "capsule", "show", self.toml, "two", "--json").stdout)
        self.assertEqual(len(shown["ids"]), rows["two"]["tokens"])
        self.assertTrue(shown["pending_shown"])
        self.assertIn("fingerprint", self.check(OK, "capsule", "show", self.toml, "one").stdout)

    def test_an_index_that_is_lost_or_damaged_is_made_anew(self):
        before = self.listed()
        index = self.files / "index.sqlite"
        for damage in (lambda: index.unlink(), lambda: index.write_bytes(b"x" * 5000),
                       lambda: index.write_bytes(index.read_bytes()[:3000])):
            for suffix in ("-wal", "-shm"):
                (self.files / ("index.sqlite" + suffix)).unlink(missing_ok=True)
            damage()
            after = self.listed()
            self.assertEqual([(r["name"], r["tokens"]) for r in after.values()],
                             [(r["name"], r["tokens"]) for r in before.values()])

    def test_damage_is_found_and_only_that_capsule_is_lost(self):
        path = self.files / "two.capsule"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        result = self.check(FAILED, "capsule", "verify", self.toml, "--json")
        verdicts = {row["name"]: row["ok"] for row in json.loads(result.stdout)["capsules"]}
        self.assertEqual(verdicts, {"one": True, "two": False})
        self.assertIn("two", self.check(FAILED, "run", self.toml, "--from-capsule", "two").stderr)
        self.check(OK, "run", self.toml, "--from-capsule", "one", "-n", 1)
        # Its payload was read above; of the other its head is looked at, though its time is the same.
        self.assertRegex(self.check(OK, "capsule", "ls", self.toml).stdout, r"two +- +\S+ \S+ +damaged")
        other = self.files / "one.capsule"
        times = (other.stat().st_atime_ns, other.stat().st_mtime_ns)
        data = bytearray(other.read_bytes())
        data[300] ^= 1
        other.write_bytes(data)
        os.utime(other, ns=times)
        self.assertRegex(self.check(OK, "capsule", "ls", self.toml).stdout, r"one +- +\S+ \S+ +damaged")
        rows = self.listed()
        self.assertTrue(rows["one"]["damaged"] and rows["two"]["damaged"])
        told = self.check(OK, "chat", self.toml, stdin="")
        for name in ("one", "two"):
            self.assertEqual(told.stderr.count(f"capsule '{name}' is not used"), 1, told.stderr)

    def test_removing_pinning_exporting_importing(self):
        self.check(OK, "capsule", "pin", self.toml, "one")
        (self.files / "index.sqlite").unlink()
        self.assertTrue(self.listed()["one"]["pinned"])  # pins outlive the index
        self.check(OK, "capsule", "export", self.toml, "one", "out.capsule")
        self.check(OK, "capsule", "rm", self.toml, "one")
        self.assertEqual(list(self.listed()), ["two"])
        self.check(FAILED, "capsule", "rm", self.toml, "one")
        self.assertEqual(self.check(OK, "capsule", "import", self.toml, "out.capsule", "three").stdout,
                         "three\n")
        self.check(FAILED, "capsule", "import", self.toml, "out.capsule", "two")
        self.check(OK, "run", self.toml, "--from-capsule", "three", "-n", 1)
        self.assertEqual(self.check(OK, "capsule", "verify", self.files).stdout,
                         "three: ok\ntwo: ok\n")

    def test_a_missing_one_does_not_keep_the_others_from_being_removed(self):
        result = self.check(FAILED, "capsule", "rm", self.toml, "none", "one", "none2", "two")
        self.assertEqual(result.stderr.count("error: "), 2)
        self.assertEqual(self.listed(), {})

    def test_an_export_into_a_folder_that_is_not_there_says_what_to_do(self):
        result = self.check(FAILED, "capsule", "export", self.toml, "one", "none/out.capsule")
        self.assertIn("make its folder first", result.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "only root may read what is another user's alone")
    def test_root_leaves_nothing_of_its_own_in_the_folder_of_another_user(self):
        try:
            os.chown(self.files, 65534, 65534)
        except OSError as error:
            self.skipTest(f"this root gives no file away: {error}")
        for path in self.files.iterdir():
            if path.suffix == ".capsule":
                os.chown(path, 65534, 65534)
            else:
                path.unlink()
        roots = self.files / "two.pin"  # as a link to a file of root's that the owner chose
        roots.touch()
        for command in (["ls"], ["ls", "--trust"], ["verify"], ["show", "one"], ["pin", "one"], ["pin", "two"]):
            self.frt("capsule", command[0], self.files, *command[1:])
        self.assertEqual(sorted(path.name for path in self.files.iterdir()),
                         ["one.capsule", "one.pin", "two.capsule", "two.pin"])
        self.assertEqual({path.name for path in self.files.iterdir() if path.stat().st_uid != 65534}, {"two.pin"})

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_a_folder_that_cannot_be_written_to_can_be_read(self):
        self.files.chmod(0o500)
        self.addCleanup(self.files.chmod, 0o700)
        self.check(OK, "run", self.toml, "--from-capsule", "one", "-n", 1)
        result = self.check(FAILED, "run", self.toml, "-p", "x", "-n", 0, "--save-capsule", "c")
        self.assertIn(str(self.files), result.stderr)

    def test_a_folder_or_file_that_others_can_write_is_refused_with_the_fix(self):
        path = self.files / "one.capsule"
        start = ("run", self.toml, "--from-capsule", "one", "-n", 1)
        path.chmod(0o666)
        self.assertIn("chmod 600", self.check(FAILED, *start).stderr)
        self.check(FAILED, "capsule", "import", self.toml, path, "three")
        self.check(OK, "capsule", "import", self.toml, path, "three", "--trust")
        self.assertEqual((self.files / "three.capsule").stat().st_mode & 0o777, 0o600)
        path.chmod(0o600)
        self.check(OK, *start)
        self.files.chmod(0o777)
        for refused in (start, ("run", self.toml, "-p", "x", "-n", 0, "--save-capsule", "four"),
                        ("capsule", "import", self.toml, path, "five")):
            self.assertIn("chmod 700", self.check(FAILED, *refused).stderr)
        self.check(OK, "--set", "host.lm.capsule_trust=true", *start)

    def test_a_manifest_without_a_folder(self):
        bare = self.model_manifest(FIXTURES / "demo")
        self.assertIn("capsule_dir", self.check(MANIFEST, "capsule", "ls", bare).stderr)
        self.check(USAGE, "capsule")
        shutil.rmtree(self.files)


class Check(CapsuleTest):
    def test_random_cases_agree_to_the_bit(self):
        manifest = self.model_manifest(
            "synthetic:qwen3.6-tiny", options="slots = 4\nmax_context = 128\nprefill_chunk = 16")
        result = json.loads(self.check(OK, "-q", "capsule", "check", manifest, "--cases", 6,
                                       "--json").stdout)
        self.assertTrue(result["pass"])
        self.assertEqual(result["compared"]["restored"], 6)

    def test_the_bench_writes_a_table_and_a_plot(self):
        manifest = self.model_manifest(
            "synthetic:qwen3.6-tiny", options="slots = 2\nmax_context = 256\nprefill_chunk = 64")
        result = self.check(OK, "-q", "bench", "capsule", manifest, "--lengths", "64,128",
                            "--sweep", "64-128*2", "--suffix", 8, "-r", 2, "--index", 20, "--plot",
                            "sweep.svg")
        for row in ("snapshot, device", "restore, pinned host", "fork to a slot", "load, file",
                    "index of 20, from the files", "first token, capsule + 8"):
            self.assertIn(row, result.stdout)
        self.assertIn("</svg>", (self.folder / "sweep.svg").read_text())
        self.check(USAGE, "bench")


if __name__ == "__main__":
    unittest.main()
