// RUN: sparse-opt %s --bsr-cluster --bsr-panel --bsr-emit | FileCheck %s

// Both operands of a product in batches may be one tensor: a point of its batch is
// taken once, for both.

// CHECK:       func.func private @{{.*}}cluster
// CHECK:         scf.forall
// CHECK:         return
!p = !bsr.pattern<32x32, block = 16x16, slots = 3>
func.func @gram(%p: !p, %x: tensor<2x4x32x8xf32>) -> tensor<2x4x3x16x16xf32> {
  %0 = bsr.sddmm %p, %x, %x feature_dim = 2
      : !p, tensor<2x4x32x8xf32>, tensor<2x4x32x8xf32> -> tensor<2x4x3x16x16xf32>
  return %0 : tensor<2x4x3x16x16xf32>
}
