// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-bind | FileCheck %s

// The gradients of a stack are one value. Of what reads slices of it alone these
// are masked; where its norm is taken, the part that is the weight's.

// CHECK-LABEL: func.func @norm(
// CHECK:         %[[ALL:.*]] = linalg.batch_matmul
// CHECK:         %[[SLICE:.*]] = tensor.extract_slice %[[ALL]][0, 0, 0] [1, 8, 8] [1, 1, 1]
// CHECK:         %[[PART:.*]] = tensor.collapse_shape
// CHECK:         %[[STORED:.*]] = bsr.sample %{{.*}}
// CHECK:         %[[MASKED:.*]] = bsr.to_dense %{{.*}}, %[[STORED]]
// CHECK:         %[[BACK:.*]] = tensor.insert_slice %{{.*}} into %[[ALL]][0, 0, 0] [1, 8, 8] [1, 1, 1]
// CHECK:         linalg.reduce ins(%[[BACK]] : tensor<2x8x8xf32>)
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @norm(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark, bsr.role = "param"},
    %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 1 : i64, bsr.role = "param"},
    %x: tensor<2x8x4xf32>, %y: tensor<2x4x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<2x8x8xf32>
  %e = arith.constant dense<0.0> : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %g = linalg.batch_matmul ins(%x, %y : tensor<2x8x4xf32>, tensor<2x4x8xf32>) outs(%c : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  %norm = linalg.reduce ins(%g : tensor<2x8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1, 2]
      (%a: f32, %o: f32) {
        %0 = arith.mulf %a, %a : f32
        %1 = arith.addf %0, %o : f32
        linalg.yield %1 : f32
      }
  %gw = tensor.extract_slice %g[0, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<2x8x8xf32> to tensor<8x8xf32>
  %gv = tensor.extract_slice %g[1, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<2x8x8xf32> to tensor<8x8xf32>
  %next = linalg.sub ins(%w, %gw : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %other = linalg.sub ins(%v, %gv : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %other, %norm : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>
}
