# SPDX-License-Identifier: Apache-2.0
"""The reference of the headers: Doxygen makes it without a warning, and warns of what it should warn of."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["FRT_SOURCE"])
sys.path[:0] = [str(SOURCE / "sdk/reference"), str(SOURCE / "tests")]

import one_core  # noqa: E402
from comments import Filter  # noqa: E402

one_core.take()
DOXYGEN = os.environ["FRT_DOXYGEN"]
HEADERS = [path for folder in ("sdk/include", "hosts/embed/include") for path in sorted((SOURCE / folder).rglob("*.h*"))]
FILE = "/* SPDX-License-Identifier: Apache-2.0 */\n/*\n * frt/x.h - what it is.\n */\n"


def filtered(text):
    return Filter(FILE + text).run().removeprefix(Filter(FILE).run())


def reference(folder, header=None):
    """Doxygen's exit status and words, for the headers or for the text of one."""
    settings = pathlib.Path(os.environ["FRT_DOXYFILE"]).read_text() + f"\nOUTPUT_DIRECTORY = {folder}/out\n"
    if header is not None:
        (pathlib.Path(folder) / "x.h").write_text(FILE + header)
        settings += f"INPUT = {folder}/x.h\n"
    result = subprocess.run([DOXYGEN, "-"], input=settings, capture_output=True, text=True, timeout=500, cwd=folder)
    return result.returncode, result.stdout + result.stderr


class Comments(unittest.TestCase):
    def test_each_line_stays_where_it_is(self):
        self.assertGreater(len(HEADERS), 60)
        for header in HEADERS:
            with self.subTest(header.name):
                text = header.read_text(encoding="utf-8")
                made = Filter(text).run()
                self.assertEqual(made.count("\n"), text.count("\n"))
                self.assertTrue(made.startswith("/** @file\n"))
                code = re.compile(r"//[^\n]*|/\*.*?\*/|\s+", re.S)
                self.assertTrue(code.sub("", made) == code.sub("", text))

    def test_comments_describe_what_is_below_or_in_front_of_them(self):
        self.assertEqual(filtered("/* Does it. */\nint f(void); /* [any] */\n"),
                         "/** Does it. */\nint f(void); /**< [any] */\n")
        self.assertEqual(filtered("// Does it,\n// twice.\nint f();  // once\n          // more\nint g();\n"),
                         "/** Does it,\ntwice. */\nint f();  /**< once\nmore */\nint g();\n")
        self.assertEqual(filtered("struct S {  // not this\n  int a;  // this\n};\n"),
                         "struct S {  // not this\n  int a;  /**< this */\n};\n")

    def test_headings_guards_and_bodies_are_left_alone(self):
        for text in ("/* ---- a heading ---- */\n", "#endif /* FRT_X_H_ */\n", "inline int f() {\n  // in it\n  return 1;\n}\n",
                     "namespace a {\nvoid f() {\n  struct S { int a;  /* in it */ };\n}\n}  // namespace a\n",
                     'const char* s = "/* no comment */ // none";\n'):
            self.assertEqual(filtered(text), text)

    def test_indented_lines_stay_as_they_are(self):
        self.assertEqual(filtered("/* Sum:\n *\n *   a  <b>\n *   c\n *\n * And so on <c>. */\n"),
                         "/** Sum:\n @verbatim\n  a  <b>\n  c\n @endverbatim\nAnd so on \\<c\\>. */\n")

    def test_names_become_links_and_signs_stay_signs(self):
        self.assertEqual(filtered("/* frt_f, FRT_OK, frt::S::g(); a@b #c $FRT_HOME frt_*_x frt_cpu.so -- 5% */\n"),
                         "/** #frt_f, #FRT_OK, #frt::S::g(); a\\@b \\#c \\$FRT_HOME frt_*_x frt_cpu.so \\-- 5\\% */\n")


@unittest.skipUnless(DOXYGEN, "doxygen is not installed")
class Reference(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_the_headers_make_one_without_a_warning(self):
        status, said = reference(self.folder)
        self.assertEqual((status, said), (0, ""))
        html = pathlib.Path(self.folder) / "out/html"
        for page in ("index", "exec_8h", "structfrt__exec__v1", "structfrt__runtime__options", "classfrt_1_1Graph"):
            self.assertTrue((html / f"{page}.html").is_file(), page)
        self.assertIn("Packs four 16-bit fields.", (html / "exec_8h.html").read_text())

    def test_a_name_that_no_header_declares_is_an_error(self):
        sound = "/* Does it. */\nint frt_f(void);\n/* As frt_f. */\nint frt_g(void);\n"
        self.assertEqual(reference(self.folder, sound), (0, ""))
        status, said = reference(self.folder, sound.replace("As frt_f", "As frt_lost"))
        self.assertNotEqual(status, 0)
        self.assertIn("x.h:7", said)
        self.assertIn("frt_lost", said)


if __name__ == "__main__":
    unittest.main(verbosity=2)
