# SPDX-License-Identifier: Apache-2.0
"""frt-host chat keeps the conversation: whatever is typed, sent, imported or restored, and however it ends."""
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "fuzz/mutators"))

from forged_capsule import ForgedCapsule
from support import FAILED, FIXTURES, HOST, OK, TIMEOUT, USAGE, HostTest, Terminal, clean_environment, interruptible

QUESTION, SECOND, THIRD = "What is 2 + 2?", "What is 3 + 4?", "What is 5 + 1?"


def all_signals():
    """In a child: SIGINT and SIGHUP as a terminal leaves them."""
    interruptible()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class ChatTest(HostTest):
    ARGUMENTS = ("--greedy", "--no-thinking")
    KEEP = (*ARGUMENTS, "--autosave")

    def demo(self, capsules=False, **options):
        extra = '[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\n' if capsules else ""
        return self.model_manifest(FIXTURES / "demo", extra=extra, **options)

    def command(self, manifest, *arguments):
        return [str(HOST), "chat", str(manifest), *map(str, arguments or self.ARGUMENTS)]

    @property
    def environment(self):
        return {**clean_environment(), "XDG_STATE_HOME": str(self.folder)}

    def talk(self, manifest, *lines, status=OK, arguments=(), **options):
        """Lines are text or bytes."""
        data = b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)
        options = {"input": data, "stdout": subprocess.PIPE, **options}
        result = subprocess.run(self.command(manifest, *arguments), stderr=subprocess.PIPE, timeout=TIMEOUT,
                                cwd=self.folder, env=self.environment, **options)
        result.stderr = result.stderr.decode(errors="replace")
        result.stdout = (result.stdout or b"").decode(errors="replace")
        self.assertEqual(result.returncode, status, result)
        return result

    def start(self, manifest, arguments=(), **options):
        """A talk whose lines the test writes one by one."""
        options = {"stdout": subprocess.PIPE, "preexec_fn": all_signals, **options}
        process = subprocess.Popen(self.command(manifest, *arguments), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
                                   cwd=self.folder, env=self.environment, bufsize=0, **options)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                self.addCleanup(stream.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def messages(self, name="out.json"):
        return json.loads((self.folder / name).read_text())

    def roles(self, name="out.json"):
        return [message["role"] for message in self.messages(name)]

    def capsules(self):
        return sorted(path.name for path in (self.folder / "capsules").glob("auto*.capsule")
                      if not path.name.startswith("auto-"))


class Mistakes(ChatTest):
    def test_text_that_is_no_utf8_is_refused_and_the_talk_goes_on(self):
        result = self.talk(self.demo(), QUESTION, b"caf\xe9", b"/system \xff", b"/fork \xff", SECOND,
                           "/export out.json", status=FAILED)
        self.assertEqual(result.stderr.count("is not valid UTF-8"), 3)
        self.assertEqual(self.roles(), ["user", "assistant"] * 2)
        self.assertEqual(self.messages()[2]["content"], SECOND)
        refused = self.talk(self.demo(), arguments=["--system", b"\xff".decode(errors="surrogateescape")],
                            status=USAGE)
        self.assertIn("UTF-8", refused.stderr)

    def test_an_import_that_fails_changes_nothing(self):
        os.mkfifo(self.folder / "fifo")
        (self.folder / "empty").write_text("")
        (self.folder / "deep").write_text("[" * 200000 + "]" * 200000)
        (self.folder / "latin").write_bytes(b'[{"role": "user", "content": "\xff"}]')
        (self.folder / "object").write_text('{"role": "user"}')
        (self.folder / "numbers").write_text("[1, 2]")
        (self.folder / "roles").write_text('[{"role": 7, "content": "x"}]')
        (self.folder / "strange").write_text('[{"role": "user", "content": {"a": 1}}]')
        names = [".", "fifo", "/dev/zero", "empty", "deep", "latin", "object", "numbers", "roles", "strange",
                 "nowhere"]
        result = self.talk(self.demo(), QUESTION, *(f"/import {name}" for name in names), "/export out.json",
                           SECOND, status=FAILED)
        self.assertEqual(result.stderr.count("error: "), len(names), result.stderr)
        self.assertEqual(self.roles(), ["user", "assistant"])

    def test_a_capsule_without_a_conversation_is_refused_before_anything_is_given_up(self):
        manifest = self.demo(capsules=True)
        self.check(OK, "-q", "run", manifest, "-p", "x", "-n", 0, "--save-capsule", "prompt")
        result = self.talk(manifest, QUESTION, "/restore prompt", "/export out.json", SECOND, "/stats",
                           status=FAILED)
        self.assertIn("holds no conversation", result.stderr)
        self.assertEqual(self.roles(), ["user", "assistant"])
        self.assertRegex(result.stderr, r"continued \d+ of \d+ tokens in the slot")

    def test_settings_that_are_no_numbers_are_refused_by_name(self):
        settings = ["seed=-1", "seed=18446744073709551616", "seed=", "top-k=1x", "top-k=99999999999",
                    "temperature=1e99", "temperature=nan", "max-new=-1", "seed"]
        result = self.talk(self.demo(), *(f"/set {setting}" for setting in settings), "/set seed=7", QUESTION,
                           "/stats", status=FAILED)
        self.assertEqual(result.stderr.count("error: "), len(settings), result.stderr)
        self.assertIn("seed 7", result.stderr)

    def test_a_line_without_end_is_skipped(self):
        result = self.talk(self.demo(), b"x" * (17 << 20), QUESTION, status=FAILED)
        self.assertIn("bytes and was skipped", result.stderr)
        self.assertIn("4", result.stdout)


class Turns(ChatTest):
    def test_back_takes_whole_turns_whatever_the_system_message_is_meanwhile(self):
        self.talk(self.demo(), QUESTION, "/system Be brief.", SECOND, "/back", "/export out.json")
        self.assertEqual(self.roles(), ["system", "user", "assistant"])
        self.talk(self.demo(), "/system Be brief.", QUESTION, "/system", SECOND, "/back", "/export out.json")
        self.assertEqual(self.roles(), ["user", "assistant"])

    def test_back_takes_turns_of_a_conversation_from_a_file(self):
        manifest = self.demo(capsules=True)
        self.talk(manifest, QUESTION, SECOND, "/export talk.json", "/save talk")
        for source in ("/import talk.json", "/restore talk"):
            self.talk(manifest, source, "/back", "/export out.json", "/exit")
            self.assertEqual(self.messages(), self.messages("talk.json")[:2])

    def test_without_a_seed_a_question_asked_again_is_another_draw(self):
        ask, arguments = "Tell me a story.", ["--no-thinking", "--temperature", 2, "-n", 24]
        lines = [ask, "/export one.json", "/back", ask, "/export two.json", "/exit"]
        self.talk(self.demo(), *lines, arguments=arguments)
        self.assertNotEqual(self.messages("one.json"), self.messages("two.json"))
        self.talk(self.demo(), *lines, arguments=[*arguments, "--seed", 3])
        self.assertEqual(self.messages("one.json"), self.messages("two.json"))

    def test_what_is_saved_is_the_state_of_what_is_said(self):
        manifest = self.demo(capsules=True)
        result = self.talk(manifest, QUESTION, "/reset", "/save nothing", "/restore nothing", SECOND,
                           "/export out.json", "/exit")
        self.assertIn("saved nothing: 0 tokens", result.stderr)
        self.assertEqual(self.roles(), ["user", "assistant"])


class Integers(ChatTest):
    def test_an_integer_of_30_digits_survives_import_save_restore_and_export(self):
        digits = "123456789012345678901234567890"
        (self.folder / "talk.json").write_text(
            '[{"role": "user", "content": "pay"}, {"role": "assistant", "content": "", "tool_calls": '
            '[{"type": "function", "function": {"name": "pay", "arguments": {"amount": %s}}}]}]' % digits)
        manifest = self.demo(capsules=True)
        self.talk(manifest, "/import talk.json", "/export out.json", "/save talk", "/exit")
        self.assertIn(f'"amount": {digits}', (self.folder / "out.json").read_text())
        self.talk(manifest, "/restore talk", "/export again.json", "/exit")
        self.assertIn(f'"amount": {digits}', (self.folder / "again.json").read_text())


class Options(ChatTest):
    def test_a_capsule_says_how_its_conversation_was_rendered_and_nothing_else(self):
        manifest = self.demo(capsules=True)
        self.talk(manifest, QUESTION, "/save talk", SECOND, "/export out.json", "/exit")
        path = self.folder / "capsules/talk.capsule"
        saved = ForgedCapsule(path.read_bytes())
        for options in ({"add_generation_prompt": False}, {"allow_special_tokens": True}, {"no_such_option": 1},
                        {"enable_thinking": "x", "preserve_thinking": [1]}):
            with self.subTest(options):
                metadata = json.loads(saved.metadata)
                metadata["extra"]["options"].update(options)
                forged = ForgedCapsule(path.read_bytes())
                forged.metadata = json.dumps(metadata, separators=(",", ":")).encode()
                path.write_bytes(forged.bytes())
                result = self.talk(manifest, "/restore talk", SECOND, "/export again.json", "/exit")
                self.assertNotIn("error", result.stderr)
                self.assertEqual(self.messages("again.json"), self.messages())


class UnsavedTurns(ChatTest):
    def test_what_takes_their_place_moves_them_to_a_branch(self):
        manifest = self.demo(capsules=True)
        self.talk(manifest, THIRD, "/export talk.json", "/save talk", "/exit")
        for source in ("/import talk.json", "/restore talk"):
            with self.subTest(source):
                result = self.talk(manifest, QUESTION, SECOND, source, "/export out.json", "/branches",
                                   "/restore main-2", "/export moved.json", "/exit")
                self.assertIn("what was not saved is in branch main-2 now", result.stderr)
                self.assertIn("main-2: 2 turns", result.stderr)
                self.assertEqual(self.messages(), self.messages("talk.json"))
                self.assertEqual([message["content"] for message in self.messages("moved.json")[::2]],
                                 [QUESTION, SECOND])
                self.assertEqual(self.capsules(), [])
        self.talk(manifest, QUESTION, "/import talk.json", SECOND, arguments=self.KEEP)  # the end keeps both
        self.assertEqual(self.capsules(), ["autosave-2.capsule", "autosave.capsule"])


class Pins(ChatTest):
    def test_what_was_pinned_before_stays_pinned(self):
        manifest = self.demo(capsules=True)
        self.talk(manifest, QUESTION, "/save mine", "/save other", "/exit")
        self.check(OK, "capsule", "pin", manifest, "mine")
        for name in ("mine", "other"):
            self.talk(manifest, "/fork b", "/restore main", "/exit",
                      arguments=[*self.ARGUMENTS, "--from-capsule", name])
        self.assertEqual([path.name for path in (self.folder / "capsules").glob("*.pin")], ["mine.pin"])

    def test_a_pin_that_cannot_be_taken_away_now_is_taken_away_later(self):
        manifest = self.demo(capsules=True)
        self.talk(manifest, QUESTION, "/save mine", "/exit")
        pin = self.folder / "capsules/mine.pin"
        talk = self.start(manifest, [*self.ARGUMENTS, "--from-capsule", "mine"])
        talk.stdin.write(b"/fork b\n")
        while not pin.exists():
            self.assertIsNone(talk.poll())
            time.sleep(0.005)
        pin.unlink()
        pin.mkdir()
        talk.stdin.write(b"/fork c\n")
        self.assertTrue(any(b"error: " in line for line in iter(talk.stderr.readline, b"")))
        pin.rmdir()
        pin.touch()
        talk.stdin.write(b"/exit\n")
        talk.stdin.close()
        talk.stderr.read()
        talk.wait(timeout=TIMEOUT)
        self.assertFalse(pin.exists())


class Ends(ChatTest):
    def test_a_script_leaves_nothing_that_it_did_not_ask_for(self):
        manifest = self.demo(capsules=True)
        self.assertIn("not kept: 1 turns", self.talk(manifest, QUESTION).stderr)
        self.assertEqual(self.capsules(), [])
        self.assertEqual(list(self.folder.glob("frt/chat-*.json")), [])
        said = self.talk(manifest, QUESTION, "/save mine", SECOND).stderr
        self.assertIn("not kept: 2 turns", said)
        self.assertIn("--autosave", said)
        self.assertEqual(self.capsules(), [])
        self.assertTrue((self.folder / "capsules/mine.capsule").exists())
        self.assertNotIn("not kept", self.talk(manifest, QUESTION, "/save other").stderr)

    def test_the_end_of_the_input_keeps_the_conversation(self):
        manifest = self.demo(capsules=True)
        whole = self.talk(manifest, QUESTION, SECOND, "/exit").stdout
        self.assertEqual(self.capsules(), [])  # /exit keeps nothing
        first = self.talk(manifest, QUESTION, arguments=self.KEEP)
        self.assertIn("kept as autosave: 1 turns", first.stderr)
        second = self.talk(manifest, SECOND, arguments=[*self.KEEP, "--from-capsule", "autosave"])
        self.assertEqual(first.stdout + second.stdout, whole)
        self.assertEqual(self.capsules(), ["autosave.capsule"])  # the same conversation, the same name
        self.talk(manifest, THIRD, arguments=self.KEEP)
        self.assertEqual(self.capsules(), ["autosave-2.capsule", "autosave.capsule"])
        self.talk(manifest, QUESTION, "/save mine", arguments=self.KEEP)  # nothing new after it
        self.assertEqual(self.capsules(), ["autosave-2.capsule", "autosave.capsule"])
        self.talk(manifest, "/restore autosave", "/export out.json", "/exit")
        self.assertEqual(self.roles(), ["user", "assistant"] * 2)

    def test_two_talks_that_go_on_from_one_capsule_are_both_kept(self):
        manifest = self.demo(capsules=True)
        self.talk(manifest, QUESTION, arguments=self.KEEP)
        arguments = [*self.KEEP, "--from-capsule", "autosave"]
        first, second = (self.start(manifest, arguments) for _ in range(2))
        for talk, question in ((first, SECOND), (second, THIRD)):  # both have restored it by then
            self.assertTrue(any(b"restored autosave" in line for line in iter(talk.stderr.readline, b"")))
            talk.stdin.write(question.encode() + b"\n")
        for talk in (first, second):
            talk.stdin.close()
            talk.stderr.read()
            self.assertEqual(talk.wait(timeout=TIMEOUT), OK)
        self.assertEqual(self.capsules(), ["autosave-2.capsule", "autosave.capsule"])
        for capsule, question in (("autosave", SECOND), ("autosave-2", THIRD)):
            self.talk(manifest, f"/restore {capsule}", "/export out.json", "/exit")
            self.assertEqual([message["content"] for message in self.messages()[::2]], [QUESTION, question])

    def test_every_branch_with_answers_is_kept(self):
        self.talk(self.demo(capsules=True), QUESTION, "/fork b", SECOND, arguments=self.KEEP)
        self.assertEqual(self.capsules(), ["autosave-2.capsule", "autosave.capsule"])

    def test_a_script_without_a_folder_is_told_what_is_lost(self):
        self.assertIn("not kept: 1 turns", self.talk(self.demo(), QUESTION).stderr)
        self.assertNotIn("kept", self.talk(self.demo(), QUESTION, "/export out.json").stderr)

    def kept_messages(self, said):
        """What is in the one file of messages, which was named."""
        [file] = self.folder.glob("frt/chat-*.json")
        self.assertIn(f"the messages are in {file}", said)
        self.assertEqual(file.stat().st_mode & 0o777, 0o600)     # what was said is the user's alone
        messages = json.loads(file.read_text())
        file.unlink()
        return [message["content"] for message in messages if message["role"] == "user"]

    def test_without_a_folder_the_messages_are_kept_in_a_file(self):
        manifest = self.demo()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                talk = self.start(manifest)
                talk.stdin.write(QUESTION.encode() + b"\n")
                self.assertIn(b"4", talk.stdout.readline())
                talk.send_signal(number)
                self.assertEqual(self.kept_messages(talk.stderr.read().decode()), [QUESTION])
                self.assertEqual(talk.wait(timeout=TIMEOUT), 128 + number)
        with self.subTest("an output that takes nothing"), open("/dev/full", "wb") as full:
            said = self.talk(manifest, QUESTION, status=FAILED, stdout=full).stderr
            self.assertEqual(self.kept_messages(said), [QUESTION])
        with self.subTest("Ctrl-D"):
            terminal = Terminal(self, "-q", "chat", manifest, *self.ARGUMENTS)
            terminal.expect(b"> ")
            terminal.type(QUESTION + "\r")
            terminal.expect(b"4\r\n")
            terminal.expect(b"> ")
            terminal.type("\x04")
            self.assertEqual(terminal.wait(), OK)
            self.assertEqual(self.kept_messages(terminal.seen.decode()), [QUESTION])

    def test_ctrl_d_ends_the_chat_also_when_it_is_typed_before_the_prompt(self):
        terminal = Terminal(self, "-q", "chat", self.demo(), *self.ARGUMENTS)
        terminal.type("\x04")            # the program has not begun yet
        self.assertEqual(terminal.wait(), OK)

    def test_a_terminal_that_is_stopped_does_not_keep_a_signal_from_ending_the_chat(self):
        terminal = Terminal(self, "-q", "chat", self.demo(capsules=True), *self.ARGUMENTS)
        terminal.expect(b"> ")
        terminal.type(QUESTION + "\r")
        terminal.expect(b"4\r\n")
        terminal.expect(b"> ")
        terminal.type("\x13")            # Ctrl-S
        terminal.process.send_signal(signal.SIGTERM)
        self.assertEqual(terminal.process.wait(timeout=TIMEOUT), 128 + signal.SIGTERM)
        self.assertIn("autosave", self.check(OK, "capsule", "ls", self.folder / "capsules").stdout)

    def test_a_signal_to_end_keeps_the_conversation(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number):
                process = subprocess.Popen(
                    self.command(self.demo(capsules=True)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, cwd=self.folder, env=self.environment,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
                process.stdin.write(QUESTION.encode() + b"\n")
                process.stdin.flush()
                self.assertIn(b"4", process.stdout.readline())
                process.send_signal(number)
                self.assertIn(b"kept as autosave", process.stderr.read())  # to its end
                self.assertEqual(process.wait(timeout=TIMEOUT), 128 + number)
                process.stdin.close()
                process.stdout.close()
                process.stderr.close()

    def test_an_answer_that_cannot_be_written_ends_the_talk_and_keeps_it(self):
        with open("/dev/full", "wb") as full:
            result = self.talk(self.demo(capsules=True), QUESTION, SECOND, status=FAILED, stdout=full)
        self.assertIn("standard output", result.stderr)
        self.assertEqual(self.capsules(), ["autosave.capsule"])

    def test_a_reader_that_goes_away_ends_the_talk_and_keeps_it(self):
        process = subprocess.Popen(self.command(self.demo(capsules=True)), stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.folder,
                                   env=self.environment)
        process.stdin.write(QUESTION.encode() + b"\n")
        process.stdin.flush()
        self.assertIn(b"4", process.stdout.readline())
        process.stdout.close()
        process.communicate(SECOND.encode() + b"\n", timeout=TIMEOUT)
        self.assertEqual(process.returncode, FAILED)
        self.assertEqual(self.capsules(), ["autosave.capsule"])

    def start_blocked(self, manifest):
        """A talk with one answer, whose second one waits for a reader; where to read it, and what is before it."""
        output, inlet = os.pipe()
        self.addCleanup(os.close, output)
        self.addCleanup(os.close, inlet)
        talk = self.start(manifest, stdout=inlet)
        talk.stdin.write(QUESTION.encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += os.read(output, 4096)
        os.set_blocking(inlet, False)
        held = 0
        try:
            while True:
                held += os.write(inlet, b"\0" * 4096)
        except BlockingIOError:
            os.set_blocking(inlet, True)
        talk.stdin.write(SECOND.encode() + b"\n")
        asleep = 0
        while asleep < 10:  # nothing computes: it waits for the pipe
            states = [path.read_text().rsplit(")", 1)[1].split()[0]
                      for path in pathlib.Path(f"/proc/{talk.pid}/task").glob("*/stat")]
            asleep = asleep + 1 if set(states) == {"S"} else 0
            time.sleep(0.02)
        return talk, output, held

    @staticmethod
    def send(talk, number):
        """Returns when the program has taken the signal."""
        talk.send_signal(number)
        pending = 1 << (number - 1)
        while pending:
            lines = pathlib.Path(f"/proc/{talk.pid}/status").read_text().splitlines()
            masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
            pending = any(mask & 1 << (number - 1) for mask in masks)

    def test_ctrl_c_while_nobody_reads_the_answer_loses_nothing(self):
        talk, output, held = self.start_blocked(self.demo())
        self.send(talk, signal.SIGINT)
        while held:
            held -= len(os.read(output, held))
        talk.stdin.write(b"/back\n" + THIRD.encode() + b"\n/export out.json\n/exit\n")
        self.assertNotIn(b"cannot write", talk.stderr.read())
        self.assertEqual(talk.wait(timeout=TIMEOUT), OK)
        self.assertEqual([message["content"] for message in self.messages()[::2]], [QUESTION, THIRD])

    def test_the_second_ctrl_c_ends_the_talk_and_keeps_it(self):
        talk, _, _ = self.start_blocked(self.demo(capsules=True))
        self.send(talk, signal.SIGINT)
        self.send(talk, signal.SIGINT)
        self.assertIn(b"kept as autosave", talk.stderr.read())
        self.assertEqual(talk.wait(timeout=TIMEOUT), 128 + signal.SIGINT)

    def test_a_second_signal_to_end_leaves_the_keeping_alone(self):
        talk = self.start(self.demo(capsules=True))
        talk.stdin.write(QUESTION.encode() + b"\n")
        self.assertIn(b"4", talk.stdout.readline())
        talk.send_signal(signal.SIGTERM)
        said = []
        while talk.poll() is None and not any(b"kept" in line for line in said):
            talk.send_signal(signal.SIGTERM)
            if select.select([talk.stderr], [], [], 0)[0]:
                said.append(talk.stderr.readline())
        self.assertIn(b"kept as autosave", b"".join(said) + talk.stderr.read())

    def test_input_that_cannot_be_read_is_told(self):
        folder = os.open(FIXTURES, os.O_RDONLY)
        self.addCleanup(os.close, folder)
        result = self.talk(self.demo(), status=FAILED, input=None, stdin=folder)
        self.assertIn("cannot read the standard input", result.stderr)


class Lines(ChatTest):
    """What a person writes, and what is answered, where each belongs."""

    def asked(self, *lines, arguments=(), **options):
        result = self.talk(self.demo(**options), *lines, "/export out.json", arguments=arguments)
        return result, [message["content"] for message in self.messages() if message["role"] == "user"]

    def test_lines_between_triple_quotes_are_one_message_and_no_command(self):
        quotes = '"""'
        for lines, asked in (((quotes, "/exit", "a\\", "", "b", quotes), ["/exit\na\\\n\nb"]),
                             ((f"{quotes}one", f"two{quotes}"), ["one\ntwo"]), ((f"{quotes}one{quotes}", "x"), ["one", "x"]),
                             ((f"{quotes}{quotes}", quotes, quotes, "x"), ["x"])):
            with self.subTest(lines):
                self.assertEqual(self.asked(*lines, arguments=(*self.ARGUMENTS, "-n", 2))[1], asked)
        cut = self.talk(self.demo(capsules=True), "/set max-new=2", quotes, "one", arguments=self.KEEP)
        self.assertIn("1 turns", cut.stderr)     # the input's end ends the message, too
        long = self.talk(self.demo(), quotes, *[b"x" * (1 << 20)] * 17, quotes, QUESTION, status=FAILED)
        self.assertIn("longer than", long.stderr)

    def test_a_saved_conversation_is_replaced_only_on_request(self):
        manifest = self.demo(capsules=True)
        self.talk(manifest, QUESTION, "/save sums")
        refused = self.talk(manifest, QUESTION, SECOND, "/save sums", status=FAILED)
        self.assertIn("--replace", refused.stderr)
        self.assertIn("saved sums: ", self.talk(manifest, QUESTION, SECOND, "/save sums --replace").stderr)
        self.assertIn("restored sums: 4 messages", self.talk(manifest, "/restore sums").stderr)

    def test_reasoning_is_shown_apart_from_the_answer(self):
        answer = "3 + 4 = 7\n"
        for command in (["chat", self.demo(), "--greedy"], ["run", self.demo(), "--chat", "--greedy"]):
            result = self.check(OK, *command, stdin=SECOND + "\n" if command[0] == "chat" else SECOND)
            self.assertEqual(result.stdout, answer)
            self.assertRegex(result.stderr, r"\n[^\n]*wants to know 3 \+ 4[^\n]*\n")
            self.assertNotIn("think>", result.stdout + result.stderr)
            quiet = self.check(OK, "-q", *command, stdin=SECOND)
            self.assertEqual((quiet.stdout, quiet.stderr), (answer, ""))
            colored = self.check(OK, "--color", "on", *command, stdin=SECOND)
            self.assertEqual(colored.stdout, answer)
            self.assertIn("\x1b[2m", colored.stderr)
        log = self.check(OK, "--log-format", "jsonl", "run", self.demo(), "--chat", "--greedy", stdin=SECOND).stderr
        self.assertIn("wants to know", " ".join(json.loads(line)["text"] for line in log.splitlines()))
        message = self.run_json(self.demo(), "--chat", "--greedy", stdin=SECOND)["message"]
        self.assertEqual(message["content"], answer.strip())
        self.assertIn("wants to know", message["reasoning_content"])
        self.assertNotIn("message", self.run_json(self.demo(), "-p", "x", "-n", 1))


class OnATerminal(ChatTest):
    def test_a_pasted_text_is_one_message_whatever_it_has_within(self):
        terminal = Terminal(self, "chat", self.demo(), *self.ARGUMENTS, "-n", 2)
        terminal.expect(b"\x1b[?2004h")
        terminal.expect(b"> ")
        terminal.type("About \x1b[200~a\tb\r/exit\r\x04\x1b[2Jgr\u00fc\u00dfe\x1b[201~!\r")
        terminal.expect(b"\x1b[?2004l")
        terminal.expect(b"> ")
        terminal.type("/export out.json\r")
        terminal.expect(b"2 messages")
        terminal.type("/exit\r")
        self.assertEqual(terminal.wait(), OK)
        self.assertEqual(self.messages()[0]["content"], "About a\tb\n/exit\n[2Jgr\u00fc\u00dfe!")

    def test_tab_completes_commands_settings_and_branches(self):
        terminal = Terminal(self, "chat", self.demo(), *self.ARGUMENTS)
        terminal.expect(b"> ")
        terminal.type("/fo\tside\r")
        terminal.expect(b"in branch side")
        terminal.type("/rest\tm\t\r")
        terminal.expect(b"restored main: 0 messages")
        terminal.type("/se\tfre\t")
        terminal.expect(b"quency-penalty=")
        terminal.type("x\r")
        terminal.expect(b"'x' is no value for frequency-penalty")
        terminal.type("/ex\t")
        terminal.expect(b"/exit")
        terminal.type("it\r")
        self.assertEqual(terminal.wait(), OK)

    def test_what_is_typed_and_is_no_utf8_is_refused_and_eats_no_key(self):
        terminal = Terminal(self, "-q", "chat", self.demo(), *self.ARGUMENTS)
        terminal.expect(b"> ")
        for typed in (b"h\xe9llo\r", b"caf\xe9\r", b"\xff\r"):
            os.write(terminal.controller, typed)
            terminal.expect(b"not valid UTF-8")
            terminal.expect(b"> ")
        terminal.type(QUESTION + "\r")
        terminal.expect(b"4\r\n")

    def test_a_terminal_that_claims_to_be_huge_is_read_without_the_editor(self):
        terminal = Terminal(self, "-q", "chat", self.demo(), *self.ARGUMENTS, size=(65535, 65535))
        terminal.expect(b"65535 rows of 65535 characters")
        terminal.type(QUESTION + "\n")
        terminal.expect(b"4\r\n")
        terminal.type("/exit\n")
        self.assertEqual(terminal.wait(), OK)

    def test_settings_of_the_editor_that_it_cannot_take_are_named_and_not_used(self):
        (self.folder / ".editrc").write_text("bind -v\nbind -s ^X " + "A" * 3000 + "\n")
        terminal = Terminal(self, "-q", "chat", self.demo(), *self.ARGUMENTS, env={"HOME": str(self.folder)})
        self.assertIn(b".editrc:2: more than 500 bytes", terminal.expect(b"> "))
        terminal.type("\x04")
        self.assertEqual(terminal.wait(), OK)

    def test_what_is_typed_arrives_in_every_script(self):
        for locale in ("C", "C.UTF-8"):
            with self.subTest(locale):
                terminal = Terminal(self, "chat", self.demo(), *self.ARGUMENTS, env={"LC_ALL": locale})
                terminal.expect(b"> ")
                terminal.type("Grüße, 你好 🙂x\x7f!\r")
                terminal.expect(b"> ")
                terminal.type("/export out.json\r")
                terminal.expect(b"2 messages")
                terminal.type("/exit\r")
                self.assertEqual(terminal.wait(), OK)
                self.assertEqual(self.messages()[0]["content"], "Grüße, 你好 🙂!")

    def test_ctrl_c_ends_the_reading_of_a_prompt_and_changes_nothing(self):
        said = [{"role": "user", "content": "word " * 3000}, {"role": "assistant", "content": "Yes."}]
        (self.folder / "long.json").write_text(json.dumps(said))
        terminal = Terminal(self, "chat", self.demo(options="prefill_chunk = 1\nmax_context = 4096"),
                            *self.ARGUMENTS)
        terminal.expect(b"> ")
        terminal.type("/import long.json\r")
        terminal.expect(b"2 messages")
        terminal.type("And then?\r")
        terminal.expect(b"prompt    [")  # the bar, drawn while it is read
        terminal.process.send_signal(signal.SIGINT)
        terminal.expect(b"nothing was asked")
        terminal.type("/export out.json\r")
        terminal.expect(b"2 messages")
        terminal.type("/exit\r")
        self.assertEqual(terminal.wait(), OK)
        self.assertEqual(self.messages(), said)

    def test_a_signal_to_end_at_the_prompt_keeps_the_conversation(self):
        terminal = Terminal(self, "chat", self.demo(capsules=True), *self.ARGUMENTS)
        terminal.expect(b"> ")
        terminal.type(QUESTION + "\r")
        terminal.expect(b"4\r\n")
        terminal.expect(b"> ")
        terminal.process.send_signal(signal.SIGTERM)
        terminal.expect(b"kept as autosave")
        self.assertEqual(terminal.wait(), 128 + signal.SIGTERM)


if __name__ == "__main__":
    unittest.main(verbosity=2)
