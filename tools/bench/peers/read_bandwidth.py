#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The device memory's bandwidth: a read-only stream (a sum over large buffers) and a copy (bytes
read and written), of sizes around those of a weight matrix and far larger."""

import argparse

import torch

from peer import median, milliseconds, print_header


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[64, 180, 360, 1024, 4096])
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    print_header(arguments)
    for megabytes in arguments.megabytes:
        count = max(2, 8192 // megabytes)  # buffers, so that the cache does not help
        size = megabytes << 20
        buffers = [torch.randint(0, 1 << 30, (size // 4,), dtype=torch.int32, device="cuda")
                   for _ in range(count)]
        target = torch.empty_like(buffers[0])
        floats = [buffer.view(torch.float32) for buffer in buffers]

        def read():
            for one in floats:
                torch.amax(one)

        def copy():
            for one in buffers:
                target.copy_(one)

        read_time = median(milliseconds(read, arguments.runs, 1)) / count
        copy_time = median(milliseconds(copy, arguments.runs, 1)) / count
        print(f"{megabytes:5d} MiB: read {size / read_time / 1e9:.2f} TB/s "
              f"({1e3 * read_time:.1f} us), copy {2 * size / copy_time / 1e9:.2f} TB/s")
        del buffers, floats, target
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
