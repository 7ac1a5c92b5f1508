# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# accumulate.py WHOLE PARTS: compares a run of one batch a step with one of
# micro-batches: losses, and patterns, weights and moments of all checkpoints.

import json
import struct
import sys
from pathlib import Path

import numpy as np

TYPES = {"F32": np.float32, "I32": np.int32, "BOOL": np.bool_}


def losses(run):
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return np.array([line["loss"] for line in lines if "loss" in line])


def tensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and entry["dtype"] in TYPES:
            begin, end = entry["data_offsets"]
            yield name, np.frombuffer(data[8 + size + begin:8 + size + end], TYPES[entry["dtype"]])


whole, parts = map(Path, sys.argv[1:])
one, other = losses(whole), losses(parts)
assert len(one) == len(other) and np.abs(one / other - 1).max() < 2e-5, (one, other)
assert one[0] - one[-1] > 0.5, one # it learns
steps = sorted(whole.glob("checkpoint-*.safetensors"))
for path in steps:
    expected, got = dict(tensors(path)), dict(tensors(parts / path.name))
    patterns = [name for name in expected if name.endswith(".bsr.col_idx")]
    for name, value in expected.items():
        if value.dtype == np.int32:
            assert np.array_equal(value, got[name]), (path, name)
        else:
            # Weights have moved by up to 12 * 0.002; rounding differs a little.
            assert np.abs(value - got[name]).max() < 1e-4 + 1e-3 * np.abs(value).max(), (path, name)
    sums = [name for name in got if name.startswith("state.sum.")]
    assert sums and not any(got[name].any() for name in [*sums, "state.count"]), path
print(f"{len(one)} losses, {len(patterns)} patterns at {len(steps)} steps")
