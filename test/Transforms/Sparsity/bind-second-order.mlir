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

// -----

// The row of a table that one integer chooses is data, also where the integer is
// computed: the second gradient is masked, too.
// CHECK-LABEL: func.func @row(
// CHECK:         %[[G:.*]] = linalg.generic
// CHECK:         %[[S:.*]] = bsr.sample %{{.*}}, %[[G:.*]] :
// CHECK:         %[[H:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x8xf32>)
// CHECK:         %[[T:.*]] = bsr.sample %{{.*}}, %[[H]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[T]]
// CHECK:         linalg.reduce {{.*}} ins(%[[D]]
#right = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
#pick = {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
#put = {indexing_maps = [affine_map<(i, j) -> ()>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
        iterator_types = ["parallel", "parallel"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "t">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @row(%t: tensor<4x8xf32> {bsr.name = "t", bsr.result = 0 : i64, bsr.mark = #mark},
               %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 1 : i64},
               %ids: tensor<1xi32>) -> (tensor<4x8xf32>, tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<1x8xf32>
  %e = tensor.empty() : tensor<1x8xf32>
  %e1 = tensor.empty() : tensor<1xi32>
  %e4 = tensor.empty() : tensor<4x8xf32>
  %z = arith.constant 0.0 : f32
  %last = arith.constant 3 : i32
  %s = arith.constant dense<0.0> : tensor<f32>
  %near = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%ids : tensor<1xi32>) outs(%e1 : tensor<1xi32>) {
  ^bb0(%a: i32, %o: i32):
    %0 = arith.minsi %a, %last : i32
    linalg.yield %0 : i32
  } -> tensor<1xi32>
  %id = tensor.collapse_shape %near [] : tensor<1xi32> into tensor<i32>
  %x = linalg.generic #pick ins(%near : tensor<1xi32>) outs(%e : tensor<1x8xf32>) {
  ^bb0(%a: i32, %o: f32):
    %row = arith.index_cast %a : i32 to index
    %col = linalg.index 1 : index
    %0 = tensor.extract %t[%row, %col] : tensor<4x8xf32>
    linalg.yield %0 : f32
  } -> tensor<1x8xf32>
  %y = linalg.matmul ins(%x, %v : tensor<1x8xf32>, tensor<8x8xf32>) outs(%c : tensor<1x8xf32>) -> tensor<1x8xf32>
  %b = linalg.matmul indexing_maps = #right ins(%y, %v : tensor<1x8xf32>, tensor<8x8xf32>) outs(%c : tensor<1x8xf32>) -> tensor<1x8xf32>
  %r = tensor.collapse_shape %b [[0, 1]] : tensor<1x8xf32> into tensor<8xf32>
  %g = linalg.generic #put ins(%id, %r : tensor<i32>, tensor<8xf32>) outs(%e4 : tensor<4x8xf32>) {
  ^bb0(%a: i32, %d: f32, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i32
    %2 = arith.cmpi eq, %1, %a : i32
    %3 = arith.select %2, %d, %z : f32
    linalg.yield %3 : f32
  } -> tensor<4x8xf32>
  %size = linalg.reduce { arith.addf } ins(%g : tensor<4x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %k = linalg.generic #pick ins(%near : tensor<1xi32>) outs(%e : tensor<1x8xf32>) {
  ^bb0(%a: i32, %o: f32):
    %row = arith.index_cast %a : i32 to index
    %col = linalg.index 1 : index
    %0 = tensor.extract %g[%row, %col] : tensor<4x8xf32>
    linalg.yield %0 : f32
  } -> tensor<1x8xf32>
  %q = linalg.mul ins(%k, %y : tensor<1x8xf32>, tensor<1x8xf32>) outs(%e : tensor<1x8xf32>) -> tensor<1x8xf32>
  %f = tensor.collapse_shape %q [[0, 1]] : tensor<1x8xf32> into tensor<8xf32>
  %h = linalg.generic #put ins(%id, %f : tensor<i32>, tensor<8xf32>) outs(%e4 : tensor<4x8xf32>) {
  ^bb0(%a: i32, %d: f32, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i32
    %2 = arith.cmpi eq, %1, %a : i32
    %3 = arith.select %2, %d, %z : f32
    linalg.yield %3 : f32
  } -> tensor<4x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<4x8xf32>) outs(%size : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%t, %h : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %next, %v, %norm : tensor<4x8xf32>, tensor<8x8xf32>, tensor<f32>
}

// -----

// What a gradient is summed with may be a factor of each example, of which there
// is one, or an activation: then it is no other parameter's.
// CHECK-LABEL: func.func @factor_of_one(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 1x1, density = 0.5, weight = "w">
func.func @factor_of_one(%w: tensor<8x1xf32> {bsr.name = "w", bsr.mark = #mark},
                         %b: tensor<8xf32> {bsr.name = "b", bsr.result = 0 : i64, bsr.role = "param"},
                         %x: tensor<8xf32>) -> (tensor<8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8xf32>
  %c1 = arith.constant dense<0.0> : tensor<1xf32>
  %c8 = arith.constant dense<0.0> : tensor<1x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.vecmat ins(%x, %w : tensor<8xf32>, tensor<8x1xf32>) outs(%c1 : tensor<1xf32>) -> tensor<1xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.generic', which may be it}}
  %g = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]} ins(%y, %x : tensor<1xf32>, tensor<8xf32>) outs(%c8 : tensor<1x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<1x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<1x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %k = linalg.vecmat ins(%y, %g : tensor<1xf32>, tensor<1x8xf32>) outs(%c : tensor<8xf32>) -> tensor<8xf32>
  %next = linalg.sub ins(%b, %k : tensor<8xf32>, tensor<8xf32>) outs(%c : tensor<8xf32>) -> tensor<8xf32>
  return %next, %norm : tensor<8xf32>, tensor<f32>
}
