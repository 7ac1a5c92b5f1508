// MLIR's inliner takes functions with operations of the dialect.

// RUN: sparse-opt %s --inline | FileCheck %s

!p = !bsr.pattern<64x32, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>
!x = tensor<8x64xf32>
!y = tensor<8x32xf32>
func.func private @product(%p: !p, %w: !v, %x: !x) -> !y {
  %y = bsr.spmm %p, %w, %x feature_dim = 1 : !p, !v, !x -> !y
  return %y : !y
}
// CHECK-LABEL: func.func @step
// CHECK-NOT:   call
// CHECK:       %[[Y:.*]] = bsr.spmm
// CHECK-NOT:   call
// CHECK:       return %[[Y]]
func.func @step(%p: !p, %w: !v, %x: !x) -> !y {
  %y = call @product(%p, %w, %x) : (!p, !v, !x) -> !y
  return %y : !y
}
// CHECK-NOT: @product
