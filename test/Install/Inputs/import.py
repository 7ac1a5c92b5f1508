# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles a step with what is installed in the folder that is named, and runs it."""

import pathlib
import sys

import numpy as np
import sparse_opt

prefix = sys.argv[1]
if not sparse_opt.__file__.startswith(prefix):
    sys.exit(f"expected the package of {prefix}, but got {sparse_opt.__file__}")
text = (pathlib.Path(__file__).parent / "step.mlir").read_text()
step = sparse_opt.compile(text, ["match=w block=16x16 density=0.5"], seed=3)
x = np.arange(8 * 64, dtype=np.float32).reshape(8, 64) / 256
dy = np.cos(np.arange(8 * 48, dtype=np.float32)).reshape(8, 48)
blocks = step.blocks("w")
kept = np.zeros((4, 3))
kept[blocks.rows, blocks.col_idx] = 1
mask = np.kron(kept, np.ones((16, 16)))
step.write("w", np.sin(np.arange(64 * 48, dtype=np.float32)).reshape(64, 48) * mask.astype("f4"))
before = step.read("w").astype(np.float64)
y = step(x=x, dy=dy)
expected = before - mask * (x.T.astype(np.float64) @ dy)
if kept.sum() != 6 or np.abs(y - x @ before).max() > 1e-4 or np.abs(step.read("w") - expected).max() > 1e-4:
    sys.exit("expected a step of the dense masked reference, but got another")
print("trains")
