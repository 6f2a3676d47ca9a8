# SPDX-License-Identifier: Apache-2.0
"""The package declares what the C headers declare."""
import ctypes
import os
import pathlib
import re
import tempfile
import unittest
import unittest.mock

import frt
from frt import _errors, _library

SOURCE = pathlib.Path(os.environ["FRT_SOURCE"])
EMBED = (SOURCE / "hosts/embed/include/frt/embed.h").read_text(encoding="utf-8")
HEADERS = [EMBED] + [(SOURCE / "sdk/include/frt" / name).read_text(encoding="utf-8")
                     for name in ("base.h", "observation.h")]


class Declarations(unittest.TestCase):
    def test_every_struct_has_the_layout_of_its_header(self):
        layouts = {}
        for text in HEADERS:
            for name, size, last, offset in re.findall(
                    r"FRT_ASSERT_LAYOUT\((\w+),\s*(\d+),\s*(\w+),\s*(\d+)\)", text):
                layouts[name] = (int(size), last, int(offset))
        compared = 0
        for name, declared in vars(_library).items():
            if not (isinstance(declared, type) and issubclass(declared, ctypes.Structure) and name.startswith("frt_")):
                continue
            size, last, offset = layouts[name]
            self.assertEqual(ctypes.sizeof(declared), size, name)
            self.assertEqual(declared._fields_[-1][0], last, name)
            self.assertEqual(getattr(declared, last).offset, offset, name)
            compared += 1
        self.assertEqual(compared, len(re.findall(r"FRT_ASSERT_LAYOUT\(", EMBED)) + 3)

    def test_every_function_is_declared_with_as_many_arguments(self):
        text = re.sub(r"/\*.*?\*/", "", EMBED, flags=re.S)
        functions = dict(re.findall(r"FRT_EMBED_API frt_status (\w+)\(([^;]*)\);", text))
        self.assertEqual(set(functions), set(_library.FUNCTIONS) | set(_library.CLOSING))
        for name, arguments in _library.FUNCTIONS.items():
            self.assertEqual(functions[name].count(",") + 1, len(arguments) + 1, name)
            self.assertIn("frt_error* error", functions[name])
        for name in _library.CLOSING:
            self.assertNotIn(",", functions[name])

    def test_every_status_is_there(self):
        codes = {"OK": 0, **{name: int(code) for name, code in
                             re.findall(r"#define FRT_ERR_(\w+) \((-\d+)\)", HEADERS[1])}}
        self.assertEqual({status.name: status.value for status in frt.Status}, codes)
        self.assertIsInstance(_errors.error_of(-8, "x"), LookupError)
        self.assertEqual(_errors.error_of(-999, "x").status, frt.Status.INTERNAL)

    def test_where_the_library_may_be(self):
        with unittest.mock.patch.dict(os.environ, clear=True), \
                unittest.mock.patch.object(_library, "__file__", "/app/frt/_library.py"):
            self.assertEqual(_library._places(), [_library.SONAME])    # a package just below the root
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, clear=True):
            package = pathlib.Path(folder) / "lib/python3/dist-packages/frt"
            package.mkdir(parents=True)
            (pathlib.Path(folder) / "lib" / _library.SONAME).touch()
            with unittest.mock.patch.object(_library, "__file__", str(package / "_library.py")):
                self.assertEqual(_library._places(), [f"{folder}/lib/{_library.SONAME}", _library.SONAME])

    def test_the_library_says_its_version(self):
        major, minor = (re.search(rf"FRT_EMBED_{part} (\d+)", EMBED).group(1) for part in ("MAJOR", "MINOR"))
        self.assertEqual(frt.versions()["embed"], f"{major}.{minor}")
        self.assertEqual(_library.SONAME, f"libfrt.so.{major}.{minor}")
        self.assertEqual(frt.library_path(), os.environ["FRT_LIBRARY"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
