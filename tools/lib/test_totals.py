#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up `ctest --verbose` logs: cases where a test is a doctest binary or a unittest script, else
one per test.

Prints a line for each failed test, "failed: STAGE TEST: the cases of it that failed", and last "N passed, N failed,
N skipped". A stage that failed without a failing test (a build error, a format error) counts as one failure, so the
totals cannot look green; a stage that was left out counts as one skipped. With --failures: prints the output of
failing tests instead.
"""
import argparse
import pathlib
import re
import sys

RESULT = re.compile(r"^\s*\d+/\d+ Test\s+#(\d+): (\S+) \.+\s*(\*\*\*)?(.*?)\s+[\d.]+ sec")
CASES = re.compile(r"\[doctest\] test cases:\s+(\d+)\s*\|\s+(\d+) passed\s*\|\s+(\d+) failed\s*\|\s+(\d+) skipped")
RAN = re.compile(r"^Ran (\d+) tests? in ")
ENDED = re.compile(r"^(OK|FAILED)(?: \((.*)\))?$")
LINE = re.compile(r"^(\d+): (.*)$")
# What failed: of a doctest binary, of a unittest script, of frt-plugin-check.
DOCTEST_CASE = re.compile(r"^TEST CASE:\s+(.*)$")
DOCTEST_ERROR = re.compile(r"(?:^|: )(?:FATAL )?ERROR: |^Should have failed|^Failed exactly")
UNITTEST_CASE = re.compile(r"^(?:FAIL|ERROR): (\w+) \(")
CHECKED_CASE = re.compile(r"^(?:FAIL|CRASH|HANG) +(\S.*?)(?:  |$)")
MOST_CASES = 8  # named of one test


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
                verdict = "failed" if verdict == "failed" else f"failed ({verdict})"
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


def failed_cases(lines):
    """The names of the cases that failed, each once, in order."""
    found = {}
    case = None
    for line in lines:
        if match := DOCTEST_CASE.match(line):
            case = match[1].strip()
        elif match := UNITTEST_CASE.match(line) or CHECKED_CASE.match(line):
            found[match[1]] = None
        elif case and DOCTEST_ERROR.search(line):
            found[case] = None
    return list(found)


def failure(stage, name, verdict, lines):
    """The line of a failed test; its verdict where no case is to blame: a timeout, a crash."""
    cases = failed_cases(lines) or [verdict]
    more = len(cases) - MOST_CASES
    return f"failed: {stage} {name}: " + "; ".join(cases[:MOST_CASES]) + (f"; and {more} more" if more > 0 else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failures", action="store_true")
    parser.add_argument("--stages-failed", type=int, default=0)
    parser.add_argument("--stages-skipped", type=int, default=0)
    parser.add_argument("logs", nargs="*")
    arguments = parser.parse_args()
    passed = failed = skipped = 0
    failures = []
    for path in arguments.logs:
        for name, verdict, lines in read(path):
            if arguments.failures:
                if verdict.startswith("failed"):
                    print(f"--- {name}", *lines[-80:], sep="\n")
                continue
            cases = [CASES.search(line) for line in lines]
            cases = [match for match in cases if match]
            script = unittest_counts(lines)
            before = failed
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
            if failed > before:
                failures.append(failure(pathlib.Path(path).stem, name, verdict, lines))
    if not arguments.failures:
        failed = max(failed, arguments.stages_failed)
        skipped += arguments.stages_skipped
        for line in failures:
            print(line)
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed and not arguments.failures else 0


if __name__ == "__main__":
    sys.exit(main())
