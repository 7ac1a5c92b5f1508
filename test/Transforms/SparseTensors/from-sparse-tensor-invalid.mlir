// RUN: sparse-opt %s --bsr-from-sparse-tensor --split-input-file --verify-diagnostics

#bsr = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 4 : dense, j floordiv 4 : compressed, i mod 4 : dense, j mod 4 : dense)}>

func.func @returned(%w: tensor<8x8xf32, #bsr>) -> tensor<8x8xf32, #bsr> {
  // expected-error @below {{expected a block-sparse argument to be an input of linalg operations or converted to a dense tensor, but got a use by 'func.return'}}
  return %w : tensor<8x8xf32, #bsr>
}

// -----

#bsr = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 4 : dense, j floordiv 4 : compressed, i mod 4 : dense, j mod 4 : dense)}>

// expected-error @below {{expected matrix 8x10 to be a multiple of block 4x4: pad it or choose another block}}
func.func @ragged(%w: tensor<8x10xf32, #bsr>, %x: tensor<10x4xf32>, %z: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %y = linalg.matmul ins(%w, %x : tensor<8x10xf32, #bsr>, tensor<10x4xf32>) outs(%z : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}
