#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up `ctest --verbose` logs: cases where a test is a doctest binary or a unittest script, else
one per test.

Prints "N passed, N failed, N skipped". A stage that failed without a failing test (a build error,
a format error) counts as one failure, so the totals cannot look green; a stage that was left out
counts as one skipped. With --failures: prints the
output of failing tests instead.
"""
import argparse
import re
import sys

RESULT = re.compile(r"^\s*\d+/\d+ Test\s+#(\d+): (\S+) \.+\s*(\*\*\*)?(.*?)\s+[\d.]+ sec")
CASES = re.compile(r"\[doctest\] test cases:\s+(\d+)\s*\|\s+(\d+) passed\s*\|\s+(\d+) failed\s*\|\s+(\d+) skipped")
RAN = re.compile(r"^Ran (\d+) tests? in ")
ENDED = re.compile(r"^(OK|FAILED)(?: \((.*)\))?$")
LINE = re.compile(r"^(\d+): (.*)$")


def read(path):
    """Yields (name, verdict, output lines) for each test of a log."""
    output = {}
    for line in open(path, encoding="utf-8", errors="replace"):
        line = line.rstrip("\n")
        match = LINE.match(line)
        if match:
            output.setdefault(match[1], []).append(match[2])
            continue
        match = RESULT.match(line)
        if match:
            verdict = "passed" if match[4].strip() == "Passed" else match[4].strip().lower()
            if match[3] and "skipped" not in verdict:
                verdict = "failed"
            yield match[2], verdict, output.pop(match[1], [])


def unittest_counts(lines):
    """(passed, failed, skipped) of a unittest script's output, or nothing."""
    ran = next((int(match[1]) for match in map(RAN.match, lines) if match), None)
    ended = next((match for match in map(ENDED.match, lines) if match), None)
    if ran is None or ended is None:
        return None
    counts = dict(part.split("=") for part in (ended[2] or "").split(", ") if part)
    failed = sum(int(counts.get(key, 0)) for key in ("failures", "errors", "unexpected successes"))
    skipped = int(counts.get("skipped", 0))
    return max(ran - failed - skipped, 0), failed, skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", action="store_true")
    parser.add_argument("--stages-failed", type=int, default=0)
    parser.add_argument("--stages-skipped", type=int, default=0)
    parser.add_argument("logs", nargs="*")
    arguments = parser.parse_args()
    passed = failed = skipped = 0
    for path in arguments.logs:
        for name, verdict, lines in read(path):
            if arguments.failures:
                if verdict == "failed":
                    print(f"--- {name}", *lines[-80:], sep="\n")
                continue
            cases = [CASES.search(line) for line in lines]
            cases = [match for match in cases if match]
            script = unittest_counts(lines)
            if "skipped" in verdict or verdict == "not run":
                skipped += 1
            elif cases:
                passed += sum(int(match[2]) for match in cases)
                bad = sum(int(match[3]) for match in cases)
                skipped += sum(int(match[4]) for match in cases)
                failed += bad if bad or verdict == "passed" else 1
            elif script:
                passed += script[0]
                failed += script[1] if script[1] or verdict == "passed" else 1
                skipped += script[2]
            elif verdict == "passed":
                passed += 1
            else:
                failed += 1
    if not arguments.failures:
        failed = max(failed, arguments.stages_failed)
        skipped += arguments.stages_skipped
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed and not arguments.failures else 0


if __name__ == "__main__":
    sys.exit(main())
