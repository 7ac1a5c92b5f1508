# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# stages.py WHOLE STAGES COUNT: compares a run of one process with one of a stage on each
# of COUNT processes: losses, and patterns, weights and moments of all checkpoints.

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


whole, stages, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
folders = sorted(stages.glob("stage-*"))
assert len(folders) == count, folders
one = losses(whole)
for folder in folders:
    other = losses(folder)
    assert len(one) == len(other) and np.abs(one / other - 1).max() < 1e-5, (folder, one, other)
steps = sorted(whole.glob("checkpoint-*.safetensors"))
assert steps
for path in steps:
    expected = dict(tensors(path))
    found, twice = set(), set()
    for folder in folders:
        own = dict(tensors(folder / path.name))
        assert set(own) < set(expected), folder  # a stage has a part
        twice |= found & set(own)
        found |= set(own)
        for name, value in own.items():
            if value.dtype == np.int32:
                assert np.array_equal(value, expected[name]), (folder, path, name)
            else:
                assert np.abs(value - expected[name]).max() < 1e-4, (folder, path, name)
    assert found == set(expected), set(expected) - found
patterns = [name for name in expected if name.endswith(".bsr.col_idx")]
shared = [name for name in twice if name.startswith("state.params.")]
print(f"{len(one)} losses, {len(patterns)} patterns at {len(steps)} steps, on several stages: {' '.join(shared)}")
