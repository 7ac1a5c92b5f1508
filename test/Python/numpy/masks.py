# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A step that simulates sparsity with masks runs sparse, and the masks are what
# its patterns are.

# RUN: %numpy_python %s | FileCheck %s

import numpy as np

import sparse_opt
from refusals import refuse

# Momentum on w * mask; the mask of the second weight is one of booleans, which
# lies transposed and comes with the batch.
TEXT = """
!m = tensor<16x16xf32>
!b = tensor<16x16xi1>
#ik = affine_map<(i, j, k) -> (i, k)>
#jk = affine_map<(i, j, k) -> (j, k)>
#ki = affine_map<(i, j, k) -> (k, i)>
#kj = affine_map<(i, j, k) -> (k, j)>
#ij = affine_map<(i, j, k) -> (i, j)>
#e = affine_map<(i, j) -> (i, j)>
#t = affine_map<(i, j) -> (j, i)>
#s = affine_map<(i, j) -> ()>
func.func @step(%mask1: !m {bsr.name = "mask1", bsr.result = 0 : i64},
                %w1: !m {bsr.name = "w1", bsr.role = "param", bsr.result = 1 : i64},
                %m1: !m {bsr.name = "m1", bsr.role = "state", bsr.result = 2 : i64},
                %w2: !m {bsr.name = "w2", bsr.role = "param", bsr.result = 3 : i64},
                %mask2: !b {bsr.name = "mask2", bsr.role = "batch"},
                %x: !m {bsr.name = "x", bsr.role = "batch"})
    -> (!m {bsr.name = "mask1"}, !m {bsr.name = "w1"}, !m {bsr.name = "m1"}, !m {bsr.name = "w2"},
        tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %zero = arith.constant dense<0.0> : !m
  %none = arith.constant dense<0.0> : tensor<f32>
  %e = tensor.empty() : !m
  %v1 = linalg.mul ins(%w1, %mask1 : !m, !m) outs(%e : !m) -> !m
  %v2 = linalg.generic {indexing_maps = [#t, #e, #e], iterator_types = ["parallel", "parallel"]}
      ins(%mask2, %w2 : !b, !m) outs(%e : !m) {
  ^bb0(%keep: i1, %a: f32, %o: f32):
    %0 = arith.constant 0.0 : f32
    %1 = arith.select %keep, %a, %0 : f32
    linalg.yield %1 : f32
  } -> !m
  %h = linalg.matmul ins(%x, %v1 : !m, !m) outs(%zero : !m) -> !m
  %y = linalg.matmul ins(%h, %v2 : !m, !m) outs(%zero : !m) -> !m
  %loss = linalg.generic {indexing_maps = [#e, #s], iterator_types = ["reduction", "reduction"]}
      ins(%y : !m) outs(%none : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %q = arith.mulf %a, %a : f32
    %r = arith.addf %o, %q : f32
    linalg.yield %r : f32
  } -> tensor<f32>
  %dh = linalg.matmul indexing_maps = [#ik, #jk, #ij] ins(%y, %v2 : !m, !m) outs(%zero : !m) -> !m
  %g1 = linalg.matmul indexing_maps = [#ki, #kj, #ij] ins(%x, %dh : !m, !m) outs(%zero : !m) -> !m
  %g2 = linalg.matmul indexing_maps = [#ki, #kj, #ij] ins(%h, %y : !m, !m) outs(%zero : !m) -> !m
  %d1 = linalg.mul ins(%g1, %mask1 : !m, !m) outs(%e : !m) -> !m
  %next_m1 = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel", "parallel"]}
      ins(%m1, %d1 : !m, !m) outs(%e : !m) {
  ^bb0(%a: f32, %g: f32, %o: f32):
    %b = arith.constant 0.5 : f32
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %g : f32
    linalg.yield %1 : f32
  } -> !m
  %next_w1 = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel", "parallel"]}
      ins(%w1, %next_m1 : !m, !m) outs(%e : !m) {
  ^bb0(%a: f32, %g: f32, %o: f32):
    %r = arith.constant 0.001 : f32
    %0 = arith.mulf %g, %r : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> !m
  %next_w2 = linalg.generic {indexing_maps = [#e, #e, #t, #e], iterator_types = ["parallel", "parallel"]}
      ins(%w2, %g2, %mask2 : !m, !m, !b) outs(%e : !m) {
  ^bb0(%a: f32, %g: f32, %keep: i1, %o: f32):
    %r = arith.constant 0.001 : f32
    %z = arith.constant 0.0 : f32
    %0 = arith.mulf %g, %r : f32
    %1 = arith.select %keep, %0, %z : f32
    %2 = arith.subf %a, %1 : f32
    linalg.yield %2 : f32
  } -> !m
  return %mask1, %next_w1, %next_m1, %next_w2, %loss : !m, !m, !m, !m, tensor<f32>
}
"""
MARKS = ["match=^w block=4x4 density=0.5 mask=^mask"]


def masks_of(step):
    return step.read("mask1").astype(np.float64), step.read("mask2").T.astype(np.float64)


def stayed(before, after):
    return [old * new for old, new in zip(before, after)]


class Simulated:
    """The same step as it was written, in float64."""

    def __init__(self, w1, w2, masks):
        self.w1, self.w2 = w1.astype(np.float64), w2.astype(np.float64)
        self.m1 = np.zeros_like(self.w1)
        self.masks = masks

    def __call__(self, x):
        v1, v2 = self.w1 * self.masks[0], self.w2 * self.masks[1]
        h = x @ v1
        y = h @ v2
        g1, g2 = x.T @ (y @ v2.T), h.T @ y
        self.m1 = 0.5 * self.m1 + g1 * self.masks[0]
        self.w1 -= 0.001 * self.m1
        self.w2 -= 0.001 * g2 * self.masks[1]
        return (y * y).sum()

    def update(self, masks):
        """Takes new masks; what did not stay starts at zero."""
        kept = stayed(self.masks, masks)
        self.w1, self.m1, self.w2 = self.w1 * kept[0], self.m1 * kept[0], self.w2 * kept[1]
        self.masks = masks


rng = np.random.default_rng(0)
w1, w2, x = (rng.normal(size=(16, 16)).astype(np.float32) * 0.3 for _ in range(3))
step = sparse_opt.compile(TEXT, MARKS, seed=3, options=["-O", "1"])

# CHECK: products {'spmm': 2, 'spmm_transposed': 1, 'sddmm': 2, 'dense': 0, 'left_dense': 0}
# CHECK: arguments ['m1', 'w1', 'w2', 'x']
print("products", step.products)
print("arguments", sorted(step.arrays))

# The masks say what the patterns are, after an update too. A mask of the batch is
# what it was in the first call.

# CHECK: masks float32 bool, 8 and 8 blocks, loss apart False, weights apart False
step.write("w1", w1)
step.write("w2", w2)
simulated = Simulated(w1, w2, masks_of(step))
first = step.read("mask2")
loss = 0.0
for i in range(5):
    got, want = float(step(mask2=first, x=x)), simulated(x)
    loss = max(loss, abs(got - want) / want)
    if i == 2:
        step.update_patterns(0.5)
        simulated.update(masks_of(step))
blocks = [int(m.sum()) // 16 for m in masks_of(step)]
weights = max(
    np.abs(step.read("w1") - simulated.w1 * simulated.masks[0]).max(),
    np.abs(step.read("w2") - simulated.w2 * simulated.masks[1]).max(),
)
print(
    f"masks {step.read('mask1').dtype} {step.read('mask2').dtype}, {blocks[0]} and"
    f" {blocks[1]} blocks, loss apart {loss > 1e-5}, weights apart {weights > 1e-4}"
)
# CHECK: expected mask 'mask2' as the first call had it, but got another: update_patterns() updates patterns, write() takes a mask
refuse(lambda: step(mask2=~first, x=x))

# A mask that is written becomes the pattern.

# CHECK: taken True, weight True
mask = np.zeros((16, 16), np.float32)
mask[:8, :8] = mask[12:, 12:] = 1
step.write("mask1", mask)
step.write("w1", w1)
print(f"taken {np.array_equal(step.read('mask1'), mask)},", end=" ")
print(f"weight {np.array_equal(step.read('w1'), w1 * mask)}")

# CHECK: expected mask 'mask1' to keep or drop whole blocks of 4x4, but got block (1, 2) kept in part
mask[5, 9] = 1
refuse(lambda: step.write("mask1", mask))
# CHECK: expected at most 8 blocks in mask 'mask1', as the density 0.5 of 'w1' says, but got 16: mark it with density=1
refuse(lambda: step.write("mask1", np.ones_like(mask)))
# CHECK: expected zeros and ones in mask 'mask1' of 'w1', but got another number
refuse(lambda: step.write("mask1", mask * 0.5))
# CHECK: expected 'mask1' of type float32, but got bool
refuse(lambda: step.write("mask1", mask > 0))
# CHECK: expected a mask of 'w1' with values to take its pattern from, but got none: mark it with mask=<names of masks>
refuse(lambda: sparse_opt.compile(TEXT, MARKS, pattern="mask", options=["-O", "1"]))
