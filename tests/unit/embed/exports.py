# SPDX-License-Identifier: Apache-2.0
"""exports.py NM LIBRARY HEADER: libfrt.so exports the functions of frt/embed.h, and nothing else."""
import re
import subprocess
import sys

nm, library, header = sys.argv[1:]
text = re.sub(r"/\*.*?\*/", "", open(header, encoding="utf-8").read(), flags=re.S)
declared = set(re.findall(r"\b(frt_\w+)\(", "".join(re.findall(r"FRT_EMBED_API[^;]*;", text))))
table = subprocess.run([nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
exported = {line.split()[-1].split("@")[0] for line in table.splitlines() if line.split()[-2] not in "A"}
assert len(declared) > 30, f"the header declares {len(declared)} functions"
assert exported == declared, f"only declared: {declared - exported}; only exported: {exported - declared}"
