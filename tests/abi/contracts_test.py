# SPDX-License-Identifier: Apache-2.0
"""frt/contracts.hpp and frt/role/contracts.hpp hold what the C headers say of growable structs: a contract ends
with the last member that is not marked `since`, and requires the functions and pointers of which no comment
says that they may be NULL (`NULL`, `optional`)."""
import pathlib
import re
import sys

HEADERS = pathlib.Path(__file__).resolve().parent.parent.parent / "sdk/include/frt"
STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\n\} \1;", re.DOTALL)
CONTRACT = re.compile(r"FRT_CONTRACT\((\w+),\s*[^,]*?,\s*(\w+)[,)]")
REQUIRED = re.compile(r"FRT_REQUIRED\((\w+),\s*(\w+)\)")
OPTIONAL = re.compile(r"\bNULL\b|\b[Oo]ptional\b")
MEMBER = re.compile(r"((?:[^;/]|/(?!\*)|/\*.*?\*/)*?);([^\n;]*/\*.*?\*/)?", re.DOTALL)


def name_of(declaration):
    function = re.search(r"\(\*(\w+)\)", declaration)
    if function:
        return function[1]
    return re.sub(r"\[.*?\]", "", declaration.split(",")[-1]).split()[-1].lstrip("*")


def last_of_first_version(body):
    """The last member in front of the first whose comment, before or behind it, says `since`."""
    last = None
    for declaration, behind in MEMBER.findall(body):
        if re.search(r"\bsince \d+\.\d+", declaration + behind):
            break
        last = name_of(re.sub(r"/\*.*?\*/", "", declaration, flags=re.DOTALL))
    return last


def pointers(body):
    """The functions and pointers among the members, and whether a comment says that they may be NULL."""
    for declaration, behind in MEMBER.findall(body):
        bare = re.sub(r"/\*.*?\*/", "", declaration, flags=re.DOTALL)
        if "*" in bare:
            yield name_of(bare), bool(OPTIONAL.search("".join(re.findall(r"/\*.*?\*/", declaration, re.DOTALL)) + behind))


def main():
    assert last_of_first_version(" int a; /* x */\n frt_status (*b)(int c); /* since 0.10 */\n int d;") == "a"
    structs = {name: body for path in HEADERS.rglob("*.h")
               for name, body in STRUCT.findall(path.read_text(encoding="utf-8"))}
    contracts = {name: last for path in (HEADERS / "contracts.hpp", HEADERS / "role/contracts.hpp")
                 for name, last in CONTRACT.findall(path.read_text(encoding="utf-8"))}
    problems = [f"{name}: its contract ends at {last}, its first version at {last_of_first_version(structs[name])}"
                for name, last in contracts.items() if last_of_first_version(structs[name]) != last]
    required = {pair for path in (HEADERS / "contracts.hpp", HEADERS / "role/contracts.hpp")
                for pair in REQUIRED.findall(path.read_text(encoding="utf-8"))}
    for name in contracts:
        for member, may_be_null in pointers(structs[name]):
            if not may_be_null and (name, member) not in required:
                problems.append(f"{name}::{member}: no contract requires it, no comment says that it may be NULL")
    if len(contracts) < 30:
        problems.append(f"only {len(contracts)} contracts were found")
    print("\n".join(problems) or f"{len(contracts)} contracts hold the first version of their structs")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
