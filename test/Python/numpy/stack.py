# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A stack of weights is one array to the user, and a weight a layer natively.

# RUN: %numpy_python %s %src_root/test/Integration/Inputs/stack.mlir | FileCheck %s

import pathlib
import sys
import tempfile

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

# Each layer regrows where its own gradient is largest.


def gradient_norms(w, x, t):
    """Of each layer, the L1 norms of the blocks of the gradient."""
    saved, h = [], x
    for matrix in w:
        z = np.tanh(h @ matrix)
        saved.append((h, 1 - z * z))
        h = h + z
    d, norms = h - t, []
    for (h, slope), matrix in zip(saved[::-1], w[::-1]):
        gradient = h.T @ (d * slope)
        norms.append(np.abs(gradient).reshape(4, 4, 4, 4).sum((1, 3)))
        d = d + (d * slope) @ matrix.T
    return norms[::-1]


def stored(step):
    """Of each layer, whether blocks are stored."""
    grids = np.zeros((3, 4, 4), bool)
    for grid, blocks in zip(grids, map(step.blocks, step.patterns)):
        grid[blocks.rows, blocks.col_idx] = True
    return grids


def start(seed):
    scored = ["-O", "1", "--score-norm=l1"]
    step = sparse_opt.compile(text, MARKS, seed=seed, options=scored)
    step.write("w", w)
    return step


# CHECK: regrown where gradients are largest True
step = start(2)
before = stored(step)
norms = gradient_norms(step.read("w"), batch["x"], batch["t"])
step(**batch, scores=True)
step.update_patterns(0.5, method="rigl")
largest = True
for was, now, scores in zip(before, stored(step), norms):
    absent = np.sort(scores[~was])
    largest &= set(scores[now & ~was]) == set(absent[-4:])
print(f"regrown where gradients are largest {largest}")

# A run that is interrupted between two updates goes on bit for bit.

# CHECK: resumed with the same bits True, 4 updates


def train(step, first, last):
    for i in range(first, last):
        step(**batch, scores=i % 2 == 1)
        if i % 2 == 1:
            step.update_patterns(0.5, method="rigl")


whole = start(2)
train(whole, 0, 3)
with tempfile.TemporaryDirectory() as directory:
    path = f"{directory}/run.safetensors"
    whole.save(path)
    train(whole, 3, 8)
    resumed = start(5)
    resumed.load(path)
train(resumed, 3, 8)
state, again = whole.native_state(), resumed.native_state()
same = all(again[name].tobytes() == state[name].tobytes() for name in state)
print(f"resumed with the same bits {same}, {resumed.counters.pattern_updates} updates")
