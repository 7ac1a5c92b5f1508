# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compares two runs of sparse-train that did the same on different devices.

    device_train.py RUN RUN [LOSSES [TENSORS]]

Losses are the same within LOSSES (1e-4), parameters and moments of the last checkpoints within TENSORS (1e-3) of
their largest entry, and patterns the same. A step whose plans are of an older pattern has moments a fifth away.
"""

import json
import sys
from pathlib import Path

import numpy as np
from runs import checkpoints
from tensor_file import read_arrays

folders = [Path(name) for name in sys.argv[1:3]]
given = [float(argument) for argument in sys.argv[3:]]
tolerance, distance = given + [1e-4, 1e-3][len(given):]


def losses(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return {(entry["step"], key): entry[key] for entry in map(json.loads, lines) for key in ("loss", "held_out") if key in entry}


a, b = map(losses, folders)
assert a.keys() == b.keys() and len(a) >= 3, (sorted(a), sorted(b))
worst = max(abs(a[key] - b[key]) for key in a)
assert worst <= tolerance, f"expected losses within {tolerance}, but got {worst}"

a, b = (read_arrays(checkpoints(folder)[-1]) for folder in folders)
assert a.keys() == b.keys()
patterns = [name for name in a if name.endswith((".row_ptr", ".col_idx", ".slot", ".ever", ".newest"))]
assert patterns
for name in patterns:
    assert np.array_equal(a[name], b[name]), f"expected the same {name}"
farthest, where = 0.0, ""
for name in a:
    if a[name].dtype == np.float32:
        x, y = (arrays[name].astype(np.float64) for arrays in (a, b))
        away = np.abs(x - y).max() / max(np.abs(x).max(), 1e-30) if x.size else 0.0
        if not away <= farthest:
            farthest, where = away, name
assert farthest <= distance, f"expected parameters and moments within {distance} of their largest entry, but got {farthest:.2g} in {where}"
print(f"{len(patterns)} arrays of patterns the same, losses within {worst:.1e}, parameters and moments within {farthest:.1e}")
