// RUN: sparse-opt %s --split-input-file --bsr-import-groups | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-import-groups --mlir-debug-counter=bsr-import-groups-count=0 | FileCheck %s --check-prefix=NONE

// Calls of functions that say that they multiply rows with the matrices of their groups, and what is rounded.

// NONE-NOT: bsr.grouped_{{matmul|outer}} %

// CHECK-LABEL: func.func @step
// CHECK: %[[Y:.*]] = bsr.grouped_matmul %arg0, %arg1, %arg2 transpose : tensor<8x4xbf16>, tensor<3x6x4xbf16>, tensor<8xi64> -> tensor<8x6xf32>
// CHECK: %[[ROUNDED:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<8x6xf32>)
// CHECK: arith.truncf
// CHECK: %[[DX:.*]] = bsr.grouped_matmul %[[ROUNDED]], %arg1, %arg2 : tensor<8x6xbf16>, tensor<3x6x4xbf16>, tensor<8xi64> -> tensor<8x4xf32>
// CHECK-NOT: arith.truncf
// CHECK: %[[DW:.*]] = bsr.grouped_outer %[[ROUNDED]], %arg0, %arg2 : tensor<8x6xbf16>, tensor<8x4xbf16>, tensor<8xi64> -> tensor<3x6x4xf32>
// CHECK: return %[[ROUNDED]], %[[DX]], %[[DW]]
func.func @step(%x: tensor<8x4xbf16> {bsr.name = "x"}, %w: tensor<3x6x4xbf16> {bsr.name = "w"}, %g: tensor<8xi64> {bsr.name = "g"})
    -> (tensor<8x6xbf16> {bsr.name = "y"}, tensor<8x4xf32> {bsr.name = "dx"}, tensor<3x6x4xf32> {bsr.name = "dw"}) {
  %y = call @forward(%x, %w, %g) : (tensor<8x4xbf16>, tensor<3x6x4xbf16>, tensor<8xi64>) -> tensor<8x6xbf16>
  %dx = call @backward(%y, %w, %g) : (tensor<8x6xbf16>, tensor<3x6x4xbf16>, tensor<8xi64>) -> tensor<8x4xf32>
  %dw = call @outer(%y, %x, %g, %w) : (tensor<8x6xbf16>, tensor<8x4xbf16>, tensor<8xi64>, tensor<3x6x4xbf16>) -> tensor<3x6x4xf32>
  return %y, %dx, %dw : tensor<8x6xbf16>, tensor<8x4xf32>, tensor<3x6x4xf32>
}
func.func private @forward(tensor<8x4xbf16>, tensor<3x6x4xbf16>, tensor<8xi64>) -> tensor<8x6xbf16> attributes {bsr.grouped = "matmul_transposed"}
func.func private @backward(tensor<8x6xbf16>, tensor<3x6x4xbf16>, tensor<8xi64>) -> tensor<8x4xf32> attributes {bsr.grouped = "matmul"}
func.func private @outer(tensor<8x6xbf16>, tensor<8x4xbf16>, tensor<8xi64>, tensor<3x6x4xbf16>) -> tensor<3x6x4xf32> attributes {bsr.grouped = "outer"}

// -----

// Matrices with a mark, or what is computed of them, are products of their own; so is what has other shapes than it says.

#mark = #bsr.mark<block = 2x2, density = 5.000000e-01, dims = [stack, row, col], weight = "w">

// CHECK-LABEL: func.func @marked
// CHECK-NOT: bsr.grouped_
// CHECK-COUNT-3: call @
// CHECK-NOT: bsr.grouped_{{.*}} %
func.func @marked(%x: tensor<8x4xf32> {bsr.name = "x"}, %w: tensor<3x6x4xf32> {bsr.name = "w", bsr.mark = #mark}, %g: tensor<8xi64> {bsr.name = "g"})
    -> (tensor<8x6xf32> {bsr.name = "y"}, tensor<3x6x4xf32> {bsr.name = "dw"}, tensor<8x6xf32> {bsr.name = "z"}) {
  %init = tensor.empty() : tensor<3x6x4xf32>
  %2 = linalg.exp ins(%w : tensor<3x6x4xf32>) outs(%init : tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  %y = call @forward(%x, %2, %g) : (tensor<8x4xf32>, tensor<3x6x4xf32>, tensor<8xi64>) -> tensor<8x6xf32>
  %dw = call @outer(%y, %x, %g, %w) : (tensor<8x6xf32>, tensor<8x4xf32>, tensor<8xi64>, tensor<3x6x4xf32>) -> tensor<3x6x4xf32>
  %other = tensor.empty() : tensor<3x4x6xf32>
  %z = call @wrong(%x, %other, %g) : (tensor<8x4xf32>, tensor<3x4x6xf32>, tensor<8xi64>) -> tensor<8x6xf32>
  return %y, %dw, %z : tensor<8x6xf32>, tensor<3x6x4xf32>, tensor<8x6xf32>
}
func.func private @forward(tensor<8x4xf32>, tensor<3x6x4xf32>, tensor<8xi64>) -> tensor<8x6xf32> attributes {bsr.grouped = "matmul_transposed"}
func.func private @outer(tensor<8x6xf32>, tensor<8x4xf32>, tensor<8xi64>, tensor<3x6x4xf32>) -> tensor<3x6x4xf32> attributes {bsr.grouped = "outer"}
func.func private @wrong(tensor<8x4xf32>, tensor<3x4x6xf32>, tensor<8xi64>) -> tensor<8x6xf32> attributes {bsr.grouped = "matmul_transposed"}
