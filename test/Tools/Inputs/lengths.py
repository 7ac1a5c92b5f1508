# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What tests of runs of several lengths ask of them.

"""lengths.py of RUN; lengths.py state RUN RUN"""

import json
import sys
from pathlib import Path

import runs
import tensor_file


def of(run):
    lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    print("length:", *(line["length"] for line in lines if "length" in line))
    print(", ".join(f"{key}: {sum(key in line for line in lines)}"
                    for key in ("held_out", "held_out_16", "held_out_24")))


def state(first, second):
    """Compares the newest checkpoints of two runs, tensor by tensor."""
    tensors = [tensor_file.read(runs.checkpoints(Path(run))[-1])[0] for run in (first, second)]
    equal = sum(tensors[0][name] == tensors[1].get(name) for name in tensors[0])
    print(f"{len(tensors[0])} tensors, {equal} equal")


{"of": of, "state": state}[sys.argv[1]](*sys.argv[2:])
