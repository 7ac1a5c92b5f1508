# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step with hand-written kernels: results, updates in place, a pattern."""

import numpy as np
import step

# Equal kernels become one.
DOUBLE = """
func.func private @NAME(%x: memref<64x32xf32>, %y: memref<64x32xf32>) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %c32 = arith.constant 32 : index
  %two = arith.constant dense<2.0> : vector<16xf32>
  scf.forall (%i) in (64) {
    scf.for %j = %c0 to %c32 step %c16 {
      %0 = vector.load %x[%i, %j] : memref<64x32xf32>, vector<16xf32>
      %1 = arith.mulf %0, %two : vector<16xf32>
      vector.store %1, %y[%i, %j] : memref<64x32xf32>, vector<16xf32>
    }
  }
  return
}
"""

SOURCE = DOUBLE.replace("NAME", "double") + DOUBLE.replace("NAME", "double_again") + """
func.func private @tanh(%x: memref<64x32xf32>, %y: memref<64x32xf32>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i, %j) in (64, 2) {
    %c16 = arith.constant 16 : index
    %at = arith.muli %j, %c16 : index
    %0 = vector.load %x[%i, %at] : memref<64x32xf32>, vector<16xf32>
    %1 = math.tanh %0 : vector<16xf32>
    vector.store %1, %y[%i, %at] : memref<64x32xf32>, vector<16xf32>
  }
  return
}
func.func private @row_sums(%ptr: memref<3xi32>, %slot: memref<4xi32>, %v: memref<4x2x2xf32>, %y: memref<2xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  scf.forall (%i) in (2) {
    %next = arith.addi %i, %c1 : index
    %lo32 = memref.load %ptr[%i] : memref<3xi32>
    %hi32 = memref.load %ptr[%next] : memref<3xi32>
    %lo = arith.index_cast %lo32 : i32 to index
    %hi = arith.index_cast %hi32 : i32 to index
    %sum = scf.for %k = %lo to %hi step %c1 iter_args(%acc = %zero) -> f32 {
      %s32 = memref.load %slot[%k] : memref<4xi32>
      %s = arith.index_cast %s32 : i32 to index
      %inner = scf.for %r = %c0 to %c2 step %c1 iter_args(%acc1 = %acc) -> f32 {
        %row = vector.load %v[%s, %r, %c0] : memref<4x2x2xf32>, vector<2xf32>
        %acc2 = vector.reduction <add>, %row, %acc1 : vector<2xf32> into f32
        scf.yield %acc2 : f32
      }
      scf.yield %inner : f32
    }
    memref.store %sum, %y[%i] : memref<2xf32>
  }
  return
}
func.func private @add(%a: memref<64x32xf32>, %b: memref<64x32xf32>, %y: memref<64x32xf32>) {
  %c0 = arith.constant 0 : index
  scf.forall (%i) in (64) {
    %0 = vector.load %a[%i, %c0] : memref<64x32xf32>, vector<32xf32>
    %1 = vector.load %b[%i, %c0] : memref<64x32xf32>, vector<32xf32>
    %2 = arith.addf %0, %1 : vector<32xf32>
    vector.store %2, %y[%i, %c0] : memref<64x32xf32>, vector<32xf32>
  }
  return
}
func.func @step(%w: tensor<64x32xf32> {bsr.name = "w", bsr.result = 1 : i64, bsr.role = "param",
                                       bsr.init = "normal(0.02)"},
                %x: tensor<64x32xf32> {bsr.name = "x", bsr.role = "batch"},
                %v: tensor<4x2x2xf32> {bsr.name = "v", bsr.pattern = 3 : i64},
                %p: !bsr.pattern<4x4, block = 2x2, slots = 4>
                    {bsr.name = "v", bsr.role = "pattern", bsr.density = 0.75})
    -> (tensor<2xf32> {bsr.name = "sums"}, tensor<64x32xf32>, tensor<64x32xf32> {bsr.name = "y"}) {
  %init = tensor.empty() : tensor<64x32xf32>
  %0 = bsr.launch @double ins(%x : tensor<64x32xf32>) outs(%init : tensor<64x32xf32>) -> tensor<64x32xf32>
  %1 = bsr.launch @add ins(%w, %0 : tensor<64x32xf32>, tensor<64x32xf32>) outs(%init : tensor<64x32xf32>)
      in_place = [0, 1] -> tensor<64x32xf32>
  %2 = bsr.launch @double_again ins(%w : tensor<64x32xf32>) outs(%init : tensor<64x32xf32>) -> tensor<64x32xf32>
  %3 = bsr.launch @tanh ins(%2 : tensor<64x32xf32>) outs(%init : tensor<64x32xf32>) -> tensor<64x32xf32>
  %init_sums = tensor.empty() : tensor<2xf32>
  %ptr, %idx, %slot = bsr.indices %p
      : !bsr.pattern<4x4, block = 2x2, slots = 4> -> tensor<3xi32>, tensor<4xi32>, tensor<4xi32>
  %sums = bsr.launch @row_sums ins(%ptr, %slot, %v : tensor<3xi32>, tensor<4xi32>, tensor<4x2x2xf32>)
      outs(%init_sums : tensor<2xf32>) -> tensor<2xf32>
  return %sums, %1, %3 : tensor<2xf32>, tensor<64x32xf32>, tensor<64x32xf32>
}
"""

random = np.random.default_rng(0)
w, x = random.standard_normal((2, 64, 32)).astype(np.float32)
mask = np.array([[True, False], [True, True]])
order = [3, 0, 2]
values = step.to_values(random.standard_normal((4, 4)).astype(np.float32), mask, (2, 2), 4, order)

compiled = step.compile(SOURCE)
one = compiled.run({"w": w, "x": x, "v": values}, {"v": mask}, {"v": order}, threads=1, steps=2)
np.testing.assert_array_equal(one["w"], w + 2 * x + 2 * x)
np.testing.assert_allclose(one["y"], np.tanh(2 * (w.astype(np.float64) + 2 * x)), rtol=1e-6)
dense = step.to_dense(values, mask, order)
np.testing.assert_allclose(one["sums"], dense.reshape(2, 2, 4).sum((1, 2)), rtol=1e-6)

two = compiled.run({"w": w, "x": x, "v": values}, {"v": mask}, {"v": order}, threads=2, steps=2)
for name in one:
    assert one[name].tobytes() == two[name].tobytes(), name

assert compiled.manifest["patterns"] == [{
    "name": "v", "shape": [4, 4], "block": [2, 2], "slots": 4, "density": 0.75, "static": False,
    "weight": 2, "buffers": {"row_ptr": 3, "col_idx": 4, "slot": 5, "col_ptr": 6, "row_idx": 7, "slot_t": 8}, "flops": 0,
}], compiled.manifest
# What is doubled first is there until the weight, which is doubled too, has its next value.
assert compiled.manifest["arena_bytes"] == 2 * 64 * 32 * 4, compiled.manifest
