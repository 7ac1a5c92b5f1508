# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A stack of weights is one array to the user, and a weight a layer natively.

# RUN: %numpy_python %s %src_root/test/Integration/Inputs/stack.mlir | FileCheck %s

import pathlib
import sys

import numpy as np

import sparse_opt
from refusals import refuse

text = pathlib.Path(sys.argv[1]).read_text()
MARKS = ["match=^w$ dims=stack,row,col block=4x4 density=0.5"]
rng = np.random.default_rng(0)
w = rng.normal(size=(3, 16, 16)).astype(np.float32)
batch = {n: rng.normal(size=(4, 16)).astype(np.float32) for n in ("x", "t")}
step = sparse_opt.compile(text, MARKS, options=["-O", "1"])

# CHECK: arrays lr, m.0, m.1, m.2, t, w.0, w.1, w.2, x
# CHECK: patterns w.0, w.1, w.2; state m (3, 16, 16), w (3, 16, 16)
print("arrays", ", ".join(sorted(step.arrays)))
state = step.state_dict()
print(
    f"patterns {', '.join(step.patterns)}; state",
    ", ".join(f"{name} {value.shape}" for name, value in sorted(state.items())),
)

# What is written comes back, without what lies in no block of its layer.

# CHECK: read equal True, largest blocks True, layers differ True
step.write("w", w)
masks = []
for name in step.patterns:
    blocks = step.blocks(name)
    grid = np.zeros((4, 4), np.float32)
    grid[blocks.rows, blocks.col_idx] = 1
    masks.append(np.kron(grid, np.ones((4, 4), np.float32)))
equal = np.array_equal(step.read("w"), w * np.stack(masks))
step.write_weight("w", w, "largest")
norms = np.abs(w).reshape(3, 4, 4, 4, 4).sum((2, 4))
largest = [np.sort(n.ravel())[8:].sum() for n in norms]
got = np.abs(step.read("w")).sum((1, 2))
differ = not np.array_equal(step.blocks("w.0").col_idx, step.blocks("w.1").col_idx)
print(
    f"read equal {equal}, largest blocks {np.allclose(got, largest)}, layers differ"
    f" {differ}"
)

# States go on in another step, natively and as they are.

# CHECK: native True, dense True
batch["lr"] = np.float32(0.1)
step(**batch)
other = sparse_opt.compile(text, MARKS, seed=1, options=["-O", "1"])
other.load_native_state(step.native_state())
native = np.array_equal(other.read("m"), step.read("m"))
other.load_state_dict(step.state_dict())
dense = np.array_equal(other.read("w"), step.read("w"))
print(f"native {native}, dense {dense and np.isclose(other(**batch), step(**batch))}")

# CHECK: expected 'w' of shape [3, 16, 16], but got [16, 16]: a compiled step has one shape
refuse(lambda: step.write("w", w[0]))
