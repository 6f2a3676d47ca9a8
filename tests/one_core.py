# SPDX-License-Identifier: Apache-2.0
"""take(): keeps this test and what it starts on one core, where ctest shares out the cores (frt_pin_tests)."""
import fcntl
import os


def _lock(path):
    """A descriptor, or nothing where another test has it."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


def take():
    """FRT_TEST_CORES is a folder. A core is two places in it, files that are locked until their test ends. A test that
    computes takes both places of a core; one that mostly waits (FRT_TEST_SHARES_CORE) takes one, beside another such test
    where there is one. Where no core has what it takes, it stays on all."""
    folder = os.environ.get("FRT_TEST_CORES")
    if not folder:
        return
    needed = 1 if os.environ.get("FRT_TEST_SHARES_CORE") else 2
    with open(os.path.join(folder, "choosing"), "a", encoding="utf-8") as choosing:
        fcntl.flock(choosing, fcntl.LOCK_EX)  # one test at a time
        best, unused = None, []
        for core in sorted(os.sched_getaffinity(0)):
            places = [_lock(os.path.join(folder, f"{core}.{place}")) for place in (0, 1)]
            free = [place for place in places if place is not None]
            if len(free) >= needed and (best is None or len(free) < len(best[1])):
                unused += best[1] if best else []
                best = (core, free)
            else:
                unused += free
        if best:
            unused += best[1][needed:]  # the rest stays locked until this test ends
            os.sched_setaffinity(0, {best[0]})
        for place in unused:
            os.close(place)
