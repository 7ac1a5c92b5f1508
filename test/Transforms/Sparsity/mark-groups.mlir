// RUN: sparse-opt %s --bsr-mark="match=^a$ block=4x4 density=1" \
// RUN:   --bsr-mark="match=^[abm]$ block=8x8 density=0.5" | FileCheck %s --check-prefixes=CHECK,PLAIN
// RUN: sparse-opt %s --bsr-mark="match=^b$ block=4x4 density=1 mask=^k$" \
// RUN:   --bsr-mark="match=^[abk]$ block=8x8 density=0.5" | FileCheck %s --check-prefix=MASK

// The first match wins: a and its moment keep the marks of the first group, a
// mask stays a mask.

// CHECK-LABEL: func.func @groups(
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 4x4, density = 1.000000e+00, weight = "a">, bsr.name = "a"
// PLAIN-SAME:    bsr.mark = #bsr.mark<block = 8x8, density = 5.000000e-01, weight = "b">, bsr.name = "b"
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 4x4, density = 1.000000e+00, weight = "a">, bsr.name = "m"

// MASK-LABEL: func.func @groups(
// MASK-SAME:    bsr.mark = #bsr.mark<block = 8x8, density = 5.000000e-01, weight = "a">, bsr.name = "a"
// MASK-SAME:    bsr.mark = #bsr.mark<block = 4x4, density = 1.000000e+00, weight = "b">, bsr.name = "b"
// MASK-SAME:    bsr.mark = #bsr.mark<block = 8x8, density = 5.000000e-01, weight = "a">, bsr.name = "m"
// MASK-SAME:    tensor<8x8xf32> {bsr.mask = #bsr.mask<weight = "b">, bsr.name = "k"})
func.func @groups(%a: tensor<8x8xf32> {bsr.name = "a", bsr.result = 0 : i64},
                  %b: tensor<8x8xf32> {bsr.name = "b"},
                  %m: tensor<8x8xf32> {bsr.name = "m", bsr.result = 1 : i64},
                  %k: tensor<8x8xf32> {bsr.name = "k"})
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.add ins(%a, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = linalg.mul ins(%b, %k : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %m, %1 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}
