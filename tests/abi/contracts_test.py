# SPDX-License-Identifier: Apache-2.0
"""The contract of a growable struct ends with the last member that is not marked `since`: the first version
that VERSIONING.md speaks of is the one that frt/contracts.hpp and frt/role/contracts.hpp hold."""
import pathlib
import re
import sys

HEADERS = pathlib.Path(__file__).resolve().parent.parent.parent / "sdk/include/frt"
STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\n\} \1;", re.DOTALL)
CONTRACT = re.compile(r"FRT_CONTRACT\((\w+),\s*[^,]*?,\s*(\w+)[,)]")
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


def main():
    assert last_of_first_version(" int a; /* x */\n frt_status (*b)(int c); /* since 0.10 */\n int d;") == "a"
    structs = {name: body for path in HEADERS.rglob("*.h")
               for name, body in STRUCT.findall(path.read_text(encoding="utf-8"))}
    contracts = {name: last for path in (HEADERS / "contracts.hpp", HEADERS / "role/contracts.hpp")
                 for name, last in CONTRACT.findall(path.read_text(encoding="utf-8"))}
    problems = [f"{name}: its contract ends at {last}, its first version at {last_of_first_version(structs[name])}"
                for name, last in contracts.items() if last_of_first_version(structs[name]) != last]
    if len(contracts) < 30:
        problems.append(f"only {len(contracts)} contracts were found")
    print("\n".join(problems) or f"{len(contracts)} contracts hold the first version of their structs")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
