// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-bind | FileCheck %s

// Gradients of gradients: functions of these that are not linear.

// A product of two gradients is zero where they are. With the derivative of a
// penalty added, it is masked.
// CHECK-LABEL: func.func @penalty(
// CHECK:         %[[H:.*]] = linalg.mul
// CHECK-NEXT:    %[[P:.*]] = linalg.mul ins(%{{.*}}, %[[H]]
// CHECK-NEXT:    %[[SUM:.*]] = linalg.add ins(%[[P]], %{{.*}}
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[SUM]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK-NEXT:    linalg.reduce {{.*}} ins(%[[D]]
// CHECK-NEXT:    linalg.sub ins(%{{.*}}, %[[D]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @penalty(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                   %x: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %e = linalg.exp ins(%w : tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = linalg.matmul ins(%x, %e : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul indexing_maps = #turned ins(%x, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %h = linalg.mul ins(%g, %e : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = linalg.mul ins(%g, %h : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = linalg.add ins(%p, %e : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%t : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %t : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// What an optimizer adds a number to is no gradient: the squares of one, and
// these with a decay of the weight.
// CHECK-LABEL: func.func @squares(
// CHECK:         %[[G:.*]] = linalg.matmul indexing_maps
// CHECK-NEXT:    bsr.sample %{{.*}}, %[[G]]
// CHECK:         %[[E:.*]] = linalg.add
// CHECK-NOT:     bsr.sample
// CHECK:         %[[SUM:.*]] = linalg.add ins(%[[E]]
// CHECK-NEXT:    linalg.reduce {{.*}} ins(%[[SUM]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @squares(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                   %x: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %tiny = arith.constant dense<0.1> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul indexing_maps = #turned ins(%x, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = linalg.mul ins(%g, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = linalg.add ins(%p, %tiny : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %d = linalg.mul ins(%w, %tiny : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = linalg.add ins(%e, %d : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%t : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %t : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// What is made of a batch of one number is data: a gradient of second order is
// made of it, and not of the first gradient alone.
// CHECK-LABEL: func.func @number(
// CHECK:         %[[G:.*]] = linalg.matmul indexing_maps
// CHECK-NEXT:    bsr.sample %{{.*}}, %[[G]]
// CHECK:         %[[H:.*]] = linalg.matmul indexing_maps
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[H]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK-NEXT:    linalg.add ins(%{{.*}}, %[[D]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @number(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                  %v: tensor<1x8xf32> {bsr.name = "v", bsr.result = 1 : i64},
                  %x: tensor<1x1xf32>) -> (tensor<8x8xf32>, tensor<1x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c8 = arith.constant dense<0.0> : tensor<1x8xf32>
  %e = tensor.empty() : tensor<1x1xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %xt = linalg.transpose ins(%x : tensor<1x1xf32>) outs(%e : tensor<1x1xf32>) permutation = [1, 0]
  %a = linalg.matmul ins(%xt, %v : tensor<1x1xf32>, tensor<1x8xf32>) outs(%c8 : tensor<1x8xf32>) -> tensor<1x8xf32>
  %y = linalg.matmul ins(%a, %w : tensor<1x8xf32>, tensor<8x8xf32>) outs(%c8 : tensor<1x8xf32>) -> tensor<1x8xf32>
  %g = linalg.matmul indexing_maps = #turned ins(%a, %y : tensor<1x8xf32>, tensor<1x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %z = linalg.matmul ins(%a, %g : tensor<1x8xf32>, tensor<8x8xf32>) outs(%c8 : tensor<1x8xf32>) -> tensor<1x8xf32>
  %h = linalg.matmul indexing_maps = #turned ins(%z, %y : tensor<1x8xf32>, tensor<1x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = linalg.add ins(%g, %h : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%t : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %t : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %v, %norm : tensor<8x8xf32>, tensor<1x8xf32>, tensor<f32>
}

// -----

// So is an activation of one feature, of a batch of one: a product, not a norm.
// CHECK-LABEL: func.func @feature(
// CHECK:         %[[G:.*]] = linalg.matmul indexing_maps
// CHECK-NEXT:    bsr.sample %{{.*}}, %[[G]]
// CHECK:         %[[H:.*]] = linalg.matmul indexing_maps
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[H]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK-NEXT:    linalg.add ins(%{{.*}}, %[[D]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @feature(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                   %u: tensor<3x1xf32> {bsr.name = "u", bsr.result = 1 : i64},
                   %v: tensor<1x8xf32> {bsr.name = "v", bsr.result = 2 : i64},
                   %x: tensor<1x3xf32>) -> (tensor<8x8xf32>, tensor<3x1xf32>, tensor<1x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c8 = arith.constant dense<0.0> : tensor<1x8xf32>
  %c1 = arith.constant dense<0.0> : tensor<1x1xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %xu = linalg.matmul ins(%x, %u : tensor<1x3xf32>, tensor<3x1xf32>) outs(%c1 : tensor<1x1xf32>) -> tensor<1x1xf32>
  %a = linalg.matmul ins(%xu, %v : tensor<1x1xf32>, tensor<1x8xf32>) outs(%c8 : tensor<1x8xf32>) -> tensor<1x8xf32>
  %y = linalg.matmul ins(%a, %w : tensor<1x8xf32>, tensor<8x8xf32>) outs(%c8 : tensor<1x8xf32>) -> tensor<1x8xf32>
  %g = linalg.matmul indexing_maps = #turned ins(%a, %y : tensor<1x8xf32>, tensor<1x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %z = linalg.matmul ins(%a, %g : tensor<1x8xf32>, tensor<8x8xf32>) outs(%c8 : tensor<1x8xf32>) -> tensor<1x8xf32>
  %h = linalg.matmul indexing_maps = #turned ins(%z, %y : tensor<1x8xf32>, tensor<1x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %t = linalg.add ins(%g, %h : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%t : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %t : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %u, %v, %norm : tensor<8x8xf32>, tensor<3x1xf32>, tensor<1x8xf32>, tensor<f32>
}
