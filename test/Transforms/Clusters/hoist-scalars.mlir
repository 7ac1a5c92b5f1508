// RUN: sparse-opt %s --bsr-hoist-scalars | FileCheck %s

// A number goes behind what it is made of, in front of all else; a tensor of one
// element, too.
// CHECK-LABEL: func @f(
// CHECK-NEXT:    tensor.extract
// CHECK-NEXT:    arith.mulf
// CHECK-NEXT:    tensor.from_elements
// CHECK-NEXT:    tensor.empty
// CHECK-NEXT:    linalg.exp
func.func @f(%x: tensor<8xf32>, %rate: tensor<f32>) -> (tensor<8xf32>, tensor<1xf32>) {
  %init = tensor.empty() : tensor<8xf32>
  %y = linalg.exp ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) -> tensor<8xf32>
  %r = tensor.extract %rate[] : tensor<f32>
  %s = arith.mulf %r, %r : f32
  %t = tensor.from_elements %s : tensor<1xf32>
  return %y, %t : tensor<8xf32>, tensor<1xf32>
}

// What is made of a large tensor stays behind it, and what has effects stays.
// CHECK-LABEL: func @late(
// CHECK:         linalg.exp
// CHECK-NEXT:    tensor.extract
// CHECK-NEXT:    call @random
func.func private @random() -> f32
func.func @late(%x: tensor<8xf32>) -> (f32, f32) {
  %c0 = arith.constant 0 : index
  %init = tensor.empty() : tensor<8xf32>
  %y = linalg.exp ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) -> tensor<8xf32>
  %n = call @random() : () -> f32
  %r = tensor.extract %y[%c0] : tensor<8xf32>
  return %r, %n : f32, f32
}
