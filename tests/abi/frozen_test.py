# SPDX-License-Identifier: Apache-2.0
"""While the ABI is a draft (0.x), its newest frozen headers are today's, but for comments and layout."""
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TODAY = HERE.parent.parent / "sdk/include"
# What may hold a comment's mark comes first: it is kept.
PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*|\\\n', re.DOTALL)


def code(path):
    """The tokens of a header, one space between them; a directive keeps its line."""
    text = PARTS.sub(lambda part: part[0] if part[0][0] in "\"'" else " ", path.read_text(encoding="utf-8"))
    lines = [" ".join(line.split()) for line in text.split("\n")]
    directives = [line for line in lines if line.startswith("#")]
    rest = " ".join(line for line in lines if line and not line.startswith("#"))
    return directives, re.sub(r" ?([^\w\s]) ?", r"\1", rest)


def headers(root):
    return {str(path.relative_to(root)): path for path in sorted(root.rglob("*.h"))
            if "draft" not in path.relative_to(root).parts}


def differences(frozen, today):
    """A line for each header that is not the same in both folders."""
    old, new = headers(frozen), headers(today)
    for name in sorted(old | new):
        if name not in new:
            yield f"{name} is frozen and no longer there"
        elif name not in old:
            yield f"{name} is new"
        elif code(old[name]) != code(new[name]):
            yield f"{name} has changed"


def check_that_a_change_is_found():
    """Of two small folders, so that the check below is known to be able to fail."""
    texts = {
        "frozen": {"same.h": "int a; /* 1 */\n", "other.h": "int b;\n", "gone.h": "int c;\n", "draft/d.h": "int d;\n"},
        "today": {"same.h": "int  a;  // 2\n", "other.h": "long b;\n", "new.h": "int e;\n", "draft/d.h": "long d;\n"}}
    with tempfile.TemporaryDirectory() as folder:
        for root, headers_of_root in texts.items():
            for name, text in headers_of_root.items():
                path = pathlib.Path(folder) / root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        found = list(differences(pathlib.Path(folder) / "frozen", pathlib.Path(folder) / "today"))
    assert found == ["gone.h is frozen and no longer there", "new.h is new", "other.h has changed"], found


def main():
    check_that_a_change_is_found()
    base = (TODAY / "frt/base.h").read_text(encoding="utf-8")
    major, minor = (re.search(rf"^#define FRT_ABI_{name} (\d+)$", base, re.MULTILINE)[1] for name in ("MAJOR", "MINOR"))
    found = list(differences(HERE / f"v{major}_{minor}", TODAY))
    for line in found:
        print(line)
    if found:
        sys.exit(f"the frozen headers of {major}.{minor} are not today's; run tests/abi/freeze")


if __name__ == "__main__":
    main()
