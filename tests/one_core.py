# SPDX-License-Identifier: Apache-2.0
"""take(): keeps this test and what it starts on one core, where ctest shares out the cores (frt_pin_tests)."""
import fcntl
import os

_held = None


def take():
    """A core that no other test has, until this one ends; the one that this runs on where all are taken, or for a test
    that mostly waits (FRT_TEST_CORES is `shared`)."""
    global _held
    folder = os.environ.get("FRT_TEST_CORES")
    if not folder:
        return
    if folder != "shared":
        for core in sorted(os.sched_getaffinity(0)):
            file = open(os.path.join(folder, str(core)), "a", encoding="utf-8")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                file.close()
                continue
            _held = file
            os.sched_setaffinity(0, {core})
            return
    with open("/proc/self/stat", encoding="utf-8") as stat:
        os.sched_setaffinity(0, {int(stat.read().rsplit(")", 1)[1].split()[36])})
