// RUN: sparse-opt %s --bsr-crop-pads | FileCheck %s

// What is left of the source is a slice, what is added to it a padding.

// CHECK-LABEL: func.func @both(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>)
// CHECK:         %[[ZERO:.*]] = arith.constant 0.0
// CHECK:         %[[LEFT:.*]] = tensor.extract_slice %[[X]][0, 3] [2, 5] [1, 1] : tensor<4x8xf32> to tensor<2x5xf32>
// CHECK:         %[[Y:.*]] = tensor.pad %[[LEFT]] low[1, 0] high[0, 2] {
// CHECK:           tensor.yield %[[ZERO]]
// CHECK:         } : tensor<2x5xf32> to tensor<3x7xf32>
// CHECK:         return %[[Y]]
func.func @both(%x: tensor<4x8xf32>) -> tensor<3x7xf32> {
  %zero = arith.constant 0.0 : f32
  %y = tensor.pad %x low[1, -3] high[-2, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<4x8xf32> to tensor<3x7xf32>
  return %y : tensor<3x7xf32>
}

// A slice alone; paddings may be constants that are operands.

// CHECK-LABEL: func.func @slice(
// CHECK-NOT:     tensor.pad
// CHECK:         tensor.extract_slice %{{.*}}[1] [6] [1] : tensor<8xf32> to tensor<6xf32>
func.func @slice(%x: tensor<8xf32>) -> tensor<6xf32> {
  %zero = arith.constant 0.0 : f32
  %less = arith.constant -1 : index
  %y = tensor.pad %x low[%less] high[-1] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<8xf32> to tensor<6xf32>
  return %y : tensor<6xf32>
}

// Nothing is left.

// CHECK-LABEL: func.func @nothing(
// CHECK-NOT:     tensor.pad
// CHECK:         tensor.generate
// CHECK:         ^bb0(%[[I:.*]]: index):
// CHECK:           %[[C:.*]] = arith.index_cast %[[I]]
// CHECK:           tensor.yield %[[C]]
// CHECK:         } : tensor<2xi32>
func.func @nothing(%x: tensor<4xi32>) -> tensor<2xi32> {
  %y = tensor.pad %x low[-6] high[4] {
  ^bb0(%i: index):
    %c = arith.index_cast %i : index to i32
    tensor.yield %c : i32
  } : tensor<4xi32> to tensor<2xi32>
  return %y : tensor<2xi32>
}

// What takes nothing away stays.

// CHECK-LABEL: func.func @more(
// CHECK-NOT:     tensor.extract_slice
// CHECK:         tensor.pad %{{.*}} low[0] high[4]
func.func @more(%x: tensor<4xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %y = tensor.pad %x low[0] high[4] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<8xf32>
  return %y : tensor<8xf32>
}
