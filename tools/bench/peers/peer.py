# SPDX-License-Identifier: Apache-2.0
"""What the peer measurements share: the models' shapes, timing, and a header that says where."""

import json
import math
import sys
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Linear:
    """A weight (outputs, inputs)."""

    name: str
    outputs: int
    inputs: int


@dataclass(frozen=True)
class Model:
    """Layers in a period of four: three delta nets, one attention."""

    name: str
    layers: int
    hidden: int
    delta: tuple
    attention: tuple
    ffn: tuple
    vocabulary: int
    experts: int = 0  # per layer; 0: dense
    chosen: int = 0
    expert_width: int = 0

    def layer(self, index):
        mixer = self.attention if index % 4 == 3 else self.delta
        return mixer + self.ffn


def _linears(**sizes):
    return tuple(Linear(name, *size) for name, size in sizes.items())


MODELS = {
    "27b": Model(
        name="27B dense",
        layers=64,
        hidden=5120,
        delta=_linears(qkv=(10240, 5120), z=(6144, 5120), b=(48, 5120), a=(48, 5120),
                       out=(5120, 6144)),
        attention=_linears(q=(12288, 5120), k=(1024, 5120), v=(1024, 5120),
                           o=(5120, 6144)),
        ffn=_linears(gate=(17408, 5120), up=(17408, 5120), down=(5120, 17408)),
        vocabulary=248320,
    ),
    "35b-a3b": Model(
        name="35B-A3B",
        layers=40,
        hidden=2048,
        delta=_linears(qkv=(8192, 2048), z=(4096, 2048), b=(32, 2048), a=(32, 2048),
                       out=(2048, 4096)),
        attention=_linears(q=(8192, 2048), k=(512, 2048), v=(512, 2048), o=(2048, 4096)),
        ffn=_linears(router=(256, 2048), shared_gate=(512, 2048), shared_up=(512, 2048),
                     shared_down=(2048, 512), shared_scale=(1, 2048)),
        vocabulary=248320,
        experts=256,
        chosen=8,
        expert_width=512,
    ),
}


def print_header(arguments):
    """Machine, versions, arguments: what a number means nothing without."""
    properties = torch.cuda.get_device_properties(0)
    print(f"{properties.name}, {properties.multi_processor_count} multiprocessors, "
          f"{properties.total_memory / 1e9:.0f} GB; torch {torch.__version__}, "
          f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
          f"Python {sys.version.split()[0]}")
    print("arguments: " + json.dumps(vars(arguments), sort_keys=True))


def milliseconds(work, runs, repeats):
    """`runs` samples of the time of one work(), each over `repeats` of them, by events."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    samples = []
    for _ in range(runs):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            work()
        stop.record()
        stop.synchronize()
        samples.append(start.elapsed_time(stop) / repeats)
    return samples


def median(samples):
    ordered = sorted(samples)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile_99(samples):
    """The smallest sample that 99 % of them do not exceed: with few samples, the largest."""
    ordered = sorted(samples)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def captured(work):
    """work() as a CUDA graph; calling the result replays it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay
