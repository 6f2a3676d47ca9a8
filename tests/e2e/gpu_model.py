# SPDX-License-Identifier: Apache-2.0
"""The same manifests on a GPU as on the processor: golden tensors, greedy text, nothing captured while
serving. Skipped where no CUDA device is. FRT_GPU_JOBS: runs at a time (4)."""
import concurrent.futures
import itertools
import json
import os
import pathlib
import sys
import tempfile
import unittest

from support import FAILED, FIXTURES, OK, HostTest

FIXTURE_NAMES = ("dense", "moe", "dense_fp8_block", "dense_nvfp4_ct", "dense_nvfp4_modelopt", "text")
JOBS = int(os.environ.get("FRT_GPU_JOBS", "4"))

# What two right implementations may differ by in bf16: where the probabilities of the two best tokens
# are closer than this (natural logarithm), either may come out first.
NOISE = 0.05

PROMPTS = (
    "Once upon a time", "One day", "The little", "Tom and Mia", "In the forest", "It was raining",
    "12 + 30 =", "7 + 5 =", "41 + 8 =", "def add(a, b):", "def double(x):", "for i in range(",
    "What is 3 + 4?", "The king", "She was", "A small boat", "He said", "Yesterday", "Two friends",
    "The dog and the cat")


def cuda_backend():
    """The id of the backend plugin that sees a CUDA device, or why there is none."""
    probe = HostTest("frt")
    probe.folder = pathlib.Path(tempfile.gettempdir())
    survey = json.loads(probe.check(OK, "devices", "--json").stdout)
    found = [device["backend"] for device in survey["devices"]
             if device["backend"].startswith("frt.cuda.")]
    if found:
        return found[0], ""
    return "", "; ".join(f"{backend['id']}: {backend['problem']}" for backend in survey["backends"]
                         if backend["problem"]) or "no CUDA plugin"


CUDA, WHY_NOT = cuda_backend()


@unittest.skipUnless(CUDA, f"no CUDA device: {WHY_NOT}")
class GpuTest(HostTest):
    counter = itertools.count()

    def on(self, backend, checkpoint, options="", device=""):
        path = self.folder / f"manifest-{next(self.counter)}.toml"
        path.write_text(f"""schema = 1
[device.main]
backend = "{backend}"
{device}
[model.m]
plugin = "frt.qwen36"
device = "main"
checkpoint = "{checkpoint}"
[model.m.options]
{options}
""", encoding="utf-8")
        return path

    def together(self, function, items):
        with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
            return list(pool.map(function, items))


class Demo(GpuTest):
    def test_auto_and_named_backends_give_the_same(self):
        auto, named = (self.run_json(self.on(backend, FIXTURES / "demo"), "-p", "One day", "-n", 32,
                                     "--greedy") for backend in ("auto", CUDA))
        self.assertEqual(auto["ids"], named["ids"])

    def test_nothing_is_captured_while_serving(self):
        result = self.run_json(self.on(CUDA, FIXTURES / "demo"), "-p", "a", "-n", 20)
        self.assertEqual(result["captures_since_ready"], 0)

    def test_eager_and_captured_runs_are_identical(self):
        captured, eager = (self.run_json(self.on(CUDA, FIXTURES / "demo", device=device), "-p",
                                         "One day", "-n", 48, "--greedy")
                           for device in ("", "capture = false"))
        self.assertEqual(captured["ids"], eager["ids"])

    def test_greedy_and_seeded_runs_repeat_exactly(self):
        manifest = self.on(CUDA, FIXTURES / "demo")
        for arguments in (["--greedy"], ["--seed", 7, "--temperature", 1.3],
                          ["--seed", 9, "--top-k", 20, "--top-p", 0.9]):
            first, second = (self.run_json(manifest, "-p", "The little", "-n", 48, *arguments)
                             for _ in range(2))
            self.assertEqual(first["ids"], second["ids"])

    def test_greedy_text_is_that_of_the_processor(self):
        """200 tokens each; in f32 the same, in bf16 the same up to a tie within NOISE, listed."""
        for activations in ("f32", "bf16"):
            options = f'activations = "{activations}"'
            manifests = [self.on(backend, FIXTURES / "demo", options)
                         for backend in ("frt.cpu", CUDA)]
            runs = self.together(
                lambda job: self.run_json(job[1], "-p", job[0], "-n", 200, "--greedy",
                                          "--ignore-eos", "--logprobs"),
                [(prompt, manifest) for prompt in PROMPTS for manifest in manifests])
            equal = 0
            for prompt, cpu, gpu in zip(PROMPTS, runs[::2], runs[1::2]):
                with self.subTest(activations=activations, prompt=prompt):
                    pairs = list(zip(cpu["ids"], gpu["ids"]))
                    self.assertEqual(len(pairs), 200)
                    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
                    if at is None:
                        equal += 1
                        continue
                    # Both took their best: the gap of their probabilities is the margin, give or
                    # take the noise itself.
                    margin = abs(cpu["logprobs"][at] - gpu["logprobs"][at])
                    print(f"{activations} {prompt!r}: differs at token {at}, {pairs[at][0]} and "
                          f"{pairs[at][1]}, margin {margin:.4f}", file=sys.stderr)
                    self.assertLess(margin, NOISE if activations == "bf16" else 1e-3)
            print(f"{activations}: {equal} of {len(PROMPTS)} texts of 200 tokens are equal",
                  file=sys.stderr)


class Goldens(GpuTest):
    def test_every_fixture_passes_in_f32_and_bf16(self):
        def verify(job):
            name, activations = job
            manifest = self.on(CUDA, FIXTURES / "qwen36" / name, f'activations = "{activations}"')
            result = self.frt("-q", "verify", manifest, "--goldens", FIXTURES / "qwen36" / name,
                              "--json")
            return job, result

        present = [name for name in FIXTURE_NAMES if (FIXTURES / "qwen36" / name).is_dir()]
        jobs = [(name, activations) for name in present for activations in ("f32", "bf16")]
        for (name, activations), result in self.together(verify, jobs):
            with self.subTest(name=name, activations=activations):
                self.assertIn(result.returncode, (OK, FAILED), result.stderr)
                report = json.loads(result.stdout) if result.stdout else {}
                failed = [f"{row['tensor']}: relative {row['relative']}, cosine {row['cosine_min']}, "
                          f"gate {row['gate']}" for row in report.get("rows", [])
                          if row["verdict"] == "FAIL"]
                self.assertEqual(result.returncode, OK, "\n".join(failed[:12]) + result.stderr)
                print(f"{name} {activations}: {report['passed']} passed, {report['skipped']} skipped",
                      file=sys.stderr)


if __name__ == "__main__":
    if not CUDA:
        if os.environ.get("FRT_DEVICE_REQUIRED"):
            sys.exit(f"there should be a CUDA device: {WHY_NOT}")
        print(f"skipped: no CUDA device: {WHY_NOT}")
        sys.exit(77)   # SKIP_RETURN_CODE
    unittest.main()
