// The scalar that all entries of a tensor have is followed through rewrites: here the sum
// %norm becomes one of stored blocks while %spread, its broadcast, still has readers.
//
// RUN: env MALLOC_PERTURB_=165 sparse-opt %s --bsr-bind --bsr-propagate 2>/dev/null | FileCheck %s

#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">

// CHECK-LABEL: func @divided
// CHECK:       %[[G:.*]] = bsr.sddmm
// CHECK:       %[[NORM:.*]] = linalg.generic {{.*}} ins(%[[G]], %{{.*}} : tensor<2x4x4xf32>, tensor<2xi1>)
// CHECK:       %[[SPREAD:.*]] = linalg.broadcast ins(%[[NORM]]
// CHECK:       linalg.generic {{.*}} ins(%[[G]], %[[NORM]] : tensor<2x4x4xf32>, tensor<f32>)
// CHECK:       linalg.div ins(%{{.*}}, %[[SPREAD]] :
func.func @divided(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark, bsr.role = "param"},
    %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 1 : i64, bsr.role = "param"},
    %x: tensor<8x4xf32>, %y: tensor<4x8xf32>, %z: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %g = linalg.matmul ins(%x, %y : tensor<8x4xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %h = linalg.matmul ins(%x, %z : tensor<8x4xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %spread = linalg.broadcast ins(%norm : tensor<f32>) outs(%c : tensor<8x8xf32>) dimensions = [0, 1]
  %u = linalg.div ins(%g, %spread : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %r = linalg.div ins(%h, %spread : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %size = linalg.reduce { arith.addf } ins(%u : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %u : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %other = linalg.sub ins(%v, %r : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %other, %size : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>
}
