# SPDX-License-Identifier: Apache-2.0
"""While the ABI is a draft (0.x), its newest frozen headers are today's, but for comments and layout."""
import pathlib
import re
import sys

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


def main():
    base = (TODAY / "frt/base.h").read_text(encoding="utf-8")
    major, minor = (re.search(rf"^#define FRT_ABI_{name} (\d+)$", base, re.MULTILINE)[1] for name in ("MAJOR", "MINOR"))
    found = list(differences(HERE / f"v{major}_{minor}", TODAY))
    for line in found:
        print(line)
    if found:
        sys.exit(f"the frozen headers of {major}.{minor} are not today's; run tests/abi/freeze")


if __name__ == "__main__":
    main()
