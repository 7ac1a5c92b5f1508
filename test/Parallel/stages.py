# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# stages.py WHOLE STAGES COUNT: compares a run of one process with one of a stage on each
# of COUNT processes: losses, and patterns, weights and moments of all checkpoints.

import sys
from pathlib import Path

import numpy as np
from runs import checkpoints, losses
from tensor_file import read_arrays

whole, stages, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
folders = sorted(stages.glob("stage-*"))
assert len(folders) == count, folders
one = losses(whole)
for folder in folders:
    other = losses(folder)
    assert len(one) == len(other) and np.abs(one / other - 1).max() < 1e-5, (folder, one, other)
steps = checkpoints(whole)
assert steps
for path in steps:
    expected = read_arrays(path)
    found, twice = set(), set()
    for folder in folders:
        own = read_arrays(folder / path.name)
        assert set(own) < set(expected), folder  # a stage has a part
        twice |= found & set(own)
        found |= set(own)
        for name, value in own.items():
            if value.dtype.kind != "f":
                assert np.array_equal(value, expected[name]), (folder, path, name)
            else:
                assert np.abs(value - expected[name]).max() < 1e-4, (folder, path, name)
    assert found == set(expected), set(expected) - found
patterns = [name for name in expected if name.endswith(".bsr.col_idx")]
shared = [name for name in twice if name.startswith("state.params.")]
print(f"{len(one)} losses, {len(patterns)} patterns at {len(steps)} steps, on several stages: {' '.join(shared)}")
