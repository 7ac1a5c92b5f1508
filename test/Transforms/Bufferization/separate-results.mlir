// RUN: sparse-opt %s --bsr-separate-results | FileCheck %s

func.func private @both(memref<4xf32>, memref<4xf32>, memref<4xf32>)
func.func private @make(memref<4xf32>, memref<4xf32>)

// Each result has a tensor of its own, but for what is written over something.
// CHECK-LABEL: func @step
// CHECK-SAME:    %[[W:[^:]*]]: tensor<4xf32>
// CHECK:         %[[A:.*]] = bufferization.alloc_tensor() : tensor<4xf32>
// CHECK-NEXT:    %[[B:.*]] = bufferization.alloc_tensor() : tensor<4xf32>
// CHECK-NEXT:    %[[Y:.*]]:2 = bsr.launch @both {{.*}} outs(%[[A]], %[[B]] :
// CHECK-NEXT:    %[[C:.*]] = bufferization.alloc_tensor() : tensor<4xf32>
// CHECK-NEXT:    bsr.launch @make {{.*}} outs(%[[C]] :
// CHECK-NEXT:    bsr.launch @make ins(%[[Y]]#1 : {{.*}}) outs(%[[W]] :
func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> (tensor<4xf32>, tensor<4xf32> {bsr.name = "z"}) {
  %e = tensor.empty() : tensor<4xf32>
  %y:2 = bsr.launch @both ins(%w : tensor<4xf32>) outs(%e, %e : tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>, tensor<4xf32>
  %z = bsr.launch @make ins(%y#0 : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %next = bsr.launch @make ins(%y#1 : tensor<4xf32>) outs(%w : tensor<4xf32>) -> tensor<4xf32>
  return %next, %z : tensor<4xf32>, tensor<4xf32>
}
