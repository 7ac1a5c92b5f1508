// RUN: sparse-opt %s --bsr-set-target="target=#bsr.cpu<vector_bits=256,num_registers=16>" --bsr-plan-clusters --bsr-emit --canonicalize | FileCheck %s

// An operand whose dimensions lie side by side, such as images of 98 numbers, is read in vectors that cross from one to the next.

// CHECK-LABEL: func private @product
// CHECK:         %[[FLAT:.*]] = memref.collapse_shape %{{.*}} {{\[\[}}0], [1, 2]] : memref<32x8x98xf32> into memref<32x784xf32>
// CHECK:         vector.load %[[FLAT]][{{.*}}] : memref<32x784xf32>, vector<16xf32>
// CHECK-NOT:     memref<32x8x98xf32>
// CHECK:         return
bsr.cluster private @product(%p: !bsr.pattern<32x64, block = 16x16, slots = 4>, %w: tensor<4x16x16xf32>, %x: tensor<32x8x98xf32>) -> tensor<64x784xf32> {
  %flat = tensor.collapse_shape %x [[0], [1, 2]] : tensor<32x8x98xf32> into tensor<32x784xf32>
  %y = bsr.spmm %p, %w, %flat feature_dim = 0 : !bsr.pattern<32x64, block = 16x16, slots = 4>, tensor<4x16x16xf32>, tensor<32x784xf32> -> tensor<64x784xf32>
  bsr.yield %y : tensor<64x784xf32>
}

func.func @launch(%p: !bsr.pattern<32x64, block = 16x16, slots = 4>, %w: tensor<4x16x16xf32>, %x: tensor<32x8x98xf32>) -> tensor<64x784xf32> {
  %e = tensor.empty() : tensor<64x784xf32>
  %r = bsr.launch @product ins(%p, %w, %x : !bsr.pattern<32x64, block = 16x16, slots = 4>, tensor<4x16x16xf32>, tensor<32x8x98xf32>)
      outs(%e : tensor<64x784xf32>) -> tensor<64x784xf32>
  return %r : tensor<64x784xf32>
}
