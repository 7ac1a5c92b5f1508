// RUN: sparse-opt %s --bsr-mark="match=^a$ block=4x4 density=1" \
// RUN:   --bsr-mark="match=^[abm]$ block=8x8 density=0.5" | FileCheck %s

// The first match wins: a and its moment keep the marks of the first group.

// CHECK-LABEL: func.func @groups(
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 4x4, density = 1.000000e+00, weight = "a">, bsr.name = "a"
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 8x8, density = 5.000000e-01, weight = "b">, bsr.name = "b"
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 4x4, density = 1.000000e+00, weight = "a">, bsr.name = "m"
func.func @groups(%a: tensor<8x8xf32> {bsr.name = "a", bsr.result = 0 : i64},
                  %b: tensor<8x8xf32> {bsr.name = "b"},
                  %m: tensor<8x8xf32> {bsr.name = "m", bsr.result = 1 : i64})
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.add ins(%a, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %m : tensor<8x8xf32>, tensor<8x8xf32>
}
