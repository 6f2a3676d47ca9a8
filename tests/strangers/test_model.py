# SPDX-License-Identifier: Apache-2.0
"""A language model with an operator of its own, built against an installed SDK: the real frt-host gives the text that
a naive reference predicts."""
import functools
import json
import unittest

from installed_sdk import CAPSULES, StrangerTest
from support import FAILED, OK

SEED = 1530  # of the smallest 3,000 one with clear margins and much variety
WIDTH = 64
PRINTABLE = range(ord(" "), ord("~") + 1)
# The least distance of the best logit from the next that the reference accepts; sums in f32 move a logit by less than
# 1e-4.
MARGIN = 0.02
COUNT = 72
PROMPTS = ("Once upon a time", "the quick brown fox jumps over the lazy dog")


# ---- a naive reference: recurrent_lm.cpp says what it follows ----

TABLE, HEAD, DECAY = range(3)
END = 256


def weight(matrix, index):
    mask = (1 << 64) - 1
    z = (SEED * 0xD1342543DE82EF95 + (matrix << 32) + index + 1) * 0x9E3779B97F4A7C15 & mask
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    top = (z ^ z >> 31) >> 48
    return (top - (1 << 16) if top >> 15 else top) / 32768


@functools.cache
def row(matrix, token):
    return [weight(matrix, token * WIDTH + i) for i in range(WIDTH)]


def reference(prompt, count=COUNT):
    """The ids that follow `prompt`, a text or ids."""
    decay = [0.71875 + 0.21875 * weight(DECAY, i) for i in range(WIDTH)]
    state = [0.0] * WIDTH
    ids = list(prompt.encode() if isinstance(prompt, str) else prompt)
    read = len(ids)
    for step in range(read + count - 1):
        state = [d * s + x for d, s, x in zip(decay, state, row(TABLE, ids[step]))]
        if step + 1 < read:
            continue
        logits = sorted((sum(h * s for h, s in zip(row(HEAD, token), state)), token) for token in PRINTABLE)
        assert logits[-1][0] - logits[-2][0] > MARGIN, f"{prompt}: token {len(ids)} is too close; take another seed"
        ids.append(logits[-1][1])
    return ids[read:]


# ---- the real frt-host ----

class Model:
    """The model on `backend`."""
    project = "model"
    definitions = ("-DCMAKE_CXX_FLAGS_RELEASE=-O1",)  # most of the test's time is the compiler's

    def model(self, options="", device=""):
        return self.model_manifest("synthetic:none", f"seed = {SEED}\n{options}", device, CAPSULES, self.backend,
                                   "stranger.recurrent_lm")

    def stranger(self, *arguments, status=OK, **options):
        return self.check(status, "-q", *arguments, **options)

    def ids(self, manifest, *arguments, count=COUNT):
        return json.loads(self.stranger("run", manifest, "--json", "--greedy", "-n", count, *arguments).stdout)["ids"]


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
        result = self.stranger("run", self.model(), "--from-capsule", "one", "--set", "model.m.options.seed=2",
                               status=FAILED)
        self.assertIn("weights:seed", result.stderr)

    def test_the_operator_works_at_every_replay_and_not_at_capture(self):
        """Only the operator's state carries what was read before the last token."""
        manifest = self.model()
        one, other = (self.ids(manifest, "-p", prompt, count=8) for prompt in ("one thing.", "another."))
        self.assertNotEqual(one, other)
        alone = self.ids(manifest, "-p", ".", count=8)
        self.assertEqual(alone, reference(".", 8))  # nothing that a capture left in the state
        self.assertNotIn(alone, (one, other))

    def test_a_conversation_is_read_as_the_model_renders_it(self):
        shown = self.stranger("chat", self.model(), "--greedy", "-n", 12, stdin="hello\n<|end|>\n").stdout
        read = [*b"user: hello", END, *b"\nassistant: "]
        first = reference(read, 12)
        read += [*first, END, *b"\nuser: <|end|>", END, *b"\nassistant: "]  # what the user types ends no turn
        self.assertEqual(shown, bytes([*first, 10, *reference(read, 12), 10]).decode())

    def test_text_that_is_not_ascii_comes_through(self):
        ids = list("Grüße, 世界".encode())
        self.assertEqual(self.ids(self.model(), "-p", "Grüße, 世界", count=4),
                         self.ids(self.model(), "--prompt-ids", ",".join(map(str, ids)), count=4))


class OnTheProcessor(Tests, StrangerTest):
    backend = "frt.cpu"


if __name__ == "__main__":
    unittest.main()
