# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# accumulate.py WHOLE PARTS: compares a run of one batch a step with one of
# micro-batches: losses, and patterns, weights and moments of all checkpoints.

import sys
from pathlib import Path

import numpy as np
from runs import checkpoints, losses
from tensor_file import read_arrays

whole, parts = map(Path, sys.argv[1:])
one, other = losses(whole), losses(parts)
assert len(one) == len(other) and np.abs(one / other - 1).max() < 2e-5, (one, other)
assert one[0] - one[-1] > 0.5, one # it learns
steps = checkpoints(whole)
for path in steps:
    expected, got = read_arrays(path), read_arrays(parts / path.name)
    patterns = [name for name in expected if name.endswith(".bsr.col_idx")]
    for name, value in expected.items():
        if value.dtype.kind != "f":
            assert np.array_equal(value, got[name]), (path, name)
        else:
            # Weights have moved by up to 12 * 0.002; rounding differs a little.
            assert np.abs(value - got[name]).max() < 1e-4 + 1e-3 * np.abs(value).max(), (path, name)
    sums = [name for name in got if name.startswith("state.sum.")]
    assert sums and not any(got[name].any() for name in [*sums, "state.count"]), path
print(f"{len(one)} losses, {len(patterns)} patterns at {len(steps)} steps")
