// RUN: sparse-opt %s --bsr-score-blocks=norm=l2 --split-input-file --verify-diagnostics | FileCheck %s

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>

// Each weight whose gradient is one product; scores come behind what the step
// returns. A static pattern has none, and neither has a function that is no step.
// CHECK-LABEL: func @step
// CHECK-SAME:    tensor<2x4x4xf32> {bsr.name = "static"}, tensor<2x2xf32> {bsr.name = "w", bsr.role = "scores"})
// CHECK-SAME:    bsr.score_norm = "l2"
// CHECK:         %[[G:.*]] = bsr.sddmm %{{.*}}, %[[X:.*]], %[[DY:.*]] feature_dim = 1
// CHECK-NEXT:    %[[S:.*]] = bsr.block_scores l2 %[[X]], %[[DY]] feature_dim = 1
// CHECK-NOT:     bsr.block_scores
// CHECK:         return %{{.*}}, %{{.*}}, %[[S]]
func.func @step(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                %p: !p {bsr.name = "w", bsr.role = "pattern"},
                %x: tensor<16x8xf32> {bsr.name = "x"}, %dy: tensor<16x8xf32> {bsr.name = "dy"})
    -> (tensor<2x4x4xf32>, tensor<2x4x4xf32> {bsr.name = "static"}) {
  %static = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [0, 1] : !p
  %g = bsr.sddmm %p, %x, %dy feature_dim = 1
      : !p, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x4x4xf32>
  %h = bsr.sddmm %static, %x, %dy feature_dim = 1
      : !p, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x4x4xf32>
  return %g, %h : tensor<2x4x4xf32>, tensor<2x4x4xf32>
}

// CHECK-LABEL: func @no_step
// CHECK-NOT:     bsr.block_scores
func.func @no_step(%p: !p, %x: tensor<16x8xf32>) -> tensor<2x4x4xf32> {
  %g = bsr.sddmm %p, %x, %x feature_dim = 1
      : !p, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x4x4xf32>
  return %g : tensor<2x4x4xf32>
}

// -----

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>

// A weight that is used twice.
// CHECK-LABEL: func @twice
// CHECK-NOT:     bsr.score_norm
// CHECK-NOT:     bsr.block_scores
// expected-remark @below {{expected the gradient of "w" to be one product of the step, but got 2: it has no scores}}
func.func @twice(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                 %p: !p {bsr.name = "w", bsr.role = "pattern"},
                 %x: tensor<16x8xf32> {bsr.name = "x"}, %dy: tensor<16x8xf32> {bsr.name = "dy"})
    -> (tensor<2x4x4xf32>, tensor<2x4x4xf32> {bsr.name = "other"}) {
  %g = bsr.sddmm %p, %x, %dy feature_dim = 1
      : !p, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x4x4xf32>
  %h = bsr.sddmm %p, %dy, %x feature_dim = 1
      : !p, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x4x4xf32>
  return %g, %h : tensor<2x4x4xf32>, tensor<2x4x4xf32>
}

// -----

!p = !bsr.pattern<12x8, block = 4x2, slots = 2>

// The gradient of a look-up.
// CHECK-LABEL: func @rows
// CHECK-SAME:    tensor<3x4xf32> {bsr.name = "w", bsr.role = "scores"})
// CHECK:         %[[G:.*]] = bsr.scatter_rows %{{.*}}, %[[I:.*]], %[[U:.*]] feature_dim = 1
// CHECK-NEXT:    %[[S:.*]] = bsr.score_rows l2 %[[I]], %[[U]] block = 4x2 feature_dim = 1 : tensor<16xi32>, tensor<16x8xf32> -> tensor<3x4xf32>
// CHECK:         return %[[G]], %[[S]]
func.func @rows(%w: tensor<2x4x2xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                %p: !p {bsr.name = "w", bsr.role = "pattern"},
                %i: tensor<16xi32> {bsr.name = "i"}, %u: tensor<16x8xf32> {bsr.name = "u"}) -> tensor<2x4x2xf32> {
  %g = bsr.scatter_rows %p, %i, %u feature_dim = 1 : !p, tensor<16xi32>, tensor<16x8xf32> -> tensor<2x4x2xf32>
  return %g : tensor<2x4x2xf32>
}
