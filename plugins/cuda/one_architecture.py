#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Leaves a plugin the device code of one architecture.

    one_architecture.py <90> <plugin.so>

A quick build (FRT_CUDA_FAST_COMPILE) compiles every source once, for all architectures; this takes the others' code out
of each plugin. What nvcc embeds is a container for each source: 0xBA55ED50, version 1, the size of this header (16) and
that of all entries; then entries, each with its kind (2 bytes: 1 PTX, 2 machine code), the sizes of its header (at 4)
and of its content (at 8), and its architecture (at 28). (Read from what nvcc 13.0 writes; the format is not documented.)
The entries that stay move to the front of their container. A container without machine code of the architecture is an
error.
"""
import mmap
import struct
import sys

MAGIC = b"\x50\xED\x55\xBA"
HEADER = 16
MACHINE_CODE = 2


def entries(image, begin, end):
    while begin < end:
        (kind,) = struct.unpack_from("<H", image, begin)
        header, content = struct.unpack_from("<IQ", image, begin + 4)
        (architecture,) = struct.unpack_from("<I", image, begin + 28)
        if header < 32 or begin + header + content > end:
            raise ValueError(f"the entry at {begin} is longer than its container")
        yield kind, architecture, begin, begin + header + content
        begin += header + content


def keep(image, architecture):
    containers = 0
    at = image.find(MAGIC)
    while at >= 0:
        version, header, size = struct.unpack_from("<HHQ", image, at + 4)
        begin, end = at + HEADER, at + HEADER + size
        if version != 1 or header != HEADER or end > len(image):
            at = image.find(MAGIC, at + 1)
            continue
        own = [one for one in entries(image, begin, end) if one[1] == architecture]
        if not any(kind == MACHINE_CODE for kind, *_ in own):
            raise ValueError(f"the container at {at} has no machine code of architecture {architecture}")
        kept = b"".join(image[first:last] for _, _, first, last in own)
        image[begin:end] = kept.ljust(size, b"\0")
        struct.pack_into("<Q", image, at + 8, len(kept))
        containers += 1
        at = image.find(MAGIC, end)
    if containers == 0:
        raise ValueError("no device code was found")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    path = sys.argv[2]
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as image:
        try:
            keep(image, int(sys.argv[1]))
        except ValueError as error:
            sys.exit(f"{path}: {error}")


if __name__ == "__main__":
    main()
