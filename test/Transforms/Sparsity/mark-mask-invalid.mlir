// RUN: split-file %s %t
// RUN: sparse-opt %t/matrices.mlir --split-input-file --verify-diagnostics --bsr-mark="match=^w block=4x4 mask=mask"
// RUN: sparse-opt %t/stack.mlir --split-input-file --verify-diagnostics --bsr-mark="match=^w block=4x4 mask=mask dims=stack,row,col"
// RUN: sparse-opt %t/runs.mlir --verify-diagnostics --bsr-mark="match=^w0 block=4x4 mask=mask" --bsr-mark="match=^w1 block=2x2 mask=mask"
// RUN: sparse-opt %t/runs.mlir --verify-diagnostics --bsr-mark="match=^w0 block=4x4 mask=mask" --bsr-mark="match=^w1 block=2x2"
// RUN: sparse-opt %t/runs.mlir --verify-diagnostics --bsr-mark="match=^w0 block=4x4" --bsr-mark="match=^w1 block=2x2 mask=mask"
// RUN: not sparse-opt %t/stack.mlir --bsr-mark="match=w mask=(" 2>&1 | FileCheck %s

// CHECK: error: expected option mask to be a regular expression, but got '(': parentheses not balanced

//--- matrices.mlir

// expected-error @below {{expected 'mask' to match the bsr.name of an argument that is multiplied with a weight entry by entry, but got none}}
func.func @none(%w: tensor<8x8xf32> {bsr.name = "w"}, %mask: tensor<8x8xf32> {bsr.name = "mask"}) { return }

// -----

// expected-error @below {{expected mask "mask" to go with one weight, but got "w0" and "w1"}}
func.func @two(%w0: tensor<8x8xf32> {bsr.name = "w0"}, %w1: tensor<8x8xf32> {bsr.name = "w1"},
               %mask: tensor<8x8xf32> {bsr.name = "mask"}) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.mul ins(%w0, %mask : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = linalg.mul ins(%w1, %mask : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}

//--- stack.mlir

// expected-error @below {{expected mask "mask" to have a matrix for each of the stack "w" ('tensor<2x8x8xf32>'), but got 'tensor<8x8xf32>'}}
func.func @one(%w: tensor<2x8x8xf32> {bsr.name = "w"}, %mask: tensor<8x8xf32> {bsr.name = "mask"})
    -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %first = tensor.extract_slice %w[0, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<2x8x8xf32> to tensor<8x8xf32>
  %0 = linalg.mul ins(%first, %mask : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

// expected-error @below {{expected mask "mask" to have a matrix for each of the stack "w" ('tensor<2x8x8xf32>'), but got 'tensor<3x8x8xf32>'}}
func.func @more(%w: tensor<2x8x8xf32> {bsr.name = "w"}, %mask: tensor<3x8x8xf32> {bsr.name = "mask"})
    -> tensor<2x8x8xf32> {
  %e = tensor.empty() : tensor<2x8x8xf32>
  %two = tensor.extract_slice %mask[0, 0, 0] [2, 8, 8] [1, 1, 1] : tensor<3x8x8xf32> to tensor<2x8x8xf32>
  %0 = linalg.mul ins(%w, %two : tensor<2x8x8xf32>, tensor<2x8x8xf32>) outs(%e : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  return %0 : tensor<2x8x8xf32>
}

//--- runs.mlir

// Both weights are masked by one: no run of the pass may take it for its own.
// expected-error @below {{expected mask "mask" to go with one weight, but got "w0" and "w1"}}
func.func @runs(%w0: tensor<8x8xf32> {bsr.name = "w0"}, %w1: tensor<8x8xf32> {bsr.name = "w1"},
                %mask: tensor<8x8xi1> {bsr.name = "mask"}) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %z = arith.constant dense<0.0> : tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.select ins(%mask, %w0, %z : tensor<8x8xi1>, tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = linalg.select ins(%mask, %w1, %z : tensor<8x8xi1>, tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}
