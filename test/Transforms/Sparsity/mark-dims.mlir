// RUN: sparse-opt %s --bsr-mark="match=^w block=4x8 density=0.5 dims=stack,row,col" \
// RUN:   --bsr-mark="match=^h block=4x8 density=0.5 dims=row,col,col" \
// RUN:   --bsr-mark="match=^m block=4x8 dims=row,col" | FileCheck %s

// What the dimensions are is in the marks of weights and moments; a block divides
// the matrix: a column of h is one of 2 x 12, although 8 does not divide 12.

// CHECK-LABEL: func.func @dims(
// CHECK-SAME:    tensor<3x8x16xf32> {bsr.mark = #bsr.mark<block = 4x8, density = 5.000000e-01, dims = [stack, row, col], weight = "w">, bsr.name = "w", bsr.result = 0 : i64}
// CHECK-SAME:    tensor<3x8x16xf32> {bsr.mark = #bsr.mark<block = 4x8, density = 5.000000e-01, dims = [stack, row, col], weight = "w">, bsr.name = "v", bsr.result = 1 : i64}
// CHECK-SAME:    tensor<8x2x12xf32> {bsr.mark = #bsr.mark<block = 4x8, density = 5.000000e-01, dims = [row, col, col], weight = "h">, bsr.name = "h"}
// CHECK-SAME:    tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x8, density = 1.000000e-01, dims = [row, col], weight = "m">, bsr.name = "m"}
func.func @dims(%w: tensor<3x8x16xf32> {bsr.name = "w", bsr.result = 0 : i64},
                %v: tensor<3x8x16xf32> {bsr.name = "v", bsr.result = 1 : i64},
                %h: tensor<8x2x12xf32> {bsr.name = "h"},
                %m: tensor<8x8xf32> {bsr.name = "m"})
    -> (tensor<3x8x16xf32>, tensor<3x8x16xf32>) {
  %e = tensor.empty() : tensor<3x8x16xf32>
  %0 = linalg.add ins(%w, %v : tensor<3x8x16xf32>, tensor<3x8x16xf32>) outs(%e : tensor<3x8x16xf32>) -> tensor<3x8x16xf32>
  return %0, %v : tensor<3x8x16xf32>, tensor<3x8x16xf32>
}
