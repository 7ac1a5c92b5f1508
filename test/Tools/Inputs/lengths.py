# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What tests of runs of several lengths ask of them.

"""lengths.py of RUN; lengths.py state RUN RUN"""

import json
import sys
from pathlib import Path

import runs


def of(run):
    lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    print("length:", *(line["length"] for line in lines if "length" in line))
    print(", ".join(f"{key}: {sum(key in line for line in lines)}"
                    for key in ("held_out", "held_out_16", "held_out_24")))


def state(first, second):
    """Compares the newest checkpoints of two runs, tensor by tensor."""
    files = [runs.checkpoints(Path(run))[-1].read_bytes() for run in (first, second)]
    tensors = []
    for data in files:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + size])
        offsets = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
        tensors.append({name: data[8 + size + a:8 + size + b] for name, (a, b) in offsets.items()})
    equal = sum(tensors[0][name] == tensors[1].get(name) for name in tensors[0])
    print(f"{len(tensors[0])} tensors, {equal} equal")


{"of": of, "state": state}[sys.argv[1]](*sys.argv[2:])
