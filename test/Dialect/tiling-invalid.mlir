// Tiles that the operations refuse; upstream adds errors of its own.
//
// RUN: not sparse-opt %s --split-input-file --transform-interpreter 2>&1 | FileCheck %s

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

func.func @part_of_the_features(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<8x32xf32>) -> tensor<8x64xf32> {
  // CHECK: error: 'bsr.spmm' op expected a tile with the whole of dimension 1 (64), but got 16
  %y = bsr.spmm %p, %w, %x feature_dim = 1
      : !pattern, tensor<3x16x16xf32>, tensor<8x32xf32> -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %op = transform.structured.match ops{["bsr.spmm"]} in %module : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [0, 16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

func.func @ragged(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<8x32xf32>) -> tensor<8x64xf32> {
  // CHECK: error: 'bsr.spmm' op expected a tile size that divides dimension 0 (8), but got one that leaves a smaller tile
  %y = bsr.spmm %p, %w, %x feature_dim = 1
      : !pattern, tensor<3x16x16xf32>, tensor<8x32xf32> -> tensor<8x64xf32>
  return %y : tensor<8x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %op = transform.structured.match ops{["bsr.spmm"]} in %module : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_for %op tile_sizes [3]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
