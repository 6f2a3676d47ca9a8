# SPDX-License-Identifier: Apache-2.0
"""The template of a language model, with an operator of its own: the real frt-host gives the text that a naive
reference predicts."""
import functools
import json
import re
import runpy
import shutil
import subprocess
import unittest
import urllib.error
import urllib.request

from installed_sdk import CAPSULES, TemplateTest
from support import FAILED, HOST, OK, SOURCE, TIMEOUT, clean_environment

# Its seed is, of the smallest 3,000, one with clear margins and much variety.
MAKE_WEIGHTS = runpy.run_path(str(SOURCE / "sdk/templates/model/make_weights.py"))
WEIGHTS = {name: values for name, (_, values) in MAKE_WEIGHTS["make"]().items()}
WIDTH, PRINTABLE = MAKE_WEIGHTS["WIDTH"], MAKE_WEIGHTS["PRINTABLE"]
# The least distance of the best logit from the next that the reference accepts; sums in f32 move a logit by less than
# 1e-4.
MARGIN = 0.02
COUNT = 72
PROMPTS = ("Once upon a time", "the quick brown fox jumps over the lazy dog")


# ---- a naive reference: recurrent_lm.cpp says what it follows ----

END = 256


@functools.cache
def row(matrix, token):
    return WEIGHTS[matrix][token * WIDTH:(token + 1) * WIDTH]


def reference(prompt, count=COUNT):
    """The ids that follow `prompt`, a text or ids."""
    state = [0.0] * WIDTH
    ids = list(prompt.encode() if isinstance(prompt, str) else prompt)
    read = len(ids)
    for step in range(read + count - 1):
        state = [d * s + x for d, s, x in zip(WEIGHTS["decay"], state, row("table", ids[step]))]
        if step + 1 < read:
            continue
        logits = sorted((sum(h * s for h, s in zip(row("head", token), state)), token) for token in PRINTABLE)
        assert logits[-1][0] - logits[-2][0] > MARGIN, f"{prompt}: token {len(ids)} is too close; take another seed"
        ids.append(logits[-1][1])
    return ids[read:]


# ---- the real frt-host ----

class Model:
    """The model on `backend`."""
    template = "model"
    definitions = ("-DCMAKE_CXX_FLAGS_RELEASE=-O1",)  # most of the test's time is the compiler's

    def model(self, options="", device="", tensors=None):
        """On weights of the template's own script, or on others."""
        MAKE_WEIGHTS["save"](self.folder / "weights.safetensors", tensors or MAKE_WEIGHTS["make"]())
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
        other = self.model(tensors=MAKE_WEIGHTS["make"](seed=2))
        result = self.quiet("run", other, "--from-capsule", "one", status=FAILED)
        self.assertIn("model.weights: here ", result.stderr)

    def test_weights_of_another_shape_are_named(self):
        wrong = MAKE_WEIGHTS["make"]()
        wrong["decay"] = ([1], [0.5])
        result = self.quiet("run", self.model(tensors=wrong), "-p", "a", status=FAILED)
        self.assertIn("weights.safetensors: 'decay' is F32 [1], expected F32 [64]", result.stderr)

    def test_the_width_is_that_of_the_weights(self):
        manifest = self.model(tensors=MAKE_WEIGHTS["make"](width=48))
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
        _, _, captured, eager, half, rest, checked, tests, checks = self.tutorial()
        self.assertTrue(captured)
        self.assertEqual(captured, eager)
        self.assertEqual(captured, half + rest)
        self.assertTrue(checked.endswith("PASS"), checked)
        self.assertIn("100% tests passed, 0 tests failed out of 1", tests)
        self.assertRegex(checks, r"(?m)^[1-9]\d* passed, 0 failed")

    def test_serve_knows_a_language_model_by_its_role_and_clients_hear_what_it_refuses(self):
        """its manifest has no [host.http]"""
        self.model()  # its weights
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
        address = re.search(r"serving mine on (http://127\.0\.0\.1:\d+)", "".join(said)).group(1)
        messages = [{"role": "user", "content": "hello"}]
        tools = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]

        def asked(**fields):
            request = urllib.request.Request(
                address + "/v1/chat/completions", json.dumps({"messages": messages, "max_tokens": 3, **fields}).encode(),
                {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as refused:
                with refused:
                    return refused.code, json.load(refused)["error"]

        self.assertEqual(asked()[0], 200)
        status, error = asked(tools=tools)
        self.assertEqual((status, error["param"], error["message"]),
                         (400, "tools", "this model knows no tools; give none"))
        status, error = asked(messages=[*messages, {"role": "tool", "content": "x", "tool_call_id": "a"}])
        self.assertEqual((status, error["param"]), (400, "messages"), error)


if __name__ == "__main__":
    unittest.main()
