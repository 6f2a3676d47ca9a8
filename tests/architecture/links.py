# SPDX-License-Identifier: Apache-2.0
"""Every link of every page of the tree leads to a file or a heading that is there, and so does every page that a page or
a comment names.

A page is a .md file of the root or of a top folder. A link is relative to its page; an address (https:) is not looked at.
A name of a page (`hosts/README.md`, `CHECKING.md`) is relative to the file that names it or to a folder above it. A source
file that a page names in backquotes (`engine/thread.cpp`, `src/weights.*`) is the end of the path of a file. Notes are history,
and fixtures speak of files of others: what these name is not looked at. Code blocks of a page are not looked at."""
import os
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOPS = ("cmake", "core", "hosts", "models", "plugins", "sdk", "tests", "tools")
SOURCES = {".c", ".cc", ".cmake", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".py", ".txt"}
OTHERS = {".js", ".json", ".toml"}
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.M | re.S)
CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"\[[^\]]*\]\(\s*([^)\s]+)[^)]*\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.M)
NAMED = re.compile(r"(?<![\w:/.*<-])((?:[\w.-]+/)*[A-Za-z0-9_-]+\.md)\b")
SOURCE_NAME = re.compile(r"[\w./-]+\.(?:c|cmake|cpp|cu|cuh|h|hpp|js|py|toml|\*)")
# Pages that are not of this tree: of the installed SDK, and what a test invents.
ELSEWHERE = {"CAPSULE_FORMAT.md", "lost.md", "gone.md"}
INSTALLED = "share/"    # of a prefix: installed_documents.py looks for these


def files(root, endings):
    for top in (root, *(root / name for name in TOPS)):
        walk = [(root, [], os.listdir(root))] if top == root else os.walk(top)
        for folder, folders, names in walk:
            folders[:] = [name for name in folders if not name.startswith((".", "build", "__pycache__"))]
            for name in sorted(names):
                path = pathlib.Path(folder) / name
                if path.suffix in endings and path.is_file():
                    yield path


def anchors(text):
    """Of the headings, as GitHub makes them: small letters, without punctuation, a hyphen for a space."""
    found = {}
    for title in HEADING.findall(FENCE.sub("", text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        anchor = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        count = found.get(anchor, -1) + 1
        found[anchor] = count
        if count:
            found[f"{anchor}-{count}"] = 0
    return set(found)


def broken_link(page, link):
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return True
    return bool(anchor) and (target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8")))


def missing_page(root, path, name):
    if pathlib.Path(name).name in ELSEWHERE or name.startswith(INSTALLED):
        return False
    folder = path.parent
    while True:
        if (folder / name).exists():
            return False
        if folder == root:
            return True
        folder = folder.parent


def missing_sources(root, page, text, paths):
    where = page.relative_to(root).parts
    if "notes" in where or "fixtures" in where or page.name == "CHANGELOG.md":
        return []
    names = {code for _, code in CODE.findall(text)
             if SOURCE_NAME.fullmatch(code) and not code.startswith(INSTALLED)}
    return [name for name in sorted(names) if "/" + name.removeprefix("../").removesuffix("*") not in paths]


def ends_of(path):
    """Every name that a page may call the file by: with and without folders, with and without its ending."""
    parts = pathlib.Path(path).parts
    for first in range(len(parts)):
        name = "/".join(parts[first:])
        yield "/" + name
        yield "/" + name.removesuffix(pathlib.Path(name).suffix) + "."


def problems(root):
    found = []
    paths = {end for path in files(root, SOURCES | OTHERS) for end in ends_of(path.relative_to(root))}
    for page in files(root, {".md"}):
        text = FENCE.sub("", page.read_text(encoding="utf-8"))
        prose = CODE.sub("", text)
        found += [f"{page.relative_to(root)}: {link}" for link in LINK.findall(prose) if broken_link(page, link)]
        found += [f"{page.relative_to(root)}: {name}" for name in NAMED.findall(LINK.sub("", text))
                  if page.name != "CHANGELOG.md" and missing_page(root, page, name)]
        found += [f"{page.relative_to(root)}: {name}" for name in missing_sources(root, page, text, paths)]
    for source in files(root, SOURCES):
        if source == pathlib.Path(__file__).resolve():
            continue
        text = source.read_text(encoding="utf-8", errors="replace")
        comments = "\n".join(re.findall(r"(?://|#|^ ?\*|/\*|\"\"\").*", text, re.M))
        found += [f"{source.relative_to(root)}: {name}" for name in NAMED.findall(comments)
                  if missing_page(root, source, name)]
    return found


class Links(unittest.TestCase):
    def test_every_link_and_every_page_that_is_named_is_there(self):
        self.assertGreater(len(list(files(ROOT, {".md"}))), 50)
        self.assertEqual(problems(ROOT), [])

    def test_what_leads_nowhere_is_found(self):
        with tempfile.TemporaryDirectory(prefix="frt-links-") as folder:
            root = pathlib.Path(folder)
            (root / "hosts/lm").mkdir(parents=True)
            (root / "README.md").write_text(
                "# A: `b`, c\n\n## Twice\n## Twice\n[a](#a-b-c) [b](#twice-1) [c](hosts/lm) [d](https://x.example/no.md) `[e](no)`\n"
                "[f](#a) [g](hosts/no) [h](hosts/lm/PAGE.md#two) [i](hosts/lm/PAGE.md#one)\n```\n[j](no)\n# No\n```\n[k](#no)\n")
            (root / "hosts/lm/PAGE.md").write_text("# One\nSee `README.md`, `PAGE.md` and `hosts/README.md`.\n`code.cpp`, "
                                                   "`lm/code.*`, `hosts/code.cpp`, `cod.*`\n")
            (root / "hosts/lm/code.cpp").write_text("// README.md, NONE.md\nopen(\"other.md\");\n")
            self.assertEqual(problems(root), [
                "README.md: #a", "README.md: hosts/no", "README.md: hosts/lm/PAGE.md#two", "README.md: #no",
                "hosts/lm/PAGE.md: hosts/README.md", "hosts/lm/PAGE.md: cod.*", "hosts/lm/PAGE.md: hosts/code.cpp",
                "hosts/lm/code.cpp: NONE.md"])


if __name__ == "__main__":
    sys.exit(unittest.main())
