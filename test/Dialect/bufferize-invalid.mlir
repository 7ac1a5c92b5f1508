// RUN: sparse-opt %s --one-shot-bufferize --verify-diagnostics

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
bsr.cluster private @wide(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<8x3xf32>) -> tensor<8x3xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !p, tensor<2x4x4xf32>, tensor<8x3xf32> -> tensor<8x3xf32>
  bsr.yield %y : tensor<8x3xf32>
}

func.func @pattern(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<8x3xf32>) -> tensor<8x3xf32> {
  %e = tensor.empty() : tensor<8x3xf32>
  // expected-error @below {{failed to bufferize op}}
  // expected-error @below {{expected patterns to be lowered (bsr-lower-patterns) before bufferization, but got operand #0 of type '!bsr.pattern<8x8, block = 4x4, slots = 2>'}}
  %y = bsr.launch @wide ins(%p, %w, %x : !p, tensor<2x4x4xf32>, tensor<8x3xf32>)
      outs(%e : tensor<8x3xf32>) -> tensor<8x3xf32>
  return %y : tensor<8x3xf32>
}
