// RUN: sparse-opt %s --split-input-file --bsr-propagate=require-sparse --verify-diagnostics

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
func.func @read(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %w: tensor<2x4x4xf32>) -> tensor<8x8xf32> {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  // expected-error @below {{expected only stored blocks of "w", but got 'func.return', which reads the whole matrix}}
  return %d : tensor<8x8xf32>
}

// -----

// Without a name, the pattern is named as in the text.
func.func @computed(%x: tensor<8x8xf32>) -> tensor<1x4x4xf32> {
  %p = bsr.constant_pattern row_ptr = [0, 1, 1] col_idx = [1] : !bsr.pattern<8x8, block = 4x4, slots = 1>
  // expected-error @below {{expected only stored blocks of %0, but got 'bsr.sample', which reads a dense argument}}
  %v = bsr.sample %p, %x : !bsr.pattern<8x8, block = 4x4, slots = 1>, tensor<8x8xf32> -> tensor<1x4x4xf32>
  return %v : tensor<1x4x4xf32>
}

// -----

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
func.func @dense_product(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %x: tensor<8x5xf32>, %y: tensor<5x8xf32>)
    -> (tensor<2x4x4xf32>, tensor<8x8xf32>) {
  %f = arith.constant dense<0.0> : tensor<8x8xf32>
  // expected-error @below {{expected only stored blocks of "w", but got 'linalg.matmul', which computes the whole gradient for another use}}
  %g = linalg.matmul ins(%x, %y : tensor<8x5xf32>, tensor<5x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %v = bsr.sample %p, %g : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  return %v, %g : tensor<2x4x4xf32>, tensor<8x8xf32>
}
