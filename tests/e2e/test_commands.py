# SPDX-License-Identifier: Apache-2.0
"""Everything of frt-host that runs no model: manifests, plugins, devices, doctor, verify's refusals."""
import json
import os
import pathlib
import re
import runpy
import shutil
import signal
import subprocess
import time
import unittest

from support import (DEVICE, FAILED, FIXTURES, HOST, INTERRUPTED, MAKE_CHECKPOINT, MANIFEST, OK, PLUGIN, SOURCE,
                     TIMEOUT, USAGE, HostTest, clean_environment, interruptible)


class WithoutEffect(HostTest):
    """An option that would change nothing is a mistake of whoever gives it."""

    def test_a_set_beside_a_command_that_reads_no_manifest_is_refused(self):
        (self.folder / "capsules").mkdir()
        for command in (["version"], ["plugins", "ls"], ["config", "default"], ["capsule", "ls", "capsules"]):
            with self.subTest(command):
                self.assertIn("--set", self.check(USAGE, "--set", "device.c.backend=x", *command).stderr)

    def test_a_set_that_another_one_replaces_is_refused(self):
        manifest = self.manifest('schema = 1\n[device.c]\nbackend = "frt.cpu"\n')
        result = self.check(USAGE, "--set", "device.c.capture=true", "--set", "device.c.capture=false",
                            "config", "check", manifest)
        self.assertIn("--set device.c.capture is given twice", result.stderr)

    def test_an_option_without_the_one_that_it_is_about_is_refused(self):
        manifest = self.manifest("schema = 1\n")
        for command in (["bench", manifest, "--tolerance", 1], ["bench", "capsule", manifest, "--plot", "p.svg"],
                        ["bench", "capsule", manifest, "--no-files", "--folder", "."],
                        ["capsule", "check", manifest, "--no-files", "--folder", "."],
                        ["run", manifest, "-p", "x", "--greedy", "--seed", 1], ["chat", manifest, "--greedy", "--seed", 1]):
            with self.subTest(command):
                self.assertRegex(self.check(USAGE, *command).stderr, "requires|excludes")

    def test_a_model_beside_a_folder_of_capsules_is_refused(self):
        (self.folder / "capsules").mkdir()
        self.assertIn("--model", self.check(USAGE, "capsule", "ls", "capsules", "--model", "x").stderr)

    def test_a_lock_that_is_not_there_is_refused_alike_by_every_command(self):
        manifest = self.manifest('schema = 1\n[device.c]\nbackend = "frt.cpu"\n')
        for command in (["version"], ["plugins", "ls"], ["plugins", "verify"], ["config", "check", manifest]):
            with self.subTest(command):
                self.assertIn("nosuch", self.check(PLUGIN, "--lock", "nosuch", *command).stderr)

    def test_a_takeover_that_no_episode_reaches_is_refused(self):
        for ticks in ("900:1000", "5:5"):
            result = self.check(USAGE, "rollout", SOURCE / "hosts/manifests/reach.toml", "--takeover", ticks)
            self.assertIn(f"'{ticks}'", result.stderr)

    def test_an_end_that_is_no_token_is_refused(self):
        shutil.copytree(FIXTURES / "demo", self.folder / "demo")
        (self.folder / "demo/generation_config.json").write_text('{"eos_token_id": [1, 123456789]}')
        manifest = self.model_manifest("demo")
        self.assertIn("eos_token_id 123456789", self.check(FAILED, "run", manifest, "-p", "x", "-n", 1).stderr)


class LongErrors(HostTest):
    def test_an_error_of_3000_bytes_is_on_stderr_whole_and_once_also_when_quiet(self):
        manifest = self.manifest("""schema = 1
[device.d]
backend = "test.device"
[model.m]
plugin = "test.model"
device = "d"
checkpoint = "synthetic:x"
""")
        result = self.check(DEVICE, "-q", "--plugin-dir", os.environ["FRT_DEFECT_PLUGIN_DIR"], "run", manifest,
                            "-p", "x", env={"FRT_TEST_DEFECT": "create_long_text"})
        self.assertEqual(result.stderr.count("\u4e2d" * 1000), 1)
        self.assertIn("error test.model: \u4e2d", result.stderr)
        self.assertIn("\u4e2d... (3000 bytes; the log has all of it)", result.stderr)
        self.assertNotIn("\ufffd", result.stderr)


class OneLine(HostTest):
    """A line feed in a name begins no line of the program's own."""

    def lines(self, *arguments):
        result = self.frt(*arguments)
        return (result.stdout + result.stderr).splitlines()

    def test_a_name_with_a_line_feed_forges_no_line(self):
        forged = "x\nforged: ok"
        (self.folder / forged).mkdir()
        (self.folder / (forged + ".toml")).write_text('schema = 1\n[device.c]\nbackend = "frt.cpu"\n')
        (self.folder / (forged + ".bad")).write_text("schema = 7\n")
        for command in (["--plugin-dir", forged, "plugins", "ls"], ["config", "check", forged + ".toml"],
                        ["config", "check", forged + ".bad"], ["config", "check", "no" + forged],
                        ["capsule", "verify", forged, forged], ["capsule", "rm", forged, forged],
                        ["plugins", "lock", forged + ".lock"], ["plugins", "verify", forged + ".lock"],
                        ["plugins", "show", forged], ["run", "no" + forged]):
            with self.subTest(command):
                self.assertEqual([line for line in self.lines(*command) if line.startswith("forged")], [])


class WhatToDo(HostTest):
    def test_a_file_that_cannot_be_written_says_what_to_do(self):
        self.assertIn("make its folder first", self.check(FAILED, "plugins", "lock", "none/frt.lock").stderr)

    def test_an_error_says_once_that_it_is_one(self):
        (self.folder / "bad.lock").write_text("schema = [\n")
        for command in (["plugins", "verify", "bad.lock"], ["--lock", "bad.lock", "plugins", "ls"]):
            self.assertEqual(self.check(PLUGIN, *command).stderr.count("error: "), 1)


class Manifests(HostTest):
    def findings(self, text, status=MANIFEST):
        return self.check(status, "config", "check", self.manifest(text)).stderr

    def test_the_shipped_manifests_are_good(self):
        for path in sorted((SOURCE / "hosts/manifests").glob("*.toml")):
            with self.subTest(path.name):
                self.check(OK, "config", "check", path)

    def test_the_design_example_is_accepted(self):
        self.check(OK, "config", "check", self.manifest("""schema = 1
[device.gpu0]
backend = "auto"
[model.qwen]
plugin     = "frt.qwen36"
device     = "gpu0"
checkpoint = "checkpoints/qwen3.6-27b-fp8"
[model.qwen.options]
slots = 4
max_context = "32k"
[host.lm]
model       = "qwen"
capsule_dir = "capsules"
[host.http]
listen = "127.0.0.1:8080"
model  = "qwen"
"""))

    def test_a_syntax_error_has_its_place(self):
        text = self.findings("schema = 1\n[device.x\n")
        self.assertIn("manifest.toml:2", text)

    def test_an_unknown_key_has_a_suggestion(self):
        text = self.findings('schema = 1\n[device.c]\nbackend = "frt.cpu"\n[model.m]\n'
                             'plugin = "frt.qwen36"\ndevice = "c"\ncheckpoint = "x"\n'
                             '[model.m.options]\nmax_contxt = "4k"\n')
        self.assertIn("max_contxt", text)
        self.assertIn("did you mean `max_context`", text)
        self.assertIn(":9:1", text)

    def test_a_wrong_type_is_named(self):
        text = self.findings('schema = 1\n[device.c]\nbackend = 7\n')
        self.assertIn("backend", text)
        self.assertIn(":3:", text)

    def test_a_missing_plugin_is_named(self):
        self.assertIn("frt.nothing", self.findings('schema = 1\n[device.c]\nbackend = "frt.nothing"\n'))

    def test_two_errors_come_at_once(self):
        text = self.findings('schema = 1\n[device.c]\nbakend = "frt.cpu"\nordinal = "x"\n')
        self.assertIn("bakend", text)
        self.assertIn("ordinal", text)

    def test_values_that_a_server_or_a_model_would_refuse_are_refused_here(self):
        policy = ('schema = 1\n[device.c]\nbackend = "frt.cpu"\n[model.m]\nplugin = "frt.pi05"\ndevice = "c"\n'
                  'checkpoint = "x"\n')
        for table, setting, words in (
                ("model.m.options", 'preset = "pi05_nowhere"', ("pi05_nowhere", "pi05_libero")),
                ("host.robot", 'listen = "nowhere"', ("'nowhere'", "address:port", "host.robot")),
                ("host.robot", 'listen = "127.0.0.1:65536"', ("65536", "address:port")),
                ("host.robot", 'listen = "127.0.0.1"', ("address:port",)),
                ("host.robot", 'max_message = "100M"', ("buffer_memory", "two messages")),
                ("host.robot", "max_clients = 300", ("max_connections",)),
                ("host.robot", 'beta_schedule = "2, strong"', ("'strong'", "no strength")),
                ("host.robot", 'beta_schedule = "2, 0.5"', ("0.5", "guidance is 1")),
                ("host.http", 'model = "m"\nlisten = "here:eighty"', ("here:eighty", "address:port")),
                ("host.http", 'model = "m"\nmore_models = "n"', ("'n'", "does not have", "host.http")),
                ("host.http", 'model = "m"\naliases = "*=n"', ("*=n", "serves no such model")),
                ("host.http", 'model = "m"\n[host.robot]\nmodel = "m"', ("[device.c]", "another served model"))):
            with self.subTest(setting):
                text = self.findings(f"{policy}[{table}]\n{setting}\n")
                for word in words:
                    self.assertIn(word, text)
                self.assertIn("manifest.toml:", text)
        text = self.findings(f'{policy}[host.robot]\nlisten = "a"\n[host.arm]\ntype = "robot"\nlisten = "b"\n')
        self.assertIn("[host.robot]: listen = 'a'", text)
        self.assertIn("[host.arm]: listen = 'b'", text)
        flag = self.frt("config", "check", self.manifest(policy), "--set", "host.robot.listen=c")
        self.assertEqual(flag.returncode, MANIFEST)

    def test_a_manifest_that_is_not_there(self):
        result = self.frt("config", "check", "nowhere.toml")
        self.assertEqual(result.returncode, MANIFEST, result.stderr)
        self.assertIn("nowhere.toml", result.stderr)

    def test_dump_shows_values_and_their_source(self):
        path = self.demo()
        dump = json.loads(self.check(OK, "config", "dump", path, "--json", "--set",
                                     "model.m.options.slots=3").stdout)
        self.assertIn("--set", json.dumps(dump))
        toml = self.check(OK, "config", "dump", path).stdout
        again = self.folder / "again.toml"
        again.write_text(toml)
        self.check(OK, "config", "check", again)

    def test_default_and_schema(self):
        text = self.check(OK, "config", "default").stdout
        self.check(OK, "config", "check", self.manifest(text))
        self.assertIn("$schema", json.loads(self.check(OK, "config", "schema").stdout))


class Devices(HostTest):
    def test_auto_never_means_the_processor(self):
        result = self.frt("run", self.manifest("""schema = 1
[device.d]
backend = "auto"
[model.m]
plugin = "frt.qwen36"
device = "d"
checkpoint = "synthetic:qwen3.6-tiny"
"""), "--prompt-ids", "1", "-n", "1")
        if result.returncode == OK:
            self.assertNotIn("frt.cpu", result.stderr)
        else:
            self.assertIn(result.returncode, (PLUGIN, DEVICE))
            self.assertIn("frt.cpu", result.stderr)

    def test_an_ordinal_that_is_not_there(self):
        result = self.check(DEVICE, "run", self.demo(device="ordinal = 9"), "-p", "x")
        self.assertIn("9", result.stderr)

    def test_listing(self):
        listing = json.loads(self.check(OK, "devices", "--json").stdout)
        self.assertIn("frt.cpu", [device["backend"] for device in listing["devices"]])
        self.assertIn("frt.cpu", self.check(OK, "devices").stdout)


class Plugins(HostTest):
    def test_listing_and_details(self):
        listing = json.loads(self.check(OK, "plugins", "ls", "--json").stdout)
        self.assertLessEqual({"frt.cpu", "frt.qwen36"}, {p["id"] for p in listing["plugins"]})
        cpu = json.loads(self.check(OK, "plugins", "show", "frt.cpu", "--json").stdout)
        self.assertIn("frt.linear/1", [kernel["name"] for kernel in cpu["kernels"]])
        self.assertIn({"operation": "frt.linear/1", "variant": "kernel", "needs": "", "offered": True},
                      cpu["kernel_variants"])
        self.assertRegex(self.check(OK, "plugins", "show", "frt.cpu").stdout,
                         r"kernel variants(.|\n)*frt.linear/1 +kernel +offered")
        self.assertIn("slots", self.check(OK, "plugins", "show", "frt.qwen36").stdout)
        self.assertIn("frt.cpu", self.check(PLUGIN, "plugins", "show", "frt.cpi").stderr)

    def test_refused_files_are_listed_with_the_reason(self):
        own = HOST.parent.parent / "lib/frt/plugins/frt_cpu.so"
        folder = self.folder / "plugins"
        folder.mkdir()
        (folder / "cut.so").write_bytes(own.read_bytes()[:1000])
        (folder / "text.so").write_text("no plugin")
        listing = json.loads(self.check(OK, "--plugin-dir", folder, "plugins", "ls", "--json").stdout)
        reasons = {p["path"].rsplit("/", 1)[-1]: p for p in listing["plugins"]}
        for name in ("cut.so", "text.so"):
            self.assertEqual(reasons[name]["state"], "rejected")
            self.assertTrue(reasons[name]["reason"])
        doctor = self.check(FAILED, "--plugin-dir", folder, "doctor").stdout
        self.assertIn("cut.so", doctor)
        said = self.check(OK, "-q", "--plugin-dir", folder, "run", self.demo(), "-p", "a", "-n", 1).stderr
        self.assertEqual(len(re.findall(r"warning plugins: rejected: '[^']*/(?:cut|text)\.so' \w", said)), 2, said)
        self.assertEqual(self.check(OK, "plugins", "ls", "--ids").stdout.split().count("frt.cpu"), 1)

    def test_a_lock_pins_digests(self):
        lock = self.folder / "frt.lock"
        self.check(OK, "plugins", "lock", lock)
        self.check(OK, "plugins", "verify", lock)
        self.check(OK, "--lock", lock, "-q", "run", self.demo(), "-p", "a", "-n", 1)
        text = lock.read_text()
        digest = text.split('sha256 = "')[1][:8]
        lock.write_text(text.replace(digest, "00000000" if digest != "00000000" else "11111111"))
        self.check(PLUGIN, "plugins", "verify", lock)
        self.check(PLUGIN, "--lock", lock, "plugins", "verify")
        self.assertIn(str(lock), self.check(PLUGIN, "--lock", lock, "plugins", "ls").stderr)
        listed = self.check(PLUGIN, "--lock", lock, "plugins", "ls", "--json").stdout
        self.assertEqual(len(json.loads(listed)["lock"]["problems"]), 1)
        self.assertIn(str(lock), self.check(FAILED, "--lock", lock, "doctor").stdout)
        gone = self.folder / "gone.lock"
        gone.write_text(text.replace('id = "frt.pi05"', 'id = "acme.gone"'))
        said = self.check(PLUGIN, "plugins", "verify", gone).stdout
        self.assertIn("acme.gone: the lock pins", said)
        self.check(USAGE, "--lock", lock, "plugins", "verify", self.folder / "other.lock")
        result = self.frt("--lock", lock, "-q", "run", self.demo(), "-p", "a", "-n", 1)
        self.assertIn(result.returncode, (MANIFEST, PLUGIN), result.stderr)


class Others(HostTest):
    def test_doctor_works_and_speaks_json(self):
        report = json.loads(self.check(OK, "doctor", "--json").stdout)
        self.assertTrue(report["healthy"])
        self.assertIn("no problem found", self.check(OK, "doctor").stdout)

    def test_help_says_what_options_do_in_the_words_of_the_field(self):
        program = " ".join(self.check(OK, "--help").stdout.split())
        for command, lines in (
                ("run", ("Sample from the smallest set of tokens with this total probability",
                         "Drop tokens below this fraction of the best token's probability",
                         "Set the sampling temperature; 0: greedy", "Set the random seed; default: random",
                         "Lower the logits of tokens in proportion to their count")),
                ("capsule", ("Keep this capsule; never evict it", "Allow eviction again")),
                ("replay", ("Replay even if the model, plugin or backend differs",)),
                ("calibrate", ("Use N random frames instead of files",)),
                ("rollout", ("Seed the first episode; each further one takes the next number",)),
                ("bench", ("Decode these numbers of tokens",))):
            text = " ".join(self.check(OK, command, "--help").stdout.split())
            for line in lines:
                self.assertIn(line, text)
        for line in ("Show log lines of this level and above", "Check this installation; suggest fixes"):
            self.assertIn(line, program)

    def test_the_reference_of_manifests_is_what_the_schema_says(self):
        schema = json.loads(self.check(OK, "config", "schema").stdout)
        for host, table in schema["properties"]["host"]["properties"].items():
            for key, option in table["properties"].items():
                self.assertTrue(option.get("description"), f"[host.{host}] {key}")
        page = runpy.run_path(str(SOURCE / "tools/manifest-reference"))["page"]
        self.assertEqual((SOURCE / "hosts/MANIFEST.md").read_text(encoding="utf-8"), page(schema))

    def test_what_the_default_manifest_shows_of_hosts_is_accepted(self):
        shown = self.check(OK, "config", "default").stdout.split("\n# [host.lm]\n", 1)[1]
        tables = "[host.lm]\n" + re.sub(r"^# ", "", shown, flags=re.M)
        for name in ('"demo"', '"arm"'):
            tables = tables.replace(name, '"m"').replace("=demo", "=m")
        self.assertEqual(re.findall(r"^\[host\.(\w+)\]", tables, re.M), ["lm", "http", "robot"])
        for table in re.split(r"\n(?=\[host)", tables):
            manifest = self.model_manifest(FIXTURES / "demo", "", "", table)
            self.assertIn("1 hosts", self.check(OK, "config", "check", manifest).stdout)

    def test_serve_says_which_table_is_missing(self):
        manifest = self.demo()
        more = '[model.more]\nplugin = "frt.qwen36"\ndevice = "cpu0"\ncheckpoint = "synthetic:qwen3.6-tiny"\n'
        manifest.write_text(manifest.read_text(encoding="utf-8") + more, encoding="utf-8")
        said = self.check(MANIFEST, "serve", manifest).stderr
        for words in ("2 models", "add [host.http] with model = \"NAME\"", "[host.robot]"):
            self.assertIn(words, said)
        said = self.check(USAGE, "serve", self.demo(), "--listen", "0.0.0.0:0").stderr
        self.assertIn("key_file", said)     # as with [host.http]: the role of the model is enough

    def test_the_help_of_every_command_ends_with_examples_that_it_takes(self):
        script = self.check(OK, "completion", "bash").stdout
        commands = re.findall(r"^    '([^']+)'\) commands='([^']*)' options='([^']*)'", script, re.M)
        self.assertGreater(len(commands), 20)
        for path, below, options in commands:
            with self.subTest(path):
                text = self.check(OK, *path.split(), "--help").stdout
                examples = re.findall(r"^  (frt-host .*)$", text.split("\nExample", 1)[1], re.M)
                self.assertTrue(examples)
                for example in examples:
                    self.assertIn(f" {path}", example)
                    for option in re.findall(r" (--[a-z-]+)", example.split("#")[0].split(" -- ")[0]):
                        self.assertIn(option, options.split())

    def test_a_flag_from_the_environment_is_true_or_false(self):
        self.assertIn("'1x' is neither true nor false", self.check(USAGE, "version", env={"FRT_QUIET": "1x"}).stderr)
        for value, lines in (("1", 0), ("true", 0), ("false", 1)):
            said = self.check(OK, "tokenize", self.demo(), "Once", env={"FRT_QUIET": value}).stderr
            self.assertEqual(said.count("tokens\n"), lines, said)

    def test_a_word_that_is_none_has_a_suggestion(self):
        self.assertEqual(self.check(USAGE, "serv").stderr, "unknown command `serv`; did you mean `serve`?\n")
        self.assertEqual(self.check(USAGE, "run", "x.toml", "--promt", "a").stderr,
                         "unknown option `--promt`; did you mean `--prompt`?\n")

    def test_a_warning_says_once_that_it_is_one(self):
        result = self.check(OK, "config", "check", self.demo(), env={"FRT_MODEL_M_OPTIONS_SLOTZ": "1"})
        [line] = [line for line in result.stderr.splitlines() if "SLOTZ" in line]
        self.assertRegex(line, r"^[0-9:.]+ warning manifest: ")
        self.assertEqual(line.count("warning"), 1)

    def test_colours_of_the_log_and_of_tables(self):
        log = ("config", "check", self.demo())
        table = ("plugins", "ls")
        odd = {"FRT_MODEL_M_OPTIONS_SLOTZ": "1"}
        for options, env, coloured in ((("--color", "on"), {}, True), (("--color", "on"), {"NO_COLOR": "1"}, True),
                                       (("--color", "off"), {}, False), ((), {}, False), ((), {"FRT_COLOR": "on"}, True)):
            with self.subTest(options=options, env=env):
                said = self.check(OK, *options, *log, env={**odd, **env}).stderr
                self.assertEqual("\x1b[" in said, coloured, said)
                self.assertIn("SLOTZ", said)
                header, *rows = self.check(OK, *options, *table, env=env).stdout.splitlines()
                self.assertEqual(header.startswith("\x1b[1m") and header.endswith("\x1b[0m"), coloured, header)
                self.assertNotIn("\x1b", "".join(rows))
        said = self.check(OK, "--color", "on", "--log-format", "jsonl", *log, env=odd).stderr
        self.assertNotIn("\x1b", said)
        self.assertIn("SLOTZ", json.loads(said.splitlines()[0])["text"])
        self.assertNotIn("\x1b", self.check(OK, "--color", "on", *table, "--json").stdout)

    def test_a_generation_config_that_no_run_could_use_is_found_by_the_check(self):
        for values, problem in (({"top_p": 7}, "top-p is 7"), ({"temperature": -1}, "temperature is -1"),
                                ({"top_k": 2.5}, "top_k"), ({"repetition_penalty": 0}, "repetition-penalty is 0"),
                                ({"min_p": "a"}, "min_p` is no number"), ([], "it is no object")):
            with self.subTest(values=values):
                folder = self.copy_of_demo()
                (folder / "generation_config.json").write_text(json.dumps(values), encoding="utf-8")
                said = self.check(MANIFEST, "config", "check", self.model_manifest(folder)).stderr
                self.assertIn("generation_config.json", said)
                self.assertIn(problem, said)
                self.assertIn("[model.m]", said)
                self.assertRegex(said, r"--> .*:5:8")    # [model.m]
                shutil.rmtree(folder)
        folder = self.copy_of_demo()
        (folder / "generation_config.json").write_text('{"top_k": 20.0, "temperature": null}', encoding="utf-8")
        self.check(OK, "config", "check", self.model_manifest(folder))
        self.check(OK, "-q", "run", self.model_manifest(folder), "-p", "Once", "-n", 1)

    def copy_of_demo(self):
        return pathlib.Path(shutil.copytree(FIXTURES / "demo", self.folder / "copy"))

    def test_the_table_of_exit_statuses_is_what_the_code_says(self):
        code = "".join((SOURCE / "hosts" / name).read_text() for name in ("runtime/exit_code.hpp", "cli/terminal/interrupted.hpp"))
        values = [int(number) for number in re.findall(r"\bk[A-Z]\w+ = (\d+)[,; ]", code)]
        self.assertEqual(values, [OK, FAILED, USAGE, MANIFEST, PLUGIN, DEVICE, 128])
        readme = (SOURCE / "hosts/README.md").read_text()
        rows = re.findall(r"^\| (\d+)(?: \+ signal)? \|", readme, re.M)
        self.assertEqual([int(row) for row in rows], values)
        text = " ".join(self.check(OK, "--help").stdout.split())
        for number, word in re.findall(r"^\| (\d) \| ([^|;]+?)(?:;[^|]*)? \|$", readme, re.M):
            self.assertIn(f"{number} {word}", text)
        self.assertIn("130 by Ctrl-C", text)

    def test_ctrl_c_ends_every_command_with_130(self):
        manifest = self.model_manifest(FIXTURES / "demo", 'max_context = "4k"')
        for command in (("run", manifest, "-p", "Once", "-n", 4000, "--ignore-eos"),
                        ("bench", manifest, "-p", "16", "-n", "16", "-r", 100000),
                        ("capsule", "check", manifest, "--cases", 100000)):
            with self.subTest(command[0]):
                process = subprocess.Popen([str(HOST), *map(str, command)], stdout=subprocess.DEVNULL,
                                           stderr=subprocess.PIPE, cwd=self.folder, preexec_fn=interruptible,
                                           env=clean_environment())
                for line in process.stderr:
                    if b"ready in" in line:
                        break
                process.send_signal(signal.SIGINT)
                process.stderr.read()
                process.stderr.close()
                self.assertEqual(process.wait(TIMEOUT), INTERRUPTED)

    def test_version(self):
        self.assertEqual(self.check(OK, "--version").stdout, self.check(OK, "version").stdout)
        facts = json.loads(self.check(OK, "version", "--json").stdout)
        self.assertEqual(facts["abi"], "0.9")
        self.assertIn("frt-host", self.check(OK, "version").stdout)

    def test_a_shell_completes_commands_options_values_and_ids(self):
        script = self.check(OK, "completion", "bash").stdout
        self.assertEqual(subprocess.run(["bash", "-n"], input=script, text=True).returncode, 0)
        (self.folder / "some.toml").touch()
        cases = (("config ch", ["check"]), ("run --prompt-f", ["--prompt-file"]), ("--color o", ["on", "off"]),
                 ("run x.toml --log-format j", ["jsonl"]), ("bench capsule m.toml --output ", ["json", "md"]),
                 ("completion z", ["zsh"]), ("launch c", ["claude", "codex"]), ("plugins show frt.cp", ["frt.cpu"]),
                 ("run som", ["some.toml"]), ("run m.toml --prompt-file som", ["some.toml"]),
                 ("run m.toml --seed --gr", []))
        for line, expected in cases:
            words = ["frt-host", *line.split(" ")]
            script += (f"\nCOMP_WORDS=({' '.join(repr(word) for word in words)}) COMP_CWORD={len(words) - 1}; COMPREPLY=(); "
                       '_frt_host; printf "%s " "${COMPREPLY[@]}"; echo')
        lines = subprocess.run(["bash"], input=script, text=True, capture_output=True, cwd=self.folder,
                               env={**clean_environment(), "PATH": f"{HOST.parent}:{os.environ['PATH']}"}).stdout
        for (line, expected), answer in zip(cases, lines.splitlines(), strict=True):
            self.assertEqual(sorted(answer.split()), sorted(expected), line)
        fish = self.check(OK, "completion", "fish").stdout
        self.assertIn("-l 'color' -r -x -a \"auto on off\"", fish)
        self.assertIn("#compdef", self.check(OK, "completion", "zsh").stdout)

    def test_usage(self):
        self.check(USAGE)
        self.check(USAGE, "nonsense")
        self.check(USAGE, "run")
        self.check(USAGE, "run", "--no-such-option")
        help_text = self.check(OK, "--help").stdout
        self.assertLessEqual(len(help_text.splitlines()), 48)
        self.assertIn("--prompt-ids", self.check(OK, "--help-all").stdout)

    def test_a_log_of_json_lines_holds_nothing_else(self):
        def entries(text):
            return [json.loads(line) for line in text.splitlines()]
        jsonl = ("--log-format", "jsonl")
        said = entries(self.check(OK, *jsonl, "--log-level", "debug", "run", self.demo(), "-p", "a", "-n", 1).stderr)
        texts = [entry["text"] for entry in said if entry["source"] == "frt-host"]
        self.assertTrue(any(text.startswith("ready in ") for text in texts), texts)
        self.assertTrue(any("finish: length" in text for text in texts), texts)
        said = entries(self.check(OK, *jsonl, "chat", self.demo(), "--greedy", stdin="What is 2 + 2?\n/stats\n").stderr)
        self.assertTrue(any("finish: stop" in entry["text"] for entry in said), said)
        for arguments, status in ((["run", "nowhere.toml", "-p", "x"], MANIFEST), (["run", "--promt"], USAGE),
                                  (["config", "check", self.demo(options="slotz = 1")], MANIFEST)):
            for given, environment in ((jsonl, {}), (["--log-format=jsonl"], {}), ([], {"FRT_LOG_FORMAT": "jsonl"})):
                [entry] = entries(self.check(status, *given, *arguments, env=environment).stderr)
                self.assertEqual(entry["level"], "error")
                self.assertNotRegex(entry["text"], "^error|\\n$")


class Checkpoints(HostTest):
    """A broken checkpoint gives one clear message and status 1."""

    def broken(self, change, *words):
        folder = self.folder / "checkpoint"
        shutil.copytree(FIXTURES / "demo", folder)
        folder.chmod(0o755)
        for path in folder.iterdir():
            path.chmod(0o644)
        change(folder)
        result = self.check(FAILED, "-q", "run", self.model_manifest(folder), "-p", "a", "-n", 1)
        self.assertEqual(result.stdout, "")
        self.assertIn("error:", result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_nothing_there(self):
        self.broken(shutil.rmtree, "config.json")

    def test_no_weights(self):
        self.broken(lambda f: [path.unlink() for path in f.glob("*.safetensors")], "safetensors")

    def test_truncated_weights(self):
        def cut(folder):
            path = folder / "model.safetensors"
            path.write_bytes(path.read_bytes()[:-1000])
        self.broken(cut, "model.safetensors")

    def test_a_header_that_lies(self):
        def lie(folder):
            path = folder / "model.safetensors"
            path.write_bytes((1 << 60).to_bytes(8, "little") + path.read_bytes()[8:])
        self.broken(lie, "model.safetensors")

    def test_a_wrong_shape(self):
        def grow(folder):
            config = json.loads((folder / "config.json").read_text())
            config["text_config"]["intermediate_size"] += 16
            (folder / "config.json").write_text(json.dumps(config))
        self.broken(grow, "mlp", "model.safetensors")

    def test_broken_json(self):
        self.broken(lambda f: (f / "config.json").write_text("{"), "config.json")
        shutil.rmtree(self.folder / "checkpoint")
        self.broken(lambda f: (f / "tokenizer.json").write_text("{}"), "tokenizer.json")

    def test_verify_refuses_goldens_of_another_model(self):
        result = self.frt("-q", "verify", self.demo(), "--goldens", FIXTURES / "qwen36/dense")
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.check(USAGE, "verify", self.demo(), "--goldens", "nowhere")


class Goldens(HostTest):
    def test_every_fixture_passes_in_f32_and_bf16(self):
        for name in ("dense", "moe", "dense_fp8_block", "dense_nvfp4_ct", "dense_nvfp4_modelopt",
                     "text"):
            for activations in ("f32", "bf16"):
                with self.subTest(name=name, activations=activations):
                    folder = FIXTURES / "qwen36" / name
                    manifest = self.model_manifest(folder,
                                                   options=f'activations = "{activations}"')
                    result = self.check(OK, "-q", "verify", manifest, "--goldens", folder, "--json")
                    self.assertEqual(json.loads(result.stdout)["verdict"], "PASS")

    def test_wrong_numbers_fail(self):
        folder = FIXTURES / "qwen36" / "dense"
        goldens = self.folder / "goldens.safetensors"
        data = bytearray((folder / "goldens.safetensors").read_bytes())
        header = int.from_bytes(data[:8], "little")
        meta = json.loads(data[8:8 + header])
        start = 8 + header + meta["t150.logits"]["data_offsets"][0]
        data[start:start + 4] = b"\x00\x00\x80\x42"  # one value becomes 64
        goldens.write_bytes(data)
        manifest = self.model_manifest(folder, options='activations = "f32"')
        result = self.check(FAILED, "-q", "verify", manifest, "--goldens", goldens)
        self.assertIn("FAIL", result.stdout)


class MakeCheckpoint(HostTest):
    def make(self, *arguments):
        return subprocess.run([str(MAKE_CHECKPOINT), str(self.folder / "made"), *arguments],
                              capture_output=True, text=True)

    def test_every_format_loads_and_runs(self):
        for preset in ("qwen3.6-tiny", "qwen3.6-tiny-moe"):
            for naming in ("bf16", "f32", "fp8", "fp8-tensor", "fp8-channel", "nvfp4",
                           "nvfp4-fp8-head", "nvfp4-mixed"):
                with self.subTest(preset=preset, format=naming):
                    made = self.make("--preset", preset, "--format", naming, "--force")
                    self.assertEqual(made.returncode, 0, made.stderr)
                    result = self.run_json(self.model_manifest(self.folder / "made"),
                                           "--prompt-ids", "1,2,3", "-n", 3, "--greedy")
                    self.assertEqual(len(result["ids"]), 3)

    def test_shards_and_namings_hold_the_same_weights(self):
        arguments = ("--preset", "qwen3.6-tiny", "--format", "nvfp4", "--force")
        results = []
        for more in ((), ("--shard-size", "0.0005", "--threads", "3"),
                     ("--nvfp4-naming", "compressed-tensors")):
            self.assertEqual(self.make(*arguments, *more).returncode, 0)
            results.append(self.run_json(
                self.model_manifest(self.folder / "made", options='activations = "f32"'),
                "--prompt-ids", "5,6,7", "-n", 6, "--greedy")["ids"])
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    def test_refusals(self):
        self.assertEqual(self.make("--preset", "nonsense").returncode, 1)
        self.assertEqual(self.make("--format", "int3").returncode, 1)
        self.assertEqual(self.make("--set", "hidden=-4").returncode, 1)
        self.assertEqual(self.make("--set", "hidden=72", "--format", "nvfp4").returncode, 1)
        (self.folder / "made").mkdir(exist_ok=True)
        (self.folder / "made" / "mine.txt").write_text("keep")
        self.assertIn("--force", self.make().stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
