# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A moment that goes by its weight's name is the weight's name and its role, from the
# step's text to arrays, pattern updates and checkpoints.

# RUN: %numpy_python %s %t.bsr %t.so | FileCheck %s
# RUN: sparse-checkpoint to-dense --with-patterns %t.bsr %t.safetensors
# RUN: sparse-checkpoint from-dense --step %t.so %t.safetensors %t.again.bsr
# RUN: sparse-checkpoint info %t.again.bsr | FileCheck %s --check-prefix=CHECKPOINT

import sys

import numpy as np

import sparse_opt

TEXT = """
!m = tensor<8x8xf32>
#id = affine_map<(i, j) -> (i, j)>
func.func @step(%w: !m {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                %m: !m {bsr.name = "w", bsr.role = "state", bsr.result = 1 : i64},
                %x: !m {bsr.name = "x", bsr.role = "batch"}) -> (!m, !m) {
  %zero = arith.constant dense<0.0> : !m
  %y = linalg.matmul ins(%x, %w : !m, !m) outs(%zero : !m) -> !m
  %g = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>,
                                      affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %y : !m, !m) outs(%zero : !m) -> !m
  %next:2 = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %m, %g : !m, !m, !m) outs(%zero, %zero : !m, !m) {
  ^bb0(%a: f32, %b: f32, %d: f32, %o: f32, %q: f32):
    %half = arith.constant 0.5 : f32
    %rate = arith.constant 0.01 : f32
    %0 = arith.mulf %b, %half : f32
    %1 = arith.addf %0, %d : f32
    %2 = arith.mulf %1, %rate : f32
    %3 = arith.subf %a, %2 : f32
    linalg.yield %3, %1 : f32, f32
  } -> (!m, !m)
  return %next#0, %next#1 : !m, !m
}
"""
MARKS = ["match=^w$ block=4x4 density=0.5"]


def compiled():
    return sparse_opt.compile(TEXT, MARKS, seed=3, library=sys.argv[2], options=["-O", "1"])


rng = np.random.default_rng(0)
w, x = (rng.normal(size=(8, 8)) for _ in range(2))
step = compiled()
step.write("w", w.astype(np.float32))
blocks = step.blocks("w")
mask = np.zeros((2, 2))
mask[blocks.rows, blocks.col_idx] = 1
mask = np.kron(mask, np.ones((4, 4)))
w, m = w * mask, np.zeros((8, 8))
for _ in range(3):
    step(x=x.astype(np.float32))
    m = 0.5 * m + mask * (x.T @ (x @ w))
    w = w - 0.01 * m
near = [
    bool(np.allclose(step.read(n), v, atol=1e-4)) for n, v in (("w", w), ("w.state", m))
]
# CHECK: arrays ['w', 'w.state', 'x'], step near [True, True]
print(f"arrays {sorted(step.arrays)}, step near {near}")

# A regrown block begins without a moment.
# CHECK: moments of 1 regrown blocks: 0.0
step.update_patterns(0.5)
new = step.blocks("w")
places = {(r, c) for r, c in zip(new.rows, new.col_idx)} - {
    (r, c) for r, c in zip(blocks.rows, blocks.col_idx)
}
moments = step.read("w.state").reshape(2, 4, 2, 4)
print(f"moments of {len(places)} regrown blocks:", max(np.abs(moments[r, :, c]).max() for r, c in places))

# CHECK: loaded [True, True]
step.save(sys.argv[1])
again = compiled()
again.load(sys.argv[1])
print("loaded", [np.array_equal(step.read(n), again.read(n)) for n in ("w", "w.state")])

# CHECKPOINT: w {{.*}} 2 of 4 {{.*}} 2 tensors
