#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a test program on the device that `backend = "auto"` takes on this machine.

    on_device.py <frt-host> <program> [arguments...]

The program finds the backend's id in FRT_TEST_BACKEND; {plugin} in an argument becomes the path of
its file. Without a device the exit status is 77, skipped, or 1 where FRT_DEVICE_REQUIRED says that there is one.
"""
import json
import os
import subprocess
import sys

SKIPPED = 77


def ask(host, *arguments):
    result = subprocess.run([host, *arguments, "--json"], capture_output=True, text=True)
    if result.returncode != 0:  # a host that ends badly has not looked for a device
        sys.exit(f"`{host} {' '.join(arguments)}` ended with {result.returncode}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def main():
    host, program, *arguments = sys.argv[1:]
    automatic = ask(host, "devices").get("auto", {})
    if not automatic.get("backend"):
        reason = automatic.get("reason", "no device").splitlines()[0]
        if os.environ.get("FRT_DEVICE_REQUIRED"):  # tools/test --device
            sys.exit(f"there should be a device: {reason}")
        print("skipped:", reason)
        return SKIPPED
    backend = automatic["backend"]
    plugin = next(row["path"] for row in ask(host, "plugins", "ls")["plugins"]
                  if row["id"] == backend and row["state"] == "usable")
    print(f"on {backend}, {plugin}", flush=True)
    return subprocess.run([program, *(argument.replace("{plugin}", plugin)
                                      for argument in arguments)],
                          env={**os.environ, "FRT_TEST_BACKEND": backend}).returncode


if __name__ == "__main__":
    sys.exit(main())
