// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-bind | FileCheck %s
// RUN: not sparse-opt %s --split-input-file --bsr-bind --bsr-propagate=require-sparse 2>&1 | FileCheck %s --check-prefix=REQUIRE

// Gradients that are not found for sure are named, and errors where everything
// has to be sparse.

// REQUIRE-COUNT-14: error: expected the gradient of "w" to be masked, but got one that was not found for sure

// Two parameters' gradient, of which something else takes the norm.
// CHECK-LABEL: func.func @two(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @two(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark, bsr.role = "param"},
    %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 1 : i64, bsr.role = "param"},
    %x: tensor<8x4xf32>, %y: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which is the gradient of something else as well}}
  %g = linalg.matmul ins(%x, %y : tensor<8x4xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
      (%a: f32, %o: f32) {
        %0 = arith.mulf %a, %a : f32
        %1 = arith.addf %0, %o : f32
        linalg.yield %1 : f32
      }
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %other = linalg.sub ins(%v, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %other, %norm : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>
}

// -----

// An operation that is neither a product nor a sum.
// CHECK-LABEL: func.func @opaque(
// CHECK:         tensor.pad
// CHECK:         bsr.sample
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @opaque(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<8x4xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'tensor.pad', which is no product and no sum}}
  %g = tensor.pad %x low[0, 0] high[0, 4] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<8x4xf32> to tensor<8x8xf32>
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %g : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A column times a row within the update.
// CHECK-LABEL: func.func @fused(
#id = affine_map<(i, j) -> (i, j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @fused(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<8xf32>, %dy: tensor<8xf32>) -> tensor<8x8xf32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.generic', which computes it and uses it in one}}
  %next = linalg.generic {indexing_maps = [#id, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (j)>, #id],
                          iterator_types = ["parallel", "parallel"]}
      ins(%w, %x, %dy : tensor<8x8xf32>, tensor<8xf32>, tensor<8xf32>) outs(%c : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %d: f32, %o: f32):
    %0 = arith.mulf %b, %d : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  return %next : tensor<8x8xf32>
}

// -----

// A weight that is only used with data, entry by entry: nothing says where its
// gradient ends and its update begins.
// CHECK-LABEL: func.func @elementwise(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @elementwise(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.sub', which computes it of data, entry by entry}}
  %g = linalg.sub ins(%w, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
      (%a: f32, %o: f32) {
        %0 = arith.mulf %a, %a : f32
        %1 = arith.addf %0, %o : f32
        linalg.yield %1 : f32
      }
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// Data that the gradient is multiplied with leaves zeros where they are.
// CHECK-LABEL: func.func @factor(
// CHECK-NOT:     bsr.unmasked
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @factor(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<4x8xf32>, %dy: tensor<4x8xf32>, %kept: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %e = linalg.sub ins(%y, %dy : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %p = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %e : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %g = linalg.mul ins(%p, %kept : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
      (%a: f32, %o: f32) {
        %0 = arith.mulf %a, %a : f32
        %1 = arith.addf %0, %o : f32
        linalg.yield %1 : f32
      }
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// Sums of the weight's entries in front of its product: what is multiplied is
// not zero off the pattern, and the product's gradient is not masked.
// CHECK-LABEL: func.func @standardized(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
// CHECK-COUNT-1: bsr.sample
// CHECK-NOT:     bsr.sample
#id = affine_map<(i, j) -> (i, j)>
#col = affine_map<(i, j) -> (j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @standardized(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<4x8xf32>, %t: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<8xf32>
  %sum = linalg.reduce ins(%w : tensor<8x8xf32>) outs(%s : tensor<8xf32>) dimensions = [0]
      (%a: f32, %o: f32) {
        %1 = arith.addf %a, %o : f32
        linalg.yield %1 : f32
      }
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.generic', which brings its entries together before they are multiplied}}
  %u = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %sum : tensor<8x8xf32>, tensor<8xf32>) outs(%c : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  %y = linalg.matmul ins(%x, %u : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %e = linalg.sub ins(%y, %t : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %e : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %gs = linalg.reduce ins(%g : tensor<8x8xf32>) outs(%s : tensor<8xf32>) dimensions = [0]
      (%a: f32, %o: f32) {
        %1 = arith.addf %a, %o : f32
        linalg.yield %1 : f32
      }
  %next = linalg.generic {indexing_maps = [#id, #id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %g, %gs : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8xf32>) outs(%c : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %d: f32, %o: f32):
    %0 = arith.subf %b, %d : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  return %next : tensor<8x8xf32>
}

// -----

// A weight without a next value, and a product of its shape whose norm scales
// the update of another: nothing else says whose gradient it is. A product that
// the weight's product depends on is none, nor is one of which others use more.
// CHECK-LABEL: func.func @frozen(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @frozen(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 0 : i64},
    %x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %h = linalg.matmul ins(%x, %v : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %z = linalg.matmul ins(%h, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which may be it}}
  %g = linalg.matmul ins(%y, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
      (%a: f32, %o: f32) {
        %0 = arith.mulf %a, %a : f32
        %1 = arith.addf %0, %o : f32
        linalg.yield %1 : f32
      }
  %next = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>, affine_map<(i, j) -> (i, j)>],
                          iterator_types = ["parallel", "parallel"]}
      ins(%v, %norm : tensor<8x8xf32>, tensor<f32>) outs(%c : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  return %next, %z : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A weight of one row and one token: the gradient is an element-wise function of
// the product's result, and so is everything up to it.
// CHECK-LABEL: func.func @row(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
// CHECK-NOT:     bsr.sample %{{.*}}, %y
#mark = #bsr.mark<block = 1x4, density = 0.5, weight = "w">
#entry = affine_map<(i, j) -> (i, j)>
func.func @row(
    %w: tensor<1x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<1x1xf32>) -> (tensor<1x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<1x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which multiplies the weight itself}}
  %y = linalg.matmul ins(%x, %w : tensor<1x1xf32>, tensor<1x8xf32>) outs(%c : tensor<1x8xf32>) -> tensor<1x8xf32>
  %dy = linalg.exp ins(%y : tensor<1x8xf32>) outs(%c : tensor<1x8xf32>) -> tensor<1x8xf32>
  %g = linalg.generic {indexing_maps = [#entry, #entry, #entry], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %w : tensor<1x8xf32>, tensor<1x8xf32>) outs(%c : tensor<1x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<1x8xf32>
  %norm = linalg.reduce ins(%g : tensor<1x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
      (%a: f32, %o: f32) {
        %0 = arith.addf %a, %o : f32
        linalg.yield %0 : f32
      }
  %next = linalg.sub ins(%w, %g : tensor<1x8xf32>, tensor<1x8xf32>) outs(%c : tensor<1x8xf32>) -> tensor<1x8xf32>
  return %next, %norm : tensor<1x8xf32>, tensor<f32>
}

// -----

// A function of a weight that nothing multiplies: its derivative may be its
// gradient, which is not zero off the pattern.
// CHECK-LABEL: func.func @decayed(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @decayed(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark})
    -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.exp', which is not zero where the weight is}}
  %g = linalg.exp ins(%w : tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// The norm of what may be the gradient of the weight, or that of another one
// which the same is multiplied with.
// CHECK-LABEL: func.func @rival(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @rival(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %v: tensor<8x8xf32> {bsr.name = "v"}, %x: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %z = linalg.matmul ins(%x, %v : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %dy = linalg.mul ins(%y, %z : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %dz = linalg.exp ins(%dy : tensor<4x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.matmul indexing_maps = #turned ins(%x, %dy : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which may be it}}
  %h = linalg.matmul indexing_maps = #turned ins(%x, %dz : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// Rows that two tables have looked up at the same places: whose gradient it is,
// nothing says.
// CHECK-LABEL: func.func @lookups(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#each = affine_map<(i, r, c) -> (i, r, c)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @lookups(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %v: tensor<8x8xf32> {bsr.name = "v"}, %ids: tensor<4xi32> {bsr.name = "ids"}) -> (tensor<8x8xf32>, tensor<4xf32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4xf32>
  %c48 = arith.constant dense<0.0> : tensor<4x8xf32>
  %c488 = arith.constant dense<0.0> : tensor<4x8x8xf32>
  %rows = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<4xi32>) outs(%c48 : tensor<4x8xf32>) {
  ^bb0(%a: i32, %o: f32):
    %0 = arith.index_cast %a : i32 to index
    %1 = linalg.index 1 : index
    %2 = tensor.extract %w[%0, %1] : tensor<8x8xf32>
    %3 = tensor.extract %v[%0, %1] : tensor<8x8xf32>
    %4 = arith.mulf %2, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x8xf32>
  %others = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<4xi32>) outs(%c48 : tensor<4x8xf32>) {
  ^bb0(%a: i32, %o: f32):
    %0 = arith.index_cast %a : i32 to index
    %1 = linalg.index 1 : index
    %2 = tensor.extract %v[%0, %1] : tensor<8x8xf32>
    linalg.yield %2 : f32
  } -> tensor<4x8xf32>
  %dy = linalg.mul ins(%rows, %others : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c48 : tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.generic', which may be it}}
  %each = linalg.generic {indexing_maps = [affine_map<(i, r, c) -> (i)>, affine_map<(i, r, c) -> (i, c)>, #each],
                          iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%ids, %dy : tensor<4xi32>, tensor<4x8xf32>) outs(%c488 : tensor<4x8x8xf32>) {
  ^bb0(%a: i32, %b: f32, %o: f32):
    %0 = arith.index_cast %a : i32 to index
    %1 = linalg.index 1 : index
    %2 = arith.cmpi eq, %0, %1 : index
    %3 = arith.select %2, %b, %o : f32
    linalg.yield %3 : f32
  } -> tensor<4x8x8xf32>
  %norms = linalg.reduce { arith.addf } ins(%each : tensor<4x8x8xf32>) outs(%c4 : tensor<4xf32>) dimensions = [1, 2]
  %e = linalg.exp ins(%rows : tensor<4x8xf32>) outs(%c48 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = bsr.scatter_add %ids, %e feature_dim = 1 : tensor<4xi32>, tensor<4x8xf32> -> tensor<8x8xf32>
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norms : tensor<8x8xf32>, tensor<4xf32>
}

// -----

// A matrix that is added to each example of a batch: the norm of a sum over
// these may be that of its gradient.
// CHECK-LABEL: func.func @added(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#all = affine_map<(b, i, j) -> (b, i, j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @added(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark, bsr.role = "param"},
    %x: tensor<2x8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c2 = arith.constant dense<0.0> : tensor<2x8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.generic {indexing_maps = [#all, affine_map<(b, i, j) -> (i, j)>, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %w : tensor<2x8x8xf32>, tensor<8x8xf32>) outs(%c2 : tensor<2x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x8x8xf32>
  %d = linalg.exp ins(%y : tensor<2x8x8xf32>) outs(%c2 : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.reduce', which may be it}}
  %h = linalg.reduce { arith.addf } ins(%d : tensor<2x8x8xf32>) outs(%c : tensor<8x8xf32>) dimensions = [0]
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %g = linalg.reduce { arith.addf } ins(%y : tensor<2x8x8xf32>) outs(%c : tensor<8x8xf32>) dimensions = [0]
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// The gradient of a convolution, of which the norm is returned: where its rows
// lie in the other operand is a sum of two loops.
// CHECK-LABEL: func.func @convolution(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#x = affine_map<(t, r, c) -> (t + r)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @convolution(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<12xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c5 = arith.constant dense<0.0> : tensor<5x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.generic {indexing_maps = [#x, affine_map<(t, r, c) -> (r, c)>, affine_map<(t, r, c) -> (t, c)>],
                       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x, %w : tensor<12xf32>, tensor<8x8xf32>) outs(%c5 : tensor<5x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<5x8xf32>
  %d = linalg.exp ins(%y : tensor<5x8xf32>) outs(%c5 : tensor<5x8xf32>) -> tensor<5x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.generic', which may be it}}
  %h = linalg.generic {indexing_maps = [#x, affine_map<(t, r, c) -> (t, c)>, affine_map<(t, r, c) -> (r, c)>],
                       iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%x, %d : tensor<12xf32>, tensor<5x8xf32>) outs(%c : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %w, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// The norm of a product of the shape that the weight had before it was made a
// matrix: which of its dimensions are the columns, nothing says.
// CHECK-LABEL: func.func @reshaped(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @reshaped(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %c = arith.constant dense<0.0> : tensor<8x2x4xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %e = tensor.expand_shape %y [[0], [1, 2]] output_shape [4, 2, 4] : tensor<4x8xf32> into tensor<4x2x4xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.generic', which may be it}}
  %h = linalg.generic {indexing_maps = [affine_map<(t, r, h, c) -> (t, r)>, affine_map<(t, r, h, c) -> (t, h, c)>,
                                        affine_map<(t, r, h, c) -> (r, h, c)>],
                       iterator_types = ["reduction", "parallel", "parallel", "parallel"]}
      ins(%x, %e : tensor<4x8xf32>, tensor<4x2x4xf32>) outs(%c : tensor<8x2x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x2x4xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x2x4xf32>) outs(%s : tensor<f32>) dimensions = [0, 1, 2]
  return %w, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// A stack of a weight and of its double: an entry of it is two of the stack's
// gradient.
// CHECK-LABEL: func.func @multiples(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @multiples(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c16 = arith.constant dense<0.0> : tensor<8x16xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x16xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %v = linalg.add ins(%w, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %both = tensor.concat dim(1) %w, %v : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x16xf32>
  %y = linalg.matmul ins(%x, %both : tensor<4x8xf32>, tensor<8x16xf32>) outs(%c4 : tensor<4x16xf32>) -> tensor<4x16xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which may be it}}
  %h = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %y : tensor<4x8xf32>, tensor<4x16xf32>) outs(%c16 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x16xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %w, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// A weight that is not trained beside one that is, of the same input: the
// product is the gradient of the other one.
// CHECK-LABEL: func.func @beside(
// CHECK-SAME:    attributes {bsr.unmasked = ["w"]}
// CHECK-NOT:     bsr.sample
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @beside(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %v: tensor<8x8xf32> {bsr.name = "v"},
    %x: tensor<4x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %z = linalg.matmul ins(%x, %v : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %dz = linalg.mul ins(%y, %z : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.matmul', which may be it}}
  %h = linalg.matmul indexing_maps = #turned ins(%x, %dz : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm : tensor<f32>
}
