// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-bind | FileCheck %s

// Gradients that no entry-wise way leads from to an update: of parts of a weight,
// or made of parts of what the weight was multiplied with, and others.

// An entry of a stack of weights: the gradient reads the same entry of what the
// stack was multiplied with.
// CHECK-LABEL: func.func @expert(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[G:.*]] = linalg.generic {{.*}} ins(%extracted_slice
// CHECK:         %[[S:.*]] = bsr.sample %{{.*}}, %[[G]]
// CHECK:         %[[M:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         linalg.reduce {{.*}} ins(%[[M]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @expert(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 0 : i64},
    %x: tensor<2x4x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c2 = arith.constant dense<0.0> : tensor<2x8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<2x4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %one = tensor.insert_slice %v into %c2[0, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<8x8xf32> into tensor<2x8x8xf32>
  %both = tensor.insert_slice %w into %one[1, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<8x8xf32> into tensor<2x8x8xf32>
  %y = linalg.batch_matmul ins(%x, %both : tensor<2x4x8xf32>, tensor<2x8x8xf32>) outs(%c4 : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %own = tensor.extract_slice %x[1, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<2x4x8xf32> to tensor<4x8xf32>
  %d = tensor.extract_slice %y[1, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<2x4x8xf32> to tensor<4x8xf32>
  %h = linalg.generic {indexing_maps = #turned, iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%own, %d : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %v, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// The gradient of some examples, of which a slice is read.
// CHECK-LABEL: func.func @some(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[G:.*]] = linalg.matmul indexing_maps
// CHECK:         bsr.sample %{{.*}}, %[[G]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @some(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<4x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %first = tensor.extract_slice %x[0, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>
  %d = tensor.extract_slice %y[0, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>
  %h = linalg.matmul indexing_maps = #turned ins(%first, %d : tensor<2x8xf32>, tensor<2x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// The weight is multiplied with a slice of a transpose, its gradient with the
// transpose of a slice: which part of the data that is, nothing says.
// CHECK-LABEL: func.func @joined(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @joined(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<4x16xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<8x4xf32>
  %e = tensor.empty() : tensor<16x4xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %xt = linalg.transpose ins(%x : tensor<4x16xf32>) outs(%e : tensor<16x4xf32>) permutation = [1, 0]
  %part = tensor.extract_slice %xt[8, 0] [8, 4] [1, 1] : tensor<16x4xf32> to tensor<8x4xf32>
  %y = linalg.matmul ins(%w, %part : tensor<8x8xf32>, tensor<8x4xf32>) outs(%c4 : tensor<8x4xf32>) -> tensor<8x4xf32>
  %same = tensor.extract_slice %x[0, 8] [4, 8] [1, 1] : tensor<4x16xf32> to tensor<4x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which may be it}}
  %h = linalg.matmul ins(%y, %same : tensor<8x4xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// Two parts of the weight are multiplied with the same: the gradient is that of
// the part where the step puts it.
// CHECK-LABEL: func.func @chunks(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[G:.*]] = linalg.matmul indexing_maps
// CHECK:         %[[I:.*]] = tensor.insert_slice %[[G]] into %{{.*}}[0, 4] [8, 4]
// CHECK:         bsr.sample %{{.*}}, %[[I]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @chunks(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<4x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x4xf32>
  %c8 = arith.constant dense<0.0> : tensor<8x4xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %left = tensor.extract_slice %w[0, 0] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %right = tensor.extract_slice %w[0, 4] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %y = linalg.matmul ins(%x, %left : tensor<4x8xf32>, tensor<8x4xf32>) outs(%c4 : tensor<4x4xf32>) -> tensor<4x4xf32>
  %z = linalg.matmul ins(%x, %right : tensor<4x8xf32>, tensor<8x4xf32>) outs(%y : tensor<4x4xf32>) -> tensor<4x4xf32>
  %g = linalg.matmul indexing_maps = #turned ins(%x, %z : tensor<4x8xf32>, tensor<4x4xf32>) outs(%c8 : tensor<8x4xf32>) -> tensor<8x4xf32>
  %h = tensor.insert_slice %g into %c[0, 4] [8, 4] [1, 1] : tensor<8x4xf32> into tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// Of one that the step puts nowhere, nothing says which part it is of.
// CHECK-LABEL: func.func @open_chunks(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @open_chunks(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<4x8xf32>) -> tensor<f32> {
  %c4 = arith.constant dense<0.0> : tensor<4x4xf32>
  %c8 = arith.constant dense<0.0> : tensor<8x4xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %left = tensor.extract_slice %w[0, 0] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %right = tensor.extract_slice %w[0, 4] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %y = linalg.matmul ins(%x, %left : tensor<4x8xf32>, tensor<8x4xf32>) outs(%c4 : tensor<4x4xf32>) -> tensor<4x4xf32>
  %z = linalg.matmul ins(%x, %right : tensor<4x8xf32>, tensor<8x4xf32>) outs(%y : tensor<4x4xf32>) -> tensor<4x4xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which may be it}}
  %g = linalg.matmul indexing_maps = #turned ins(%x, %z : tensor<4x8xf32>, tensor<4x4xf32>) outs(%c8 : tensor<8x4xf32>) -> tensor<8x4xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x4xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// A stack of a weight of one column and of its double.
// CHECK-LABEL: func.func @columns(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 1x1, density = 0.5, weight = "w">
func.func @columns(%w: tensor<8x1xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<2x4x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x1xf32>
  %c8 = arith.constant dense<0.0> : tensor<2x8x1xf32>
  %c4 = arith.constant dense<0.0> : tensor<2x4x1xf32>
  %e = tensor.empty() : tensor<2x8x4xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %v = linalg.add ins(%w, %w : tensor<8x1xf32>, tensor<8x1xf32>) outs(%c : tensor<8x1xf32>) -> tensor<8x1xf32>
  %first = tensor.expand_shape %w [[0, 1], [2]] output_shape [1, 8, 1] : tensor<8x1xf32> into tensor<1x8x1xf32>
  %second = tensor.expand_shape %v [[0, 1], [2]] output_shape [1, 8, 1] : tensor<8x1xf32> into tensor<1x8x1xf32>
  %both = tensor.concat dim(0) %first, %second : (tensor<1x8x1xf32>, tensor<1x8x1xf32>) -> tensor<2x8x1xf32>
  %y = linalg.batch_matmul ins(%x, %both : tensor<2x4x8xf32>, tensor<2x8x1xf32>) outs(%c4 : tensor<2x4x1xf32>) -> tensor<2x4x1xf32>
  %turned = linalg.transpose ins(%x : tensor<2x4x8xf32>) outs(%e : tensor<2x8x4xf32>) permutation = [0, 2, 1]
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.batch_matmul', which may be it}}
  %h = linalg.batch_matmul ins(%turned, %y : tensor<2x8x4xf32>, tensor<2x4x1xf32>) outs(%c8 : tensor<2x8x1xf32>) -> tensor<2x8x1xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<2x8x1xf32>) outs(%s : tensor<f32>) dimensions = [0, 1, 2]
  return %norm : tensor<f32>
}

// -----

// A stack of a matrix and of functions of it, inserted one after the other: an
// entry of it is three of the stack's gradient.
// CHECK-LABEL: func.func @inserted(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
// CHECK-NOT:     bsr.sample
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @inserted(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<3x4x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c8 = arith.constant dense<0.0> : tensor<3x8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<3x4x8xf32>
  %e = tensor.empty() : tensor<3x8x4xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %first = tensor.insert_slice %w into %c8[0, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<8x8xf32> into tensor<3x8x8xf32>
  %square = linalg.mul ins(%w, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %twice = linalg.add ins(%w, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %two = tensor.insert_slice %square into %first[1, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<8x8xf32> into tensor<3x8x8xf32>
  %all = tensor.insert_slice %twice into %two[2, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<8x8xf32> into tensor<3x8x8xf32>
  %y = linalg.batch_matmul ins(%x, %all : tensor<3x4x8xf32>, tensor<3x8x8xf32>) outs(%c4 : tensor<3x4x8xf32>) -> tensor<3x4x8xf32>
  %turned = linalg.transpose ins(%x : tensor<3x4x8xf32>) outs(%e : tensor<3x8x4xf32>) permutation = [0, 2, 1]
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.batch_matmul', which may be it}}
  %h = linalg.batch_matmul ins(%turned, %y : tensor<3x8x4xf32>, tensor<3x4x8xf32>) outs(%c8 : tensor<3x8x8xf32>) -> tensor<3x8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<3x8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1, 2]
  return %norm : tensor<f32>
}

// -----

// A matrix that is added to the only example: what goes back through the next
// product is the gradient of both, of which the norm is returned.
// CHECK-LABEL: func.func @position(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @position(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %v: tensor<8x8xf32> {bsr.name = "v"}, %x: tensor<8x8xf32>)
    -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %a = linalg.add ins(%x, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = linalg.matmul ins(%a, %v : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %turned = linalg.transpose ins(%v : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) permutation = [1, 0]
  %g = linalg.matmul ins(%y, %turned : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.reduce', which may be it}}
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// The norm of what an activation becomes in the next layer is none of a
// gradient.
// CHECK-LABEL: func.func @loss(
// CHECK-NOT:     bsr.unmasked
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @loss(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %v: tensor<8x8xf32> {bsr.name = "v"}, %x: tensor<8x8xf32>)
    -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %a = linalg.add ins(%x, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %y = linalg.matmul ins(%a, %v : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%y : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// A weight of one column with a copy for each example: the norm of a sum over
// the examples.
// CHECK-LABEL: func.func @copies(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#all = affine_map<(b, i, j) -> (b, i, j)>
#each = affine_map<(b, i, j) -> (i, j)>
#mark = #bsr.mark<block = 1x1, density = 0.5, weight = "w">
func.func @copies(%w: tensor<8x1xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<4x1x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x1xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x1x1xf32>
  %c8 = arith.constant dense<0.0> : tensor<4x8x1xf32>
  %e = tensor.empty() : tensor<4x8x1xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %v = linalg.broadcast ins(%w : tensor<8x1xf32>) outs(%e : tensor<4x8x1xf32>) dimensions = [0]
  %y = linalg.batch_matmul ins(%x, %v : tensor<4x1x8xf32>, tensor<4x8x1xf32>) outs(%c4 : tensor<4x1x1xf32>) -> tensor<4x1x1xf32>
  %xt = linalg.transpose ins(%x : tensor<4x1x8xf32>) outs(%e : tensor<4x8x1xf32>) permutation = [0, 2, 1]
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.batch_matmul', which may be it}}
  %h = linalg.batch_matmul ins(%xt, %y : tensor<4x8x1xf32>, tensor<4x1x1xf32>) outs(%c8 : tensor<4x8x1xf32>) -> tensor<4x8x1xf32>
  %g = linalg.reduce { arith.addf } ins(%h : tensor<4x8x1xf32>) outs(%c : tensor<8x1xf32>) dimensions = [0]
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x1xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// A weight whose rows are divided by their sums, with a penalty beside: its
// gradient is divided by these as well, and the sum with the penalty's derivative
// is masked.
// CHECK-LABEL: func.func @divided_rows(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[E:.*]] = linalg.exp
// CHECK:         %[[SUM:.*]] = linalg.add ins(%{{.*}}, %[[E]]
// CHECK:         bsr.sample %{{.*}}, %[[SUM]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#all = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @divided_rows(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<4x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %ones = arith.constant dense<1.0> : tensor<8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %sums = linalg.reduce { arith.addf } ins(%w : tensor<8x8xf32>) outs(%ones : tensor<8xf32>) dimensions = [1]
  %v = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%w, %sums : tensor<8x8xf32>, tensor<8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  %y = linalg.matmul ins(%x, %v : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %p = linalg.matmul indexing_maps = #turned ins(%x, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %g = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%p, %sums : tensor<8x8xf32>, tensor<8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  %d = linalg.exp ins(%w : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %h = linalg.add ins(%g, %d : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// The norm of a gradient as a penalty: a product of it goes back to a matrix
// that is added to the only example, whose gradient is that of the sum.
// CHECK-LABEL: func.func @behind_position(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @behind_position(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark},
    %v: tensor<4x8xf32> {bsr.name = "v", bsr.result = 0 : i64, bsr.role = "param"}, %x: tensor<4x8xf32>)
    -> (tensor<4x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %a = linalg.add ins(%x, %v : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = linalg.matmul ins(%a, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which may be it}}
  %g = linalg.matmul indexing_maps = #turned ins(%a, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %back = linalg.matmul ins(%y, %g : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %next = linalg.sub ins(%v, %back : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %next, %norm : tensor<4x8xf32>, tensor<f32>
}

// -----

// A stack of one is what is in it.
// CHECK-LABEL: func.func @stack_of_one(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[G:.*]] = linalg.matmul indexing_maps
// CHECK:         bsr.sample %{{.*}}, %[[G]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @stack_of_one(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<4x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<1x4x8xf32>
  %e = tensor.empty() : tensor<1x8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %stack = tensor.insert_slice %x into %c4[0, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<4x8xf32> into tensor<1x4x8xf32>
  %v = tensor.insert_slice %w into %e[0, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<8x8xf32> into tensor<1x8x8xf32>
  %y = linalg.batch_matmul ins(%stack, %v : tensor<1x4x8xf32>, tensor<1x8x8xf32>) outs(%c4 : tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  %d = tensor.extract_slice %y[0, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<1x4x8xf32> to tensor<4x8xf32>
  %g = linalg.matmul indexing_maps = #turned ins(%x, %d : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// Of a weight that is multiplied with joined data, the gradient for a part.
// CHECK-LABEL: func.func @joined_data(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @joined_data(%w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<2x8xf32>, %z: tensor<2x8xf32>)
    -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %both = tensor.concat dim(0) %x, %z : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<4x8xf32>
  %y = linalg.matmul ins(%both, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %d = tensor.extract_slice %y[0, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which may be it}}
  %g = linalg.matmul indexing_maps = #turned ins(%x, %d : tensor<2x8xf32>, tensor<2x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}

// -----

// The gradient of each example, and their sum with a penalty's derivative, of
// which the norm is returned: both are masked.
// CHECK-LABEL: func.func @examples_and_penalty(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[SUM:.*]] = linalg.add ins(%reduced
// CHECK:         %[[S:.*]] = bsr.sample %{{.*}}, %[[SUM]]
// CHECK:         %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         linalg.reduce {{.*}} ins(%[[D]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @examples_and_penalty(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark}, %x: tensor<2x4x8xf32>)
    -> (tensor<8x8xf32>, tensor<2xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c8 = arith.constant dense<0.0> : tensor<2x8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<2x4x8xf32>
  %e = tensor.empty() : tensor<2x8x8xf32>
  %t = tensor.empty() : tensor<2x8x4xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %s2 = arith.constant dense<0.0> : tensor<2xf32>
  %v = linalg.broadcast ins(%w : tensor<8x8xf32>) outs(%e : tensor<2x8x8xf32>) dimensions = [0]
  %y = linalg.batch_matmul ins(%x, %v : tensor<2x4x8xf32>, tensor<2x8x8xf32>) outs(%c4 : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %xt = linalg.transpose ins(%x : tensor<2x4x8xf32>) outs(%t : tensor<2x8x4xf32>) permutation = [0, 2, 1]
  %h = linalg.batch_matmul ins(%xt, %y : tensor<2x8x4xf32>, tensor<2x4x8xf32>) outs(%c8 : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  %norms = linalg.reduce { arith.addf } ins(%h : tensor<2x8x8xf32>) outs(%s2 : tensor<2xf32>) dimensions = [1, 2]
  %g = linalg.reduce { arith.addf } ins(%h : tensor<2x8x8xf32>) outs(%c : tensor<8x8xf32>) dimensions = [0]
  %d = linalg.exp ins(%w : tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %sum = linalg.add ins(%g, %d : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%sum : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %sum : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norms, %norm : tensor<8x8xf32>, tensor<2xf32>, tensor<f32>
}

// -----

// One row is looked up, and positions are added to it: the gradient is the row's
// as well, and masked where it is the positions' alone.
// CHECK-LABEL: func.func @row_and_position(
// CHECK:         %[[G:.*]] = linalg.matmul indexing_maps
// CHECK:         tensor.collapse_shape %[[G]]
// CHECK:         %[[S:.*]] = bsr.sample %{{.*}}, %[[G]]
// CHECK:         %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         linalg.reduce {{.*}} ins(%[[D]]
#right = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 1x1, density = 0.5, weight = "p">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @row_and_position(
    %p: tensor<1x8xf32> {bsr.name = "p", bsr.result = 0 : i64, bsr.mark = #mark},
    %t: tensor<5x8xf32> {bsr.name = "t", bsr.result = 1 : i64}, %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 2 : i64},
    %ids: tensor<1xi64>) -> (tensor<1x8xf32>, tensor<5x8xf32>, tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<1x8xf32>
  %e = tensor.empty() : tensor<1x8xf32>
  %e5 = tensor.empty() : tensor<5x8xf32>
  %z = arith.constant 0.0 : f32
  %s = arith.constant dense<0.0> : tensor<f32>
  %x = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]} ins(%ids : tensor<1xi64>) outs(%e : tensor<1x8xf32>) {
  ^bb0(%id: i64, %o: f32):
    %row = arith.index_cast %id : i64 to index
    %col = linalg.index 1 : index
    %0 = tensor.extract %t[%row, %col] : tensor<5x8xf32>
    linalg.yield %0 : f32
  } -> tensor<1x8xf32>
  %h = linalg.add ins(%x, %p : tensor<1x8xf32>, tensor<1x8xf32>) outs(%e : tensor<1x8xf32>) -> tensor<1x8xf32>
  %y = linalg.matmul ins(%h, %v : tensor<1x8xf32>, tensor<8x8xf32>) outs(%c : tensor<1x8xf32>) -> tensor<1x8xf32>
  %g = linalg.matmul indexing_maps = #right ins(%y, %v : tensor<1x8xf32>, tensor<8x8xf32>) outs(%c : tensor<1x8xf32>) -> tensor<1x8xf32>
  %id = tensor.collapse_shape %ids [] : tensor<1xi64> into tensor<i64>
  %r = tensor.collapse_shape %g [[0, 1]] : tensor<1x8xf32> into tensor<8xf32>
  %gt = linalg.generic {indexing_maps = [affine_map<(i, j) -> ()>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
                        iterator_types = ["parallel", "parallel"]} ins(%id, %r : tensor<i64>, tensor<8xf32>) outs(%e5 : tensor<5x8xf32>) {
  ^bb0(%a: i64, %b: f32, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i64
    %2 = arith.cmpi eq, %1, %a : i64
    %3 = arith.select %2, %b, %z : f32
    linalg.yield %3 : f32
  } -> tensor<5x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<1x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %np = linalg.sub ins(%p, %g : tensor<1x8xf32>, tensor<1x8xf32>) outs(%e : tensor<1x8xf32>) -> tensor<1x8xf32>
  %nt = linalg.sub ins(%t, %gt : tensor<5x8xf32>, tensor<5x8xf32>) outs(%e5 : tensor<5x8xf32>) -> tensor<5x8xf32>
  return %np, %nt, %v, %norm : tensor<1x8xf32>, tensor<5x8xf32>, tensor<8x8xf32>, tensor<f32>
}

// -----

// Two weights are multiplied with the same, side by side: by its dimensions a
// gradient is one's, though it has as many entries as two of the other's. Zeros that
// are added are no penalty.
// CHECK-LABEL: func.func @side_by_side(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[G:.*]] = linalg.matmul indexing_maps
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[G]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         linalg.reduce {{.*}} ins(%[[D]]
// CHECK:         linalg.add ins(%{{.*}}, %[[D]]
// CHECK-NOT:     bsr.sample
// CHECK:         return
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
#mark1 = #bsr.mark<block = 4x4, density = 0.5, weight = "u">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @side_by_side(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %u: tensor<8x4xf32> {bsr.name = "u", bsr.mark = #mark1},
    %v: tensor<8x6xf32> {bsr.name = "v", bsr.result = 0 : i64, bsr.role = "param"},
    %x: tensor<5x8xf32>) -> (tensor<8x6xf32>, tensor<f32>, tensor<5x14xf32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c5 = arith.constant dense<0.0> : tensor<5x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<5x4xf32>
  %c6 = arith.constant dense<0.0> : tensor<5x6xf32>
  %c14 = arith.constant dense<0.0> : tensor<5x14xf32>
  %c18 = arith.constant dense<0.0> : tensor<5x18xf32>
  %e = tensor.empty() : tensor<8x14xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : tensor<5x8xf32>, tensor<8x8xf32>) outs(%c5 : tensor<5x8xf32>) -> tensor<5x8xf32>
  %q = linalg.matmul ins(%x, %u : tensor<5x8xf32>, tensor<8x4xf32>) outs(%c4 : tensor<5x4xf32>) -> tensor<5x4xf32>
  %z = linalg.matmul ins(%x, %v : tensor<5x8xf32>, tensor<8x6xf32>) outs(%c6 : tensor<5x6xf32>) -> tensor<5x6xf32>
  %a = tensor.insert_slice %y into %c18[0, 0] [5, 8] [1, 1] : tensor<5x8xf32> into tensor<5x18xf32>
  %b = tensor.insert_slice %q into %a[0, 8] [5, 4] [1, 1] : tensor<5x4xf32> into tensor<5x18xf32>
  %k = tensor.insert_slice %z into %b[0, 12] [5, 6] [1, 1] : tensor<5x6xf32> into tensor<5x18xf32>
  %t = linalg.tanh ins(%k : tensor<5x18xf32>) outs(%c18 : tensor<5x18xf32>) -> tensor<5x18xf32>
  %d = tensor.extract_slice %t[0, 0] [5, 8] [1, 1] : tensor<5x18xf32> to tensor<5x8xf32>
  %g = linalg.matmul indexing_maps = #turned ins(%x, %d : tensor<5x8xf32>, tensor<5x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %more = linalg.add ins(%c, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %left = tensor.insert_slice %more into %e[0, 0] [8, 8] [1, 1] : tensor<8x8xf32> into tensor<8x14xf32>
  %both = tensor.insert_slice %v into %left[0, 8] [8, 6] [1, 1] : tensor<8x6xf32> into tensor<8x14xf32>
  %f = linalg.matmul ins(%x, %both : tensor<5x8xf32>, tensor<8x14xf32>) outs(%c14 : tensor<5x14xf32>) -> tensor<5x14xf32>
  return %v, %norm, %f : tensor<8x6xf32>, tensor<f32>, tensor<5x14xf32>
}

// -----

// Products that are written as one of elements and a sum: the norm of a
// gradient scales the gradient of which the next value is made.
// CHECK-LABEL: func.func @in_two_operations(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#all = affine_map<(t, i, j) -> (t, i, j)>
#rows = affine_map<(t, i, j) -> (t, i)>
#columns = affine_map<(t, i, j) -> (t, j)>
#matrix = affine_map<(t, i, j) -> (i, j)>
#number = affine_map<(t, i, j) -> ()>
#mark = #bsr.mark<block = 2x2, density = 0.5, weight = "w">
func.func @in_two_operations(%w: tensor<8x4xf32> {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64}, %x: tensor<1x8xf32>)
    -> (tensor<8x4xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<1x4xf32>
  %cw = arith.constant dense<0.0> : tensor<8x4xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %e = tensor.empty() : tensor<1x8x4xf32>
  %terms = linalg.generic {indexing_maps = [#rows, #matrix, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %w : tensor<1x8xf32>, tensor<8x4xf32>) outs(%e : tensor<1x8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<1x8x4xf32>
  %y = linalg.reduce { arith.addf } ins(%terms : tensor<1x8x4xf32>) outs(%c : tensor<1x4xf32>) dimensions = [1]
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.generic', which may be it}}
  %outer = linalg.generic {indexing_maps = [#rows, #columns, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %y : tensor<1x8xf32>, tensor<1x4xf32>) outs(%e : tensor<1x8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<1x8x4xf32>
  %squares = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%outer : tensor<1x8x4xf32>) outs(%e : tensor<1x8x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<1x8x4xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.reduce', which may be it}}
  %norm = linalg.reduce { arith.addf } ins(%squares : tensor<1x8x4xf32>) outs(%s : tensor<f32>) dimensions = [0, 1, 2]
  %scaled = linalg.generic {indexing_maps = [#rows, #columns, #number, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %y, %norm : tensor<1x8xf32>, tensor<1x4xf32>, tensor<f32>) outs(%e : tensor<1x8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %n: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %n : f32
    linalg.yield %1 : f32
  } -> tensor<1x8x4xf32>
  %g = linalg.reduce { arith.addf } ins(%scaled : tensor<1x8x4xf32>) outs(%cw : tensor<8x4xf32>) dimensions = [0]
  %next = linalg.sub ins(%w, %g : tensor<8x4xf32>, tensor<8x4xf32>) outs(%cw : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %next, %norm : tensor<8x4xf32>, tensor<f32>
}
