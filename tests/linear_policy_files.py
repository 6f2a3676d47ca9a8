# SPDX-License-Identifier: Apache-2.0
"""The files of the test plugin test.linear_policy (tests/robot/linear_policy.cpp): its checkpoint and its manifest."""
import json
import struct

# The model p, up to its options; the checkpoint is that of save_policy() in the manifest's folder.
MANIFEST = """schema = 1
[device.cpu0]
backend = "frt.cpu"
[device.cpu0.options]
threads = 1
[model.p]
plugin = "test.linear_policy"
device = "cpu0"
checkpoint = "policy.safetensors"
[model.p.options]
"""


def save_header(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def save_tensors(path, tensors, metadata=None):
    """safetensors, f32: name -> (shape, values)."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (shape, values) in tensors.items():
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    save_header(path, header, data)


def save_policy(folder, values, weight, prompts):
    """A policy whose chunks have so many values: weight (values, state), prompts (instructions, values), both flat."""
    save_tensors(folder / "policy.safetensors", {"weight": ([values, len(weight) // values], weight),
                                                 "prompts": ([len(prompts) // values, values], prompts)})
