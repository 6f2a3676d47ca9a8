# SPDX-License-Identifier: Apache-2.0
"""frt-host calibrate, and what becomes of its file: Pi0.5 in FP8."""
import hashlib
import json
import math
import struct
import unittest
import zipfile

from support import FAILED, FIXTURES, OK, USAGE, HostTest

POLICIES = FIXTURES / "pi05"
CAMERAS = ["image/base_0_rgb", "image/left_wrist_0_rgb", "image/right_wrist_0_rgb"]
NUMPY = {"U8": "|u1", "F32": "<f4"}


def read_tensors(path):
    """safetensors: name -> (type, shape, bytes)."""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    return {name: (entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])])
            for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}


def write_npz(path, arrays):
    """As numpy.savez does: name -> (type, shape, bytes)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, (kind, shape, data) in arrays.items():
            text = repr({"descr": NUMPY[kind], "fortran_order": False, "shape": tuple(shape)})
            text += " " * (-(10 + len(text) + 1) % 64) + "\n"
            archive.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)


class Calibrate(HostTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "calibration.json"

    def policy(self, precision="fp8", checkpoint="tiny/openpi", extra=""):
        return self.manifest(f"""schema = 1
[device.cpu0]
backend = "frt.cpu"
[model.m]
plugin = "frt.pi05"
device = "cpu0"
checkpoint = "{POLICIES / checkpoint}"
[model.m.options]
precision = "{precision}"
tokenizer = "{POLICIES / 'tokenizer/tokenizer.model'}"
prompt_buckets = "32,128"
{extra}""")

    def frames(self):
        """The observations of the policy goldens that have eight values of state, a file each."""
        files = []
        for case in ("libero", "droid", "cfg"):
            tensors = read_tensors(POLICIES / "policy" / f"{case}.safetensors")
            arrays = {name: tensors[f"obs.image{i}"] for i, name in enumerate(CAMERAS) if f"obs.image{i}" in tensors}
            prompt = f"the task of {case}".encode()
            write_npz(self.folder / f"{case}.npz",
                      {**arrays, "state": tensors["obs.state"], "prompt": ("U8", [len(prompt)], prompt)})
            files.append(f"{case}.npz")
        return files

    def made(self):
        """A calibration of the tiny checkpoint, by its file."""
        manifest = self.policy(extra=f'calibration = "{self.out}"')
        self.check(OK, "-q", "calibrate", manifest, "--frames", *self.frames(), "--out", self.out)
        return json.loads(self.out.read_text())

    def refused(self, *words, **manifest):
        error = self.check(FAILED, "-q", "verify", self.policy(**manifest), "--goldens",
                           POLICIES / "tiny/golden.safetensors").stderr
        for word in words:
            self.assertIn(word, error)

    def test_a_calibrated_model_passes_the_goldens_in_fp8(self):
        made = self.made()
        weights = POLICIES / "tiny/openpi/model.safetensors"
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        self.assertEqual(made["checkpoint"]["files"], {"model.safetensors": digest})
        self.assertEqual(made["checkpoint"]["digest"],
                         hashlib.sha256(f"model.safetensors {digest}\n".encode()).hexdigest())
        self.assertEqual((made["frames"], made["margin"], made["activations"]), (3, 1.25, "bf16"))
        self.assertEqual(len(made["inputs"]), 3 * 4 + (2 * 4 + 1) + 3 * 4)
        for each in made["inputs"].values():
            self.assertTrue(math.isclose(each["scale"], each["largest"] * 1.25 / 448))
        report = json.loads(self.check(OK, "-q", "verify", self.policy(extra=f'calibration = "{self.out}"'), "--json",
                                       "--goldens", POLICIES / "tiny/golden.safetensors", "--goldens",
                                       POLICIES / "policy").stdout)
        rows = {row["tensor"]: row for row in report["rows"]}
        self.assertEqual(rows["v2.actions"]["gate"], "cosine >= 0.99")
        # Really narrow: bf16 differs by a tenth of that.
        self.assertGreater(rows["v2.actions"]["max_abs"], 0.02)
        self.assertEqual(rows["the recorded inference equals the eager one"]["verdict"], "PASS")
        self.assertGreater(report["passed"], 100)

    def test_real_head_sizes_and_shards(self):
        manifest = self.policy(checkpoint="mid/lerobot", extra=f'calibration = "{self.out}"')
        self.check(OK, "-q", "calibrate", manifest, "--synthetic", 2, "--out", self.out)
        self.assertEqual(len(json.loads(self.out.read_text())["checkpoint"]["files"]), 2)
        self.check(OK, "-q", "verify", manifest, "--goldens", POLICIES / "mid/golden.safetensors")

    def test_without_a_file_it_goes_to_stdout_and_repeats(self):
        manifest = self.policy("bf16")
        first, second = (self.check(OK, "-q", "calibrate", manifest, "--synthetic", 2).stdout for _ in range(2))
        self.assertEqual(first, second)
        self.assertEqual(json.loads(first)["frames"], 2)
        other = self.check(OK, "-q", "calibrate", manifest, "--synthetic", 2, "--seed", 2).stdout
        self.assertNotEqual(first, other)

    def test_several_frames_of_one_file(self):
        image = ("U8", [4, 56, 56, 3], bytes(i * 7 % 256 for i in range(4 * 56 * 56 * 3)))
        state = ("F32", [4, 8], struct.pack("<32f", *(i / 40 for i in range(32))))
        write_npz(self.folder / "many.npz", {CAMERAS[0]: image, "state": state, "other": state})
        extra = 'default_prompt = "pick up the block"'
        for limit, frames in ((0, 4), (3, 3)):
            result = self.check(OK, "-q", "calibrate", self.policy("f32", extra=extra), "--frames", "many.npz", "--out",
                                self.out, "--limit", limit, "--json")
            self.assertEqual(json.loads(result.stdout)["frames"], frames)
        self.assertEqual(json.loads(self.out.read_text())["activations"], "f32")

    def test_frames_that_do_not_fit(self):
        write_npz(self.folder / "none.npz", {"something": ("F32", [1], struct.pack("<f", 1))})
        error = self.check(FAILED, "-q", "calibrate", self.policy(), "--frames", "none.npz").stderr
        self.assertIn(CAMERAS[0], error)
        write_npz(self.folder / "uneven.npz", {CAMERAS[0]: ("U8", [2, 4, 4, 3], bytes(96)),
                                               "state": ("F32", [3, 1], bytes(12))})
        self.assertIn("3 frames", self.check(FAILED, "-q", "calibrate", self.policy(), "--frames", "uneven.npz").stderr)
        self.check(USAGE, "-q", "calibrate", self.policy())
        self.check(USAGE, "-q", "calibrate", self.policy(), "--synthetic", 1, "--margin", "0.5")

    def test_a_calibration_of_another_checkpoint_is_refused_with_both_digests(self):
        made = self.made()
        weights = POLICIES / "tiny/lerobot/model.safetensors"
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
        self.refused(made["checkpoint"]["digest"],
                     hashlib.sha256(f"model.safetensors {digest}\n".encode()).hexdigest(), "another checkpoint",
                     checkpoint="tiny/lerobot", extra=f'calibration = "{self.out}"')

    def test_what_is_wrong_with_a_calibration_is_said(self):
        made = self.made()

        def spoilt(change, *words):
            copy = json.loads(json.dumps(made))
            change(copy)
            self.out.write_text(json.dumps(copy))
            self.refused(*words, "frt-host calibrate", extra=f'calibration = "{self.out}"')

        spoilt(lambda c: c["inputs"].pop("prefix.1.down"), "no scale of prefix.1.down")
        for scale in (0, -1, None, "1", 1e300, 1e-300):
            spoilt(lambda c: c["inputs"]["expert.0.qkv"].update(scale=scale), "expert.0.qkv", "positive")
        spoilt(lambda c: c["inputs"].update({"expert.9.qkv": {"scale": 1}}), "expert.9.qkv", "no product")
        spoilt(lambda c: c.update(format="else"), "no calibration")
        spoilt(lambda c: c.update(frames=0), "frames")
        spoilt(lambda c: c["checkpoint"].pop("digest"), "digest")
        self.out.write_text("{")
        self.refused(str(self.out), extra=f'calibration = "{self.out}"')
        self.refused("frt-host calibrate")
        self.refused("No such file", extra='calibration = "nowhere.json"')

    def test_precision_and_activations_must_agree(self):
        self.refused("differ", precision="f32", extra='activations = "bf16"')


if __name__ == "__main__":
    unittest.main()
