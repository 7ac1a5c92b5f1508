// RUN: sparse-opt %s --bsr-cluster | FileCheck %s
// RUN: sparse-opt %s --bsr-cluster --bsr-panel --bsr-emit --canonicalize --cse | FileCheck %s --check-prefix=EMIT
// RUN: sparse-opt %s --bsr-set-target="target=#bsr.scalar" --bsr-cluster | FileCheck %s --check-prefix=SCALAR

!pattern = !bsr.pattern<48x16, block = 8x8, slots = 4>

// Products read windows of 2 by 3 places in the line that has the images: both are kernels
// of the line, and nothing copies it. Rows of the images are 18 elements apart.
// CHECK-LABEL: func @convolution
// CHECK-SAME:    %[[LINE:[^:]*]]: tensor<8x84xf32>
// CHECK-NOT:     tensor.concat
// CHECK:         bsr.launch @[[SPMM:.*]] ins(%{{[^,]*}}, %{{[^,]*}}, %[[LINE]] :
// CHECK:         bsr.launch @[[SDDMM:.*]] ins(%{{[^,]*}}, %[[LINE]], %{{[^,]*}} :
// CHECK:       bsr.cluster private @[[SPMM]]
// CHECK:         tensor.concat
// CHECK:         bsr.spmm
// CHECK:       bsr.cluster private @[[SDDMM]]
// CHECK:         tensor.concat
// CHECK:         bsr.sddmm

// A vector of a feature is one of the line: of channel feature / 6, from element
// feature % 6 / 3 * 18 + feature % 6 % 3 on.
// EMIT-LABEL: func private @cluster(
// EMIT-SAME:    %[[LINE:[^:]*]]: memref<8x84xf32>, %{{[^:]*}}: memref<16x64xf32>)
// EMIT-DAG:     %[[C3:.*]] = arith.constant 3 : index
// EMIT-DAG:     %[[C6:.*]] = arith.constant 6 : index
// EMIT-DAG:     %[[C18:.*]] = arith.constant 18 : index
// EMIT:         %[[CHANNEL:.*]] = arith.divui %[[FEATURE:.*]], %[[C6]]
// EMIT:         %[[PLACE:.*]] = arith.remui %[[FEATURE]], %[[C6]]
// EMIT:         %[[ROW:.*]] = arith.divui %[[PLACE]], %[[C3]]
// EMIT:         %[[COLUMN:.*]] = arith.remui %[[PLACE]], %[[C3]]
// EMIT:         %[[FROM:.*]] = arith.addi %[[COLUMN]]
// EMIT:         %[[DOWN:.*]] = arith.muli %[[ROW]], %[[C18]]
// EMIT:         %[[AT:.*]] = arith.addi %[[DOWN]], %[[FROM]]
// EMIT:         vector.load %[[LINE]][%[[CHANNEL]], %[[AT]]]
// EMIT-LABEL: func private @cluster_0(
// EMIT-SAME:    %[[LINE:[^:]*]]: memref<8x84xf32>, %{{[^:]*}}: memref<16x64xf32>
// EMIT:         vector.load %[[LINE]]

// For targets without lanes they are in memory.
// SCALAR-LABEL: func @convolution
// SCALAR:         %[[WINDOWS:.*]] = bsr.launch @{{.*}} -> tensor<8x6x64xf32>
// SCALAR:         bsr.launch @{{.*}} ins(%{{[^,]*}}, %{{[^,]*}}, %[[WINDOWS]] :
// SCALAR:         bsr.launch @{{.*}} ins(%{{[^,]*}}, %[[WINDOWS]], %{{[^,]*}} :
func.func @convolution(%p: !pattern, %w: tensor<4x8x8xf32>, %line: tensor<8x84xf32>, %dy: tensor<16x64xf32>)
    -> (tensor<16x64xf32>, tensor<4x8x8xf32>) {
  %s0 = tensor.extract_slice %line[0, 0] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s1 = tensor.extract_slice %line[0, 1] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s2 = tensor.extract_slice %line[0, 2] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s3 = tensor.extract_slice %line[0, 18] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s4 = tensor.extract_slice %line[0, 19] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s5 = tensor.extract_slice %line[0, 20] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %e0 = tensor.expand_shape %s0 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e1 = tensor.expand_shape %s1 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e2 = tensor.expand_shape %s2 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e3 = tensor.expand_shape %s3 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e4 = tensor.expand_shape %s4 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e5 = tensor.expand_shape %s5 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %places = tensor.concat dim(1) %e0, %e1, %e2, %e3, %e4, %e5
      : (tensor<8x1x64xf32>, tensor<8x1x64xf32>, tensor<8x1x64xf32>, tensor<8x1x64xf32>, tensor<8x1x64xf32>, tensor<8x1x64xf32>)
      -> tensor<8x6x64xf32>
  %windows = tensor.collapse_shape %places [[0, 1], [2]] : tensor<8x6x64xf32> into tensor<48x64xf32>
  %y = bsr.spmm %p, %w, %windows feature_dim = 0 : !pattern, tensor<4x8x8xf32>, tensor<48x64xf32> -> tensor<16x64xf32>
  %dw = bsr.sddmm %p, %windows, %dy feature_dim = 0 : !pattern, tensor<48x64xf32>, tensor<16x64xf32> -> tensor<4x8x8xf32>
  return %y, %dw : tensor<16x64xf32>, tensor<4x8x8xf32>
}
