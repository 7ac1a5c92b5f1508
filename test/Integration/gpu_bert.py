# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step of the example BERT, kernels of a GPU against the processor's.

    gpu_bert.py <bert_tiny.mlir>
"""

import os
import sys

import gpu
import numpy as np
import step

marks = [r"--mark=match=layers\..*_w$ block=16x16 density=0.25"]
processor = step.compile(sys.argv[1], marks)
os.environ["BSR_COMPILE"] = "--target=gpu"
interpreted = step.compile(sys.argv[1], marks)
assert isinstance(interpreted, gpu.Step)
launches = sum(interpreted.host.count())
assert launches > 100, launches

random = np.random.default_rng(0)
arrays, patterns = {}, {}
for buffer in processor.manifest["buffers"]:
    name, shape, dtype = buffer["name"], buffer["shape"], step.TYPES[buffer["type"]]
    if buffer["kind"] in (*step.VIEWS, "output"):
        continue
    if np.issubdtype(dtype, np.integer):
        arrays[name] = random.integers(0, 2, shape).astype(dtype) * (not shape == [])  # a count is 0
    else:
        arrays[name] = (random.standard_normal(shape) * 0.05).astype(dtype)
    if ".nu." in name:
        arrays[name] = np.abs(arrays[name])
for pattern in processor.manifest["patterns"]:
    grid = tuple(extent // size for extent, size in zip(pattern["shape"], pattern["block"]))
    mask = np.zeros(grid, bool)
    mask.reshape(-1)[random.permutation(mask.size)[:pattern["slots"]]] = True
    patterns[pattern["name"]] = mask

want, got = processor.run(arrays, patterns), interpreted.run(arrays, patterns)
assert want.keys() == got.keys()
worst = 0.0
for name, expected in want.items():
    assert np.isfinite(expected).all(), name
    error = np.abs(got[name].astype(np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30)
    assert error < 2e-5, (name, error)
    worst = max(worst, error)
# The step did something, and both did not do it in the same order.
assert 0 < worst and any((want[name] != arrays[name]).any() for name in arrays if name in want)
print(f"{launches} launches, differences of at most {worst:.1e}")
