// RUN: sparse-opt %s --bsr-to-sparse-tensor --split-input-file --verify-diagnostics
// RUN: not sparse-opt %s --bsr-from-sparse-tensor=density=0 --split-input-file 2>&1 | FileCheck %s --check-prefix=DENSITY
// DENSITY: expected density in (0, 1], but got 0

!p = !bsr.pattern<8x8, block = 4x1, slots = 2>
func.func @one_column(%p: !p, %v: tensor<2x4x1xf32>) -> tensor<8x8xf32> {
  // expected-error @below {{expected blocks of one element or of several columns, but got 4x1}}
  %w = bsr.to_dense %p, %v : !p, tensor<2x4x1xf32> -> tensor<8x8xf32>
  return %w : tensor<8x8xf32>
}

// -----

!p = !bsr.pattern<8x8, block = 1x4, slots = 2>
func.func @one_column_transposed(%p: !p, %v: tensor<2x1x4xf32>) -> tensor<8x8xf32> {
  // expected-error @below {{expected blocks of one element or of several columns, but got 4x1}}
  %w = bsr.to_dense %p, %v transpose : !p, tensor<2x1x4xf32> -> tensor<8x8xf32>
  return %w : tensor<8x8xf32>
}

// -----

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
func.func @background(%p: !p, %v: tensor<2x4x4xf32>, %b: tensor<f32>) -> tensor<8x8xf32> {
  // expected-error @below {{expected absent blocks to be zero, but got a background}}
  %w = bsr.to_dense %p, %v background %b : !p, tensor<2x4x4xf32>, tensor<f32> -> tensor<8x8xf32>
  return %w : tensor<8x8xf32>
}
