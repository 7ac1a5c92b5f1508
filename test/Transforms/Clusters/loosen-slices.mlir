// RUN: sparse-opt %s --split-input-file --bsr-loosen-slices | FileCheck %s

// Two of each shape are one too many for a target that takes one; the dimension of
// which a slice takes two entries keeps its offset.
module attributes {bsr.target = #bsr.scalar} {
  // CHECK-LABEL: func @f
  // CHECK-DAG:     %[[C3:.*]] = arith.constant 3
  // CHECK-DAG:     %[[C7:.*]] = arith.constant 7
  // CHECK:         tensor.extract_slice %{{.*}}[%[[C3]], 0] [1, 2]
  // CHECK:         tensor.extract_slice %{{.*}}[%[[C7]], 2] [1, 2]
  // CHECK:         tensor.extract_slice %{{.*}}[5, 0] [1, 4]
  func.func @f(%x: tensor<9x4xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x4xf32>) {
    %s = tensor.extract_slice %x[3, 0] [1, 2] [1, 1] : tensor<9x4xf32> to tensor<1x2xf32>
    %t = tensor.extract_slice %x[7, 2] [1, 2] [1, 1] : tensor<9x4xf32> to tensor<1x2xf32>
    %u = tensor.extract_slice %x[5, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<1x4xf32>
    return %s, %t, %u : tensor<1x2xf32>, tensor<1x2xf32>, tensor<1x4xf32>
  }
}

// -----

// Without a target, eight are not too many.
// CHECK-LABEL: func @few
// CHECK:         tensor.extract_slice %{{.*}}[3, 0]
// CHECK:         tensor.extract_slice %{{.*}}[7, 0]
func.func @few(%x: tensor<9x4xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  %s = tensor.extract_slice %x[3, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<1x4xf32>
  %t = tensor.extract_slice %x[7, 0] [1, 4] [1, 1] : tensor<9x4xf32> to tensor<1x4xf32>
  return %s, %t : tensor<1x4xf32>, tensor<1x4xf32>
}
