# SPDX-License-Identifier: Apache-2.0
"""tools/capsule-reader, the independent reader, on files that core writes now (FRT_CAPSULE_TEST, the
test program, writes samples) and on one that was written when the format was published."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
READER = ROOT / "tools" / "capsule-reader"
PUBLISHED = ROOT / "tests" / "fixtures" / "capsule" / "published.capsule"


def load_reader():
    loader = importlib.machinery.SourceFileLoader("capsule_reader", str(READER))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


reader = load_reader()


def run(*arguments):
    return subprocess.run([sys.executable, str(READER), *map(str, arguments)],
                          capture_output=True, check=False)


class Reader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        fast = "/dev/shm" if os.path.isdir("/dev/shm") else None
        cls.folder = tempfile.TemporaryDirectory(dir=fast)
        subprocess.run([os.environ["FRT_CAPSULE_TEST"], "-tc=samples for other readers*"],
                       env={**os.environ, "FRT_SAMPLE_FOLDER": cls.folder.name},
                       check=True, stdout=subprocess.DEVNULL)
        cls.files = sorted(pathlib.Path(cls.folder.name).glob("*.capsule"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_sample_is_good_and_every_region_is_what_the_arena_held(self):
        self.assertGreater(len(self.files), 10)
        compared = 0
        for file in self.files:
            capsule = reader.Capsule(file)
            capsule.verify()
            self.assertEqual(capsule.metadata, b"of " + file.stem.encode())
            for region in capsule.manifest["regions"]:
                expected = file.with_suffix("." + region["name"]).read_bytes()
                self.assertEqual(b"".join(capsule.extract(region["name"])), expected)
                compared += 1
        self.assertGreater(compared, 20)

    def test_the_published_file_is_read_as_ever(self):
        self.assertEqual(run("verify", PUBLISHED).returncode, 0)
        result = run("describe", PUBLISHED)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"boundary     21", result.stdout)
        self.assertEqual(run("extract", PUBLISHED, "state").stdout, bytes(range(20)))
        self.assertEqual(run("metadata", PUBLISHED).stdout, b'{"tokens":[1,2,3]}')

    def test_damage_is_found(self):
        good = PUBLISHED.read_bytes()
        path = pathlib.Path(self.folder.name) / "damaged"
        for position in range(len(good)):
            damaged = bytearray(good)
            damaged[position] ^= 1 << position % 8
            path.write_bytes(damaged)
            with self.assertRaises(reader.Damaged, msg=position):
                reader.Capsule(path).verify()
        for length in range(0, len(good), 7):
            path.write_bytes(good[:length])
            with self.assertRaises(reader.Damaged, msg=length):
                reader.Capsule(path).verify()
        self.assertEqual(run("verify", path).returncode, 1)


if __name__ == "__main__":
    unittest.main()
