# SPDX-License-Identifier: Apache-2.0
"""Capsule files as a stranger puts them together: what he likes, under digests that are right
(core/src/capsule/FILE_FORMAT.md)."""
import hashlib
import json
import struct

HEADER = struct.Struct("<8sIIQQQQQQ")  # magic, version, flags, file, manifest, metadata, payload at, payload, chunk
CHUNK = 4 << 20


class ForgedCapsule:
    """A file in parts that may be changed. `header`: index of a field -> what is there instead of the truth."""

    def __init__(self, data):
        fields = HEADER.unpack_from(data)
        manifest, metadata, at, payload = fields[4:8]
        self.manifest = json.loads(data[HEADER.size:HEADER.size + manifest])
        self.metadata = data[HEADER.size + manifest:HEADER.size + manifest + metadata]
        self.payload = data[at:at + payload]
        self.header = {}

    def bytes(self):
        self.manifest["metadata"] = {"bytes": len(self.metadata), "sha256": hashlib.sha256(self.metadata).hexdigest()}
        manifest = json.dumps(self.manifest, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
        digests = b"".join(hashlib.sha256(self.payload[i:i + CHUNK]).digest()
                           for i in range(0, len(self.payload), CHUNK))
        at = -(-(HEADER.size + len(manifest) + len(self.metadata)) // 4096) * 4096
        fields = [b"\x89FRTCAP\n", 1, 0, at + len(self.payload) + len(digests) + 40, len(manifest), len(self.metadata),
                  at, len(self.payload), CHUNK]
        for index, value in self.header.items():
            fields[index] = value
        head = HEADER.pack(*fields) + manifest + self.metadata
        root = hashlib.sha256(head + digests).digest()
        return head.ljust(at, b"\0") + self.payload + digests + root + b"FRTCAPS\n"
