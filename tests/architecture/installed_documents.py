# SPDX-License-Identifier: Apache-2.0
"""Every path that a document of the installed SDK names is in the prefix, or is said to be in the source tree. Every function of a
class that it names is in an installed header or in a file beside it.

A document is a text under share/frt-sdk, a page of share/doc/frt-* or a comment of an installed header. A path is relative to the document, to
include, to include/frt, to share/frt-sdk or to the prefix. CHANGELOG.md is history, so it may name what is gone. Whoever reads "source tree" in the same paragraph knows where to look."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD, CMAKE = os.environ["FRT_BUILD"], os.environ["FRT_CMAKE"]
TOPS = "cmake|core|hosts|io|models|notes|plugins|python|sdk|share|template|templates|tests|tools"
ENDS = r"c|cpp|cu|cuh|h|hpp|json|md|py|so|toml|txt"
# Of the top folders of this tree or of the prefix, or a file in a folder that is not the reader's own (my-..., build); and a folder at
# the start of a line.
PATH = re.compile(rf"(?<![\w~/.$*<-])((?:{TOPS})/[\w.*/-]*\w|(?!my-|build/)(?:[\w-]+/)+[\w-]+\.(?:{ENDS})\b|[A-Z_]+\.md\b)")
FOLDER = re.compile(r"^([\w-]+)/(?:\s|$)", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def comments(text):
    """The comments of a C or C++ header, each with the lines that follow it in one."""
    text = re.sub(r"^\s*(?:///?|/\*|\*(?!/))", "", text, flags=re.MULTILINE)
    return "\n".join("" if line.lstrip().startswith("#include") else line for line in text.split("\n"))


def paragraphs(text):
    """Blocks that an empty line ends; a list's entries are blocks of their own."""
    return re.split(r"\n[ \t]*\n|\n(?=\* )", text)


def dead_ends(prefix):
    share = prefix / "share/frt-sdk"
    documents = [path for path in sorted(share.rglob("*")) if path.is_file() and path.name != "CHANGELOG.md"]
    documents += sorted((prefix / "share/doc").glob("frt-*/**/*.md"))
    headers = sorted((prefix / "include").rglob("*.h*"))
    found = []
    for path in documents + headers:
        text = path.read_text(encoding="utf-8")
        places = [path.parent, prefix / "include", prefix / "include/frt", share, prefix, *(prefix / "share/doc").glob("frt-*")]
        for paragraph in paragraphs(text if path.suffix == ".md" else comments(text)):
            if "source tree" in " ".join(paragraph.split()):
                continue
            named = PATH.findall(paragraph)
            if path.suffix == ".md":
                named += LINK.findall(paragraph) + FOLDER.findall(paragraph)
            for name in dict.fromkeys(named):
                there = any(next(place.glob(name), None) for place in places)
                if not there and not name.startswith("/"):
                    found.append(f"{path.relative_to(prefix)}: {name}")
    return found


def unknown_functions(prefix):
    """`Class::function` of a document, which nothing that is installed declares."""
    share = prefix / "share/frt-sdk"
    sources = [path for root in (share, prefix / "include") for path in sorted(root.rglob("*"))
               if path.suffix in (".c", ".cpp", ".h", ".hpp")]
    known = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    found = []
    for path in sorted(share.rglob("*.md")):
        if path.name == "CHANGELOG.md":
            continue
        for owner, function in re.findall(r"`(?:\w+::)*([A-Z]\w*)::(\w+)", path.read_text(encoding="utf-8")):
            if not (re.search(rf"\b{owner}\b", known) and re.search(rf"\b{function}\(", known)):
                found.append(f"{path.relative_to(prefix)}: {owner}::{function}")
    return found


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="frt-documents-")
        self.addCleanup(folder.cleanup)
        self.prefix = pathlib.Path(folder.name)

    def test_the_installed_documents_have_no_dead_ends(self):
        for component in ("sdk", "runtime", "python"):
            subprocess.run([CMAKE, "--install", BUILD, "--component", component, "--prefix", str(self.prefix)],
                           check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(dead_ends(self.prefix), [])
        self.assertEqual(unknown_functions(self.prefix), [])
        self.assertTrue((self.prefix / "share/frt-sdk/README.md").exists())

    def test_a_dead_end_is_found(self):
        share, include = self.prefix / "share/frt-sdk", self.prefix / "include/frt"
        share.mkdir(parents=True)
        include.mkdir(parents=True)
        (include / "there.h").write_text("/* See core/src/lost.md. */\n#include <frt/none.h>\n")
        (share / "README.md").write_text("`frt/there.h`, [a](gone.md)\n\nlost/   a folder\n\n* tests/x\n* tests/y of the "
                                         "source\n  tree\n")
        self.assertEqual(dead_ends(self.prefix),
                         ["share/frt-sdk/README.md: gone.md", "share/frt-sdk/README.md: lost",
                          "share/frt-sdk/README.md: tests/x", "include/frt/there.h: core/src/lost.md"])

    def test_a_function_that_nothing_installed_has_is_found(self):
        share, include = self.prefix / "share/frt-sdk", self.prefix / "include/frt"
        share.mkdir(parents=True)
        include.mkdir(parents=True)
        (include / "there.hpp").write_text("class Stream { void submit(); };\n")
        (share / "README.md").write_text("`Stream::submit()`, `frt::Stream::lose`, `Watch::submit()`\n")
        self.assertEqual(unknown_functions(self.prefix),
                         ["share/frt-sdk/README.md: Stream::lose", "share/frt-sdk/README.md: Watch::submit"])

    def test_enlarge_works_from_the_prefix(self):
        subprocess.run([CMAKE, "--install", BUILD, "--component", "sdk", "--prefix", str(self.prefix)], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([str(self.prefix / "share/frt-sdk/enlarge"), str(self.prefix / "grown")], check=True)
        self.assertIn("uint64_t grown[4];", (self.prefix / "grown/frt/model.h").read_text())


if __name__ == "__main__":
    sys.exit(unittest.main())
