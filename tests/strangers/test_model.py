# SPDX-License-Identifier: Apache-2.0
"""The template of a language model, with an operator of its own: the real frt-host gives the text that a naive
reference predicts."""
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

from installed_sdk import CAPSULES, TemplateTest
from support import FAILED, HOST, OK, SOURCE, TIMEOUT, clean_environment

sys.path.insert(0, str(SOURCE / "sdk/templates/model"))
sys.dont_write_bytecode = True  # beside the template
import make_goldens  # noqa: E402
import make_weights  # noqa: E402

# Its seed is, of the smallest 3,000, one with clear margins and much variety.
WEIGHTS = make_weights.make()
# The least distance of the best logit from the next that the reference accepts; sums in f32 move a logit by less than
# 1e-4.
MARGIN = 0.02
COUNT = 72
PROMPTS = ("Once upon a time", "the quick brown fox jumps over the lazy dog")
END = 256
STRUCTURED = os.environ.get("FRT_XGRAMMAR", "ON") == "ON"
TOOLS = [{"type": "function", "function": {"name": "look_up", "strict": True, "parameters": {
    "type": "object", "properties": {"word": {"enum": ["tree", "house"]}}, "required": ["word"],
    "additionalProperties": False}}}]
# An agent that asks for a call and prints the answer.
AGENT = f"""#!{sys.executable}
import json, os, urllib.request
tool = {{"name": "look_up", "input_schema": {TOOLS[0]["function"]["parameters"]!r}}}
body = {{"model": os.environ["ANTHROPIC_MODEL"], "max_tokens": 100, "tools": [tool],
         "tool_choice": {{"type": "%s", "disable_parallel_tool_use": True}},
         "messages": [{{"role": "user", "content": "which word?"}}]}}
request = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(),
                                 {{"Content-Type": "application/json"}})
print(urllib.request.urlopen(request).read().decode())
"""


def reference(prompt, count=COUNT):
    """The ids that follow `prompt`, a text or ids, by the template's own reference."""
    ids, rows = make_goldens.follow(WEIGHTS, list(prompt.encode() if isinstance(prompt, str) else prompt), count)
    for place, row in enumerate(rows):
        *_, second, best = sorted(row)
        assert best - second > MARGIN, f"{prompt}: token {place} is too close; take another seed"
    return ids


# ---- the real frt-host ----

class Model:
    """The model on `backend`."""
    template = "model"
    definitions = ("-DCMAKE_CXX_FLAGS_RELEASE=-O1",)  # most of the test's time is the compiler's

    def model(self, options="", device="", tensors=None):
        """On weights of the template's own script, or on others."""
        make_weights.save(self.folder / "weights.safetensors", tensors or make_weights.make())
        return self.model_manifest("weights.safetensors", options, device, CAPSULES, self.backend, "acme.recurrent_lm")

    def quiet(self, *arguments, status=OK, **options):
        return self.check(status, "-q", *arguments, **options)

    def ids(self, manifest, *arguments, count=COUNT):
        return json.loads(self.quiet("run", manifest, "--json", "--greedy", "-n", count, *arguments).stdout)["ids"]


class Tests(Model):
    def test_the_text_is_that_of_a_naive_reference(self):
        for prompt in PROMPTS:
            with self.subTest(prompt):
                self.assertEqual(self.ids(self.model(), "-p", prompt), reference(prompt))

    def test_captured_and_eager_runs_are_equal(self):
        eager = self.ids(self.model(device="capture = false"), "-p", PROMPTS[0])
        self.assertEqual(eager, self.ids(self.model(), "-p", PROMPTS[0]))

    def test_chunks_of_a_prompt_give_what_the_whole_gives(self):
        for chunk in (1, 5, 64):
            with self.subTest(chunk):
                self.assertEqual(self.ids(self.model(f"prefill_chunk = {chunk}"), "-p", PROMPTS[1]),
                                 reference(PROMPTS[1]))

    def test_a_capsule_goes_on_where_the_text_was_cut(self):
        manifest = self.model()
        first = self.ids(manifest, "-p", PROMPTS[0], "--save-capsule", "half", count=COUNT // 2)
        rest = self.ids(manifest, "--from-capsule", "half", count=COUNT - COUNT // 2)
        self.assertEqual(first + rest, reference(PROMPTS[0]))

    def test_a_capsule_of_other_weights_is_refused(self):
        self.ids(self.model(), "-p", PROMPTS[0], "--save-capsule", "one", count=1)
        other = self.model(tensors=make_weights.make(seed=2))
        result = self.quiet("run", other, "--from-capsule", "one", status=FAILED)
        self.assertIn("model.weights: here ", result.stderr)

    def test_weights_of_another_shape_are_named(self):
        wrong = make_weights.make()
        wrong["decay"] = ([1], [0.5])
        result = self.quiet("run", self.model(tensors=wrong), "-p", "a", status=FAILED)
        self.assertIn("weights.safetensors: 'decay' is F32 [1], expected F32 [64]", result.stderr)

    def test_the_width_is_that_of_the_weights(self):
        manifest = self.model(tensors=make_weights.make(width=48))
        self.assertEqual(len(self.ids(manifest, "-p", PROMPTS[0], count=8)), 8)

    def test_the_operator_works_at_every_replay_and_not_at_capture(self):
        """Only the operator's state carries what was read before the last token."""
        manifest = self.model()
        one, other = (self.ids(manifest, "-p", prompt, count=8) for prompt in ("one thing.", "another."))
        self.assertNotEqual(one, other)
        alone = self.ids(manifest, "-p", ".", count=8)
        self.assertEqual(alone, reference(".", 8))  # nothing that a capture left in the state
        self.assertNotIn(alone, (one, other))

    def test_a_conversation_is_read_as_the_model_renders_it(self):
        shown = self.quiet("chat", self.model(), "--greedy", "-n", 12, stdin="hello\n<|end|>\n").stdout
        read = [*b"user: hello", END, *b"\nassistant: "]
        first = reference(read, 12)
        read += [*first, END, *b"\nuser: <|end|>", END, *b"\nassistant: "]  # what the user types ends no turn
        self.assertEqual(shown, bytes([*first, 10, *reference(read, 12), 10]).decode())

    def test_text_that_is_not_ascii_comes_through(self):
        ids = list("Grüße, 世界".encode())
        self.assertEqual(self.ids(self.model(), "-p", "Grüße, 世界", count=4),
                         self.ids(self.model(), "--prompt-ids", ",".join(map(str, ids)), count=4))


class OnTheProcessor(Tests, TemplateTest):
    backend = "frt.cpu"

    def test_the_tutorial_does_what_it_says(self):
        _, _, captured, eager, half, rest, checked, _, verified, tests, checks = self.tutorial()
        self.assertTrue(captured)
        self.assertEqual(captured, eager)
        self.assertEqual(captured, half + rest)
        self.assertTrue(checked.endswith("PASS"), checked)
        self.assertTrue(verified.endswith("PASS: 4 passed, 0 failed, 0 skipped"), verified)
        self.assertIn("100% tests passed, 0 tests failed out of 1", tests)
        self.assertRegex(checks, r"(?m)^[1-9]\d* passed, 0 failed")

    def test_goldens_of_other_weights_and_of_another_model_do_not_pass(self):
        goldens = self.folder / "goldens.safetensors"

        def verify(tensors, status):
            make_weights.save(goldens, tensors)
            return self.quiet("verify", self.model("context = 64"), "--goldens", goldens, status=status)

        shown = verify(make_goldens.goldens(make_weights.make(seed=2)), FAILED).stdout
        self.assertIn("FAIL: 0 passed, 2 failed, 1 skipped", shown)
        self.assertIn("needs 79 positions; raise the option context", shown)
        good = make_goldens.goldens(WEIGHTS)
        for name, tensor, said in (("once.ids", ([1], [257]), "has the id 257"), ("once.next", ([1], [0.5]), "is F32 [1]"),
                                   ("once.ids", ([], [7]), "is I32 [], expected I32 [0]"),
                                   ("once.logits", ([1], [0.5]), "is F32 [1], expected F32 [16, 257]")):
            with self.subTest(name, said=said):
                self.assertIn(said, verify({**good, name: tensor}, FAILED).stderr)
        self.assertIn("no tensor NAME.ids", verify(WEIGHTS, FAILED).stderr)
        wrong = {**good, "once.next": ([16], [good["once.next"][1][0] ^ 1, *good["once.next"][1][1:]])}
        self.assertRegex(verify(wrong, FAILED).stdout, r"once\.next +16 .* FAIL +equal")

    # ---- every command, and the server ----

    # Commands without a language model.
    OTHERS = {"bench policy", "calibrate", "completion", "config default", "config schema", "devices", "doctor", "handoff",
              "plugins lock", "plugins ls", "plugins show", "plugins verify", "rollout", "version"}
    SERVED = {"serve", "launch"}  # the tests below

    def commands_of_host(self, *command):
        """The names of all, "bench", "bench capsule" ..."""
        _, _, listed = self.quiet(*command, "--help").stdout.partition("\nSubcommands:\n")
        found = set()
        for name in re.findall(r"^  ([a-z]\S*)", listed.partition("\n\n")[0], re.M):
            found |= {" ".join((*command, name))} | self.commands_of_host(*command, name)
        return found

    def test_every_command_that_takes_a_language_model_runs_it(self):
        manifest = self.model()
        make_weights.save(self.folder / "goldens.safetensors", make_goldens.goldens(WEIGHTS))
        talk = {"messages": [{"role": "user", "content": "hello"}], "tools": TOOLS}
        (self.folder / "talk.json").write_text(json.dumps(talk), encoding="utf-8")
        short = ("--greedy", "-n", 4)
        rows = {  # in this order: each command with its arguments, once or several times
            "run": [(manifest, "-p", "a", *short, "--save-capsule", "one", "--record", "record.json"),
                    (manifest, "-p", "a", *short, "--chat"), (manifest, "--prompt-ids", "1,2", *short),
                    (manifest, "--from-capsule", "one", *short)],
            "chat": [(manifest, *short)],
            "replay": [("record.json", "--manifest", manifest)],
            "tokenize": [(manifest, "some text"), (manifest, "--chat", "talk.json")],
            "verify": [(manifest, "--goldens", "goldens.safetensors"), (manifest, "--goldens", "folder")],
            "bench": [(manifest, "-p", 32, "-n", 4, "-b", "1,2", "-r", 1), (manifest, "-p", 32, "-n", 4, "-r", 10, "--profile")],
            "bench capsule": [(manifest, "--lengths", 64, "-r", 2, "--index", 0)],
            "bench engine": [(manifest, "--num-prompts", 4, "--input-len", 16, "--output-len", 4)],
            "capsule ls": [(manifest,)], "capsule show": [(manifest, "one")], "capsule verify": [(manifest,)],
            "capsule pin": [(manifest, "one")], "capsule unpin": [(manifest, "one")],
            "capsule export": [(manifest, "one", "one.frtcap")], "capsule rm": [(manifest, "one")],
            "capsule import": [(manifest, "one.frtcap")], "capsule check": [(manifest, "--cases", 5)],
            "config check": [(manifest,)], "config dump": [(manifest,)],
        }
        (self.folder / "folder").mkdir()
        shutil.copy(self.folder / "goldens.safetensors", self.folder / "folder")
        groups = {"bench", "capsule", "config", "plugins"} - set(rows)
        self.assertEqual(set(rows) | self.OTHERS | self.SERVED | groups, self.commands_of_host(),
                         "a command has no row here: add one, or name it in OTHERS if it takes no language model")
        for command, runs in rows.items():
            for arguments in runs:
                with self.subTest(command, arguments=arguments[1:]):
                    self.quiet(*command.split(), *arguments, stdin="hello\n")

    def served(self, tensors=None):
        """The address of a server of the template's own manifest, which has no [host.http]."""
        self.model(tensors=tensors)  # its weights
        manifest = self.folder / "manifest.toml"
        shutil.copy(self.source / "manifest.toml", manifest)
        server = subprocess.Popen([HOST, "--plugin-dir", self.plugins, "serve", manifest, "--listen", "127.0.0.1:0"],
                                  stderr=subprocess.PIPE, text=True, env=clean_environment(), cwd=self.folder)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        said = []
        for line in server.stderr:
            said.append(line)
            if line.startswith("serving "):
                break
        return re.search(r"serving mine on (http://127\.0\.0\.1:\d+)", "".join(said)).group(1)

    def asked(self, url, **fields):
        body = {"max_tokens": 100, **({} if "prompt" in fields else {"messages": [{"role": "user", "content": "hello"}]}),
                **fields}
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return json.load(answer)["choices"][0]
        except urllib.error.HTTPError as refused:
            with refused:
                self.fail(f"{fields}: {refused.code} {refused.read().decode()}")

    def test_serve_knows_a_language_model_by_its_role(self):
        url = self.served() + "/v1"
        self.assertEqual(self.asked(url + "/completions", prompt=PROMPTS[0], max_tokens=12)["text"],
                         bytes(reference(PROMPTS[0], 12)).decode())
        self.assertTrue(self.asked(url + "/chat/completions", max_tokens=3)["message"]["content"])
        called = {"role": "assistant", "content": None, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look_up", "arguments": "{\"word\": \"tree\"}"}}]}
        talk = [{"role": "user", "content": "hello"}, called, {"role": "tool", "tool_call_id": "a", "content": "a plant"}]
        free = self.asked(url + "/chat/completions", messages=talk, tools=TOOLS, tool_choice="none", max_tokens=3)
        read = [*b"tools: ", *json.dumps(TOOLS, separators=(",", ":")).encode(), END, *b"\nuser: hello", END,
                *b'\nassistant: <call look_up>{"word": "tree"}</call>\n', END, *b"\ntool: a plant", END, *b"\nassistant: "]
        self.assertEqual(free["message"]["content"], bytes(reference(read, 3)).decode())

    @unittest.skipUnless(STRUCTURED, "built without XGrammar")
    def test_serve_forces_a_form_and_calls_on_its_answers(self):
        url = self.served() + "/v1/chat/completions"
        three = self.asked(url, structured_outputs={"regex": "[0-9]{3}"})
        self.assertRegex(three["message"]["content"], "^[0-9]{3}$")
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
        shaped = self.asked(url, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
        self.assertIn(json.loads(shaped["message"]["content"]), ({"ok": True}, {"ok": False}))
        called = self.asked(url, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
        self.assertEqual((called["finish_reason"], called["message"]["content"] or ""), ("tool_calls", ""))
        function, = (call["function"] for call in called["message"]["tool_calls"])
        self.assertEqual(function["name"], "look_up")
        self.assertIn(json.loads(function["arguments"])["word"], ("tree", "house"))

    @unittest.skipUnless(STRUCTURED, "built without XGrammar")
    def test_what_is_no_call_of_a_tool_stays_text(self):
        reluctant = make_weights.make()
        reluctant["bias"][1][ord("<")] = -1e20  # where the form lets it, it says something else than a call
        url = self.served(reluctant) + "/v1/chat/completions"
        hard = r'{"word": "</call> \" }"}'
        for text, content, calls in (
                (f"say <call look_up>{hard}</call>\nand", "say and", [hard]),
                ("say <call look_up>{}</call>\n\n<call look_up> {} </call>", "say \n", ["{}", " {} "]),
                *((same, same, []) for same in (
                    "say <call nothing>{}</call>", "say <call look_up>{} 1</call>", 'say <call look_up>{"word": 01}</call>',
                    'say <call look_up>{"word": 1e999}</call>', 'say <call look_up>{"a": 1, "a": 2}</call>',
                    "say <call look_up>[]</call>", 'say <call look_up>{"word": "tree"}', "say <call"))):
            with self.subTest(text):
                message = self.asked(url, tools=TOOLS, structured_outputs={"choice": [text]})["message"]
                self.assertEqual(message["content"], content)
                self.assertEqual([call["function"]["arguments"] for call in message.get("tool_calls") or []], calls)

    def test_an_agent_of_launch_uses_its_tools(self):
        agent = self.folder / "claude"
        agent.write_text(AGENT % ("any" if STRUCTURED else "auto"), encoding="utf-8")
        agent.chmod(0o755)
        shown = self.quiet("launch", "claude", "--url", self.served(), env={"PATH": f"{self.folder}:/usr/bin:/bin"}).stdout
        content = json.loads(shown)["content"]
        self.assertTrue(content)
        if STRUCTURED:
            self.assertEqual([(part["type"], part["name"]) for part in content], [("tool_use", "look_up")])


if __name__ == "__main__":
    unittest.main()
