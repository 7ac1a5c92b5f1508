// RUN: sparse-opt %s --split-input-file --bsr-bind --verify-diagnostics | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-bind=mask-gradients=false | FileCheck %s --check-prefix=PLAIN

// One pattern for a weight and its moment, behind all other arguments; the loss
// and what is not marked stay as they are.

// CHECK-LABEL: func.func @momentum(
// CHECK-SAME:    %[[M:.*]]: tensor<2x4x4xbf16> {bsr.name = "m", bsr.pattern = 3 : i64, bsr.result = 1 : i64},
// CHECK-SAME:    %[[W:.*]]: tensor<2x4x4xf32> {bsr.init = "zeros", bsr.name = "w", bsr.pattern = 3 : i64, bsr.result = 0 : i64},
// CHECK-SAME:    %[[B:.*]]: tensor<8xf32> {bsr.name = "b"},
// CHECK-SAME:    %[[P:.*]]: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.density = 5.000000e-01 : f64, bsr.name = "w", bsr.role = "pattern"})
// CHECK-SAME:    -> (tensor<2x4x4xf32> {bsr.name = "w"}, tensor<2x4x4xbf16>, tensor<8xf32>)
// CHECK:         %[[DW:.*]] = bsr.to_dense %[[P]], %[[W]]
// CHECK:         %[[DM:.*]] = bsr.to_dense %[[P]], %[[M]]
// CHECK:         %[[NEXT:.*]] = linalg.exp ins(%[[DW]]
// CHECK:         %[[SW:.*]] = bsr.sample %[[P]], %[[NEXT]]
// CHECK:         %[[SM:.*]] = bsr.sample %[[P]], %[[DM]]
// CHECK:         return %[[SW]], %[[SM]], %[[B]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @momentum(
    %m: tensor<8x8xbf16> {bsr.name = "m", bsr.result = 1 : i64, bsr.mark = #mark},
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.init = "zeros", bsr.mark = #mark},
    %b: tensor<8xf32> {bsr.name = "b"})
    -> (tensor<8x8xf32> {bsr.name = "w"}, tensor<8x8xbf16>, tensor<8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.exp ins(%w : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %m, %b : tensor<8x8xf32>, tensor<8x8xbf16>, tensor<8xf32>
}

// -----

// The gradient's product is used by the update (through a transpose) and by a
// norm: both see it masked.

// CHECK-LABEL: func.func @clip(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern
// CHECK:         %[[G:.*]] = linalg.matmul
// CHECK:         %[[S:.*]] = bsr.sample %[[P]], %[[G]] transpose
// CHECK:         %[[D:.*]] = bsr.to_dense %[[P]], %[[S]] transpose
// CHECK:         linalg.transpose ins(%[[D]]
// CHECK:         linalg.generic {{.*}} ins(%[[D]]

// PLAIN-LABEL: func.func @clip(
// PLAIN:         %[[G:.*]] = linalg.matmul
// PLAIN-NOT:     transpose :
// PLAIN:         linalg.transpose ins(%[[G]]
// PLAIN:         linalg.generic {{.*}} ins(%[[G]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights, which more than their update uses: the step computes what automatic differentiation of w * mask does}}
func.func @clip(%w: tensor<8x4xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                %x: tensor<4x8xf32>, %y: tensor<8x8xf32>) -> (tensor<8x4xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %e = tensor.empty() : tensor<8x4xf32>
  %g = linalg.matmul ins(%x, %y : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c : tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = linalg.transpose ins(%g : tensor<4x8xf32>) outs(%e : tensor<8x4xf32>) permutation = [1, 0]
  %next = linalg.sub ins(%w, %t : tensor<8x4xf32>, tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
  %norm = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>],
                          iterator_types = ["reduction", "reduction"]}
      ins(%g : tensor<4x8xf32>) outs(%s : tensor<f32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %0, %out : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %next, %norm : tensor<8x4xf32>, tensor<f32>
}

// -----

// Each of two carries the other: matrices stand in front of samples.

// CHECK-LABEL: func.func @swap(
// CHECK:         %[[DW:.*]] = bsr.to_dense
// CHECK:         %[[DV:.*]] = bsr.to_dense
// CHECK:         %[[SW:.*]] = bsr.sample %{{.*}}, %[[DV]]
// CHECK:         %[[SV:.*]] = bsr.sample %{{.*}}, %[[DW]]
// CHECK:         return %[[SV]], %[[SW]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @swap(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 1 : i64, bsr.mark = #mark},
                %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 0 : i64, bsr.mark = #mark})
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  return %w, %v : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A gradient that only the update uses is not masked: propagation samples it.

// CHECK-LABEL: func.func @update_only(
// CHECK:         linalg.matmul
// CHECK-NOT:     bsr.to_dense
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @update_only(
    %w: tensor<4x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<4x8xf32>, %y: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %c = arith.constant dense<0.0> : tensor<4x8xf32>
  %g = linalg.matmul ins(%x, %y : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c : tensor<4x8xf32>) -> tensor<4x8xf32>
  %next = linalg.sub ins(%w, %g : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %next : tensor<4x8xf32>
}

// -----

// A product of the gradient is the optimizer's (orthogonalization, say): the
// gradient is masked, the product is not.

// CHECK-LABEL: func.func @orthogonalize(
// CHECK:         %[[G:.*]] = linalg.matmul
// CHECK:         bsr.sample %{{.*}}, %[[G]]
// CHECK:         %[[D:.*]] = bsr.to_dense
// CHECK:         %[[O:.*]] = linalg.matmul ins(%[[D]]
// CHECK-NOT:     bsr.to_dense
// CHECK:         linalg.sub
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @orthogonalize(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %g = linalg.matmul ins(%x, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %o = linalg.matmul ins(%g, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %u = linalg.add ins(%g, %o : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %next = linalg.sub ins(%w, %u : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %o : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A moment may have the name of its weight, in another role.

// CHECK-LABEL: func.func @same_name(
// CHECK-SAME:    tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64, bsr.role = "state"},
// CHECK-SAME:    tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64, bsr.role = "param"},
// CHECK-SAME:    bsr.role = "pattern"
// CHECK-NOT:     bsr.sample
// CHECK:         return
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @same_name(%m: tensor<8x8xf32> {bsr.name = "w", bsr.role = "state", bsr.mark = #mark},
                     %w: tensor<8x8xf32> {bsr.name = "w", bsr.role = "param", bsr.mark = #mark}) {
  return
}

// -----

// CHECK-LABEL: func.func @unmarked(
// CHECK-SAME:    tensor<8x8xf32> {bsr.name = "w"})
// CHECK-NOT:     bsr.to_dense
// CHECK:         return
func.func @unmarked(%w: tensor<8x8xf32> {bsr.name = "w"}) { return }

// -----

// Patterns that never change are constants: a weight and its moment share one,
// and `bsr.patterns` keeps what is known of them, in the order of the weights. A
// pattern of another weight is an argument as ever.

// CHECK-LABEL: func.func @static(
// CHECK-SAME:    %[[W:.*]]: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern_number = 0 : i64, bsr.result = 0 : i64},
// CHECK-SAME:    %[[M:.*]]: tensor<2x4x4xf32> {bsr.name = "m", bsr.pattern_number = 0 : i64, bsr.result = 1 : i64},
// CHECK-SAME:    tensor<2x4x4xf32> {bsr.name = "d", bsr.pattern = 4 : i64},
// CHECK-SAME:    %[[V:.*]]: tensor<1x8x2xf32> {bsr.name = "v", bsr.pattern_number = 1 : i64},
// CHECK-SAME:    !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.density = 5.000000e-01 : f64, bsr.name = "d", bsr.role = "pattern"})
// CHECK-SAME:    attributes {bsr.patterns = [
// CHECK-SAME:      {col_idx = array<i32: 1, 0>, density = 5.000000e-01 : f64, name = "w", row_ptr = array<i32: 0, 1, 2>, type = !bsr.pattern<8x8, block = 4x4, slots = 2>},
// CHECK-SAME:      {col_idx = array<i32: 3>, density = 2.500000e-01 : f64, name = "v", row_ptr = array<i32: 0, 1>, type = !bsr.pattern<8x8, block = 8x2, slots = 1>}]}
// CHECK-DAG:     %[[P:.*]] = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [1, 0] {bsr.name = "w"}
// CHECK-DAG:     %[[Q:.*]] = bsr.constant_pattern row_ptr = [0, 1] col_idx = [3] {bsr.name = "v"}
// CHECK-DAG:     bsr.to_dense %[[P]], %[[W]]
// CHECK-DAG:     bsr.to_dense %[[P]], %[[M]]
// CHECK-DAG:     bsr.to_dense %[[Q]], %[[V]]
// CHECK:         bsr.sample %[[P]]
// CHECK:         bsr.sample %[[P]]
#static = #bsr.mark<block = 4x4, density = 0.5, row_ptr = [0, 1, 2], col_idx = [1, 0], weight = "w">
#dynamic = #bsr.mark<block = 4x4, density = 0.5, weight = "d">
#other = #bsr.mark<block = 8x2, density = 0.25, row_ptr = [0, 1], col_idx = [3], weight = "v">
func.func @static(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #static},
                  %m: tensor<8x8xf32> {bsr.name = "m", bsr.result = 1 : i64, bsr.mark = #static},
                  %d: tensor<8x8xf32> {bsr.name = "d", bsr.mark = #dynamic},
                  %v: tensor<8x8xf32> {bsr.name = "v", bsr.mark = #other})
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.add ins(%w, %m : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = linalg.add ins(%d, %v : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// M1: the pattern is the mask. The argument goes, the result that carried it
// too, and what is behind them moves up.

// CHECK-LABEL: func.func @masks(
// CHECK-SAME:    %[[W:[^:]*]]: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64, bsr.result = 0 : i64},
// CHECK-SAME:    tensor<f32> {bsr.name = "count", bsr.result = 1 : i64},
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<4x8, block = 4x4, slots = 2> {bsr.density = 1.000000e+00 : f64,
// CHECK-SAME:      bsr.masks = [{name = "mask", transpose = false, type = tensor<4x8xi1>}, {name = "mask^T", transpose = true, type = tensor<8x4xbf16>}],
// CHECK-SAME:      bsr.name = "w", bsr.role = "pattern"})
// CHECK-SAME:    -> (tensor<2x4x4xf32>, tensor<f32> {bsr.name = "count"}, tensor<4x8xf32> {bsr.name = "y"}, tensor<8x4xbf16> {bsr.name = "z"})
// CHECK-DAG:     %[[ONES:.*]] = arith.constant dense<true> : tensor<2x4x4xi1>
// CHECK-DAG:     %[[MASK:.*]] = bsr.to_dense %[[P]], %[[ONES]] :
// CHECK-DAG:     %[[HALF:.*]] = arith.constant dense<1.000000e+00> : tensor<2x4x4xbf16>
// CHECK-DAG:     %[[SWAPPED:.*]] = bsr.to_dense %[[P]], %[[HALF]] transpose
// CHECK:         %[[Y:.*]] = linalg.select ins(%[[MASK]]
// CHECK:         return %{{.*}}, %{{.*}}, %[[Y]], %[[SWAPPED]]
#mark = #bsr.mark<block = 4x4, density = 1.0, weight = "w">
func.func @masks(
    %mask: tensor<4x8xi1> {bsr.name = "mask", bsr.result = 0 : i64, bsr.mask = #bsr.mask<weight = "w">},
    %w: tensor<4x8xf32> {bsr.name = "w", bsr.result = 1 : i64, bsr.mark = #mark},
    %swapped: tensor<8x4xbf16> {bsr.name = "mask^T", bsr.mask = #bsr.mask<weight = "w", transpose = true>},
    %count: tensor<f32> {bsr.name = "count", bsr.result = 2 : i64})
    -> (tensor<4x8xi1> {bsr.name = "mask"}, tensor<4x8xf32>, tensor<f32> {bsr.name = "count"},
        tensor<4x8xf32> {bsr.name = "y"}, tensor<8x4xbf16> {bsr.name = "z"}) {
  %zero = arith.constant dense<0.0> : tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.select ins(%mask, %w, %zero : tensor<4x8xi1>, tensor<4x8xf32>, tensor<4x8xf32>)
                     outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %mask, %w, %count, %y, %swapped
      : tensor<4x8xi1>, tensor<4x8xf32>, tensor<f32>, tensor<4x8xf32>, tensor<8x4xbf16>
}

// -----

// A pattern that never changes says in the same way what its masks were, and what
// they are in the program.

// CHECK-LABEL: func.func @static_mask(
// CHECK-SAME:    bsr.patterns = [{col_idx = array<i32: 1>, density = 2.500000e-01 : f64,
// CHECK-SAME:      masks = [{name = "mask", origin = {name = "m", offsets = array<i64: 0, 0, 0>, shape = array<i64: 8, 2, 4>, sizes = array<i64: 8, 2, 4>}, transpose = false, type = tensor<8x8xf32>}], name = "w",
func.func @static_mask(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.25, row_ptr = [0, 0, 1],
                                                               col_idx = [1], weight = "w">},
    %mask: tensor<8x8xf32> {bsr.name = "mask", bsr.mask = #bsr.mask<weight = "w">,
                            bsr.origin = {name = "m", offsets = array<i64: 0, 0, 0>, shape = array<i64: 8, 2, 4>, sizes = array<i64: 8, 2, 4>}}) {
  return
}

// -----

// A gradient that is another parameter's too is masked where it is w's alone.

// CHECK-LABEL: func.func @shared(
// CHECK:         %[[G:.*]] = linalg.matmul
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[G]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK-NEXT:    %[[H:.*]] = linalg.exp ins(%[[D]]
// CHECK-NEXT:    linalg.sub ins(%{{.*}}, %[[H]]
// CHECK-NEXT:    linalg.sub ins(%{{.*}}, %[[G]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @shared(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark, bsr.role = "param"},
    %v: tensor<8x8xf32> {bsr.name = "v", bsr.result = 1 : i64, bsr.role = "param"},
    %x: tensor<8x4xf32>, %y: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %g = linalg.matmul ins(%x, %y : tensor<8x4xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %h = linalg.exp ins(%g : tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %next = linalg.sub ins(%w, %h : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %other = linalg.sub ins(%v, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %other, %h : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A number that two updates divide by is no gradient, wherever it is spread.

// CHECK-LABEL: func.func @divided(
// CHECK:         %[[G:.*]] = linalg.matmul
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[G]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         %[[NORM:.*]] = linalg.broadcast
// CHECK-NEXT:    linalg.div ins(%[[D]], %[[NORM]] :
// CHECK-NEXT:    linalg.div ins(%{{.*}}, %[[NORM]] :
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
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

// -----

// What reads the next value sees what the weight will be; the update of the
// moment reads its gradient as it is.

// CHECK-LABEL: func.func @average(
// CHECK:         %[[G:.*]] = linalg.matmul
// CHECK-NEXT:    %[[NEXT:.*]] = linalg.sub ins(%{{.*}}, %[[G]]
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[NEXT]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK-NEXT:    %[[EMA:.*]] = linalg.add ins(%{{.*}}, %[[D]]
// CHECK:         return %{{.*}}, %[[EMA]], %[[D]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
func.func @average(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %ema: tensor<8x8xf32> {bsr.name = "ema", bsr.result = 1 : i64},
    %x: tensor<8x4xf32>, %y: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %g = linalg.matmul ins(%x, %y : tensor<8x4xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %average = linalg.add ins(%ema, %next : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %average, %next : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A column times a number: the column is a factor of the gradient.

// CHECK-LABEL: func.func @column(
// CHECK:         %[[H:.*]] = linalg.reduce
// CHECK:         %[[G:.*]] = linalg.generic {{.*}} ins(%{{.*}}, %[[H]] :
// CHECK:         %[[S:.*]] = bsr.sample %{{.*}}, %[[G]]
// CHECK:         %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         linalg.sub ins(%{{.*}}, %[[D]]
// CHECK:         return %{{.*}}, %[[H]], %[[D]]
#mark = #bsr.mark<block = 4x1, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @column(
    %w: tensor<8x1xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<4x8xf32>, %dy: tensor<1xf32>) -> (tensor<8x1xf32>, tensor<8xf32>, tensor<8x1xf32>) {
  %c = arith.constant dense<0.0> : tensor<8x1xf32>
  %c8 = arith.constant dense<0.0> : tensor<8xf32>
  %h = linalg.reduce { arith.addf } ins(%x : tensor<4x8xf32>) outs(%c8 : tensor<8xf32>) dimensions = [0]
  %g = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%dy, %h : tensor<1xf32>, tensor<8xf32>) outs(%c : tensor<8x1xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x1xf32>
  %next = linalg.sub ins(%w, %g : tensor<8x1xf32>, tensor<8x1xf32>) outs(%c : tensor<8x1xf32>) -> tensor<8x1xf32>
  return %next, %h, %g : tensor<8x1xf32>, tensor<8xf32>, tensor<8x1xf32>
}

// -----

// The derivative of a penalty is not zero where the weight is: the sum is masked.

// CHECK-LABEL: func.func @penalty(
// CHECK:         %[[G:.*]] = linalg.matmul
// CHECK:         %[[E:.*]] = linalg.exp
// CHECK-NEXT:    %[[SUM:.*]] = linalg.add ins(%{{.*}}, %[[E]]
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[SUM]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         linalg.reduce {{.*}} ins(%[[D]]
// CHECK:         linalg.sub ins(%{{.*}}, %[[D]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @penalty(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<8x4xf32>, %y: tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %p = linalg.matmul ins(%x, %y : tensor<8x4xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = linalg.exp ins(%w : tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %g = linalg.add ins(%p, %e : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%g : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// A gradient of each example, of which something takes the norms.

// CHECK-LABEL: func.func @examples(
// CHECK:         %[[EACH:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x8x8xf32>)
// CHECK:         %[[MASK:.*]] = bsr.to_dense
// CHECK:         %[[ONLY:.*]] = linalg.generic {{.*}} ins(%[[EACH]], %[[MASK]]
// CHECK:           arith.select
// CHECK:         linalg.reduce {{.*}} ins(%[[ONLY]]
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[ONLY]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @examples(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %x: tensor<4x8xf32>) -> tensor<8x8xf32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4xf32>
  %c48 = arith.constant dense<0.0> : tensor<4x8xf32>
  %c488 = arith.constant dense<0.0> : tensor<4x8x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c48 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %each = linalg.generic {indexing_maps = [affine_map<(t, i, j) -> (t, i)>, affine_map<(t, i, j) -> (t, j)>,
                                           affine_map<(t, i, j) -> (t, i, j)>],
                          iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c488 : tensor<4x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x8x8xf32>
  %norms = linalg.reduce { arith.maximumf } ins(%each : tensor<4x8x8xf32>) outs(%c4 : tensor<4xf32>) dimensions = [1, 2]
  %g = linalg.generic {indexing_maps = [affine_map<(t, i, j) -> (t)>, affine_map<(t, i, j) -> (t, i, j)>,
                                        affine_map<(t, i, j) -> (i, j)>],
                       iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%norms, %each : tensor<4xf32>, tensor<4x8x8xf32>) outs(%c : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next : tensor<8x8xf32>
}

// -----

// The gradient of the rows of each example that are looked up, of which
// something takes the norms.

// CHECK-LABEL: func.func @lookups(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[EACH:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x8x8xf32>)
// CHECK:         %[[MASK:.*]] = bsr.to_dense
// CHECK:         %[[ONLY:.*]] = linalg.generic {{.*}} ins(%[[EACH]], %[[MASK]]
// CHECK:         linalg.reduce {{.*}} ins(%[[ONLY]]
// CHECK:         linalg.reduce {{.*}} ins(%[[ONLY]]
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#each = affine_map<(i, r, c) -> (i, r, c)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @lookups(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %ids: tensor<4xi32> {bsr.name = "ids"}) -> (tensor<8x8xf32>, tensor<4xf32>) {
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
    linalg.yield %2 : f32
  } -> tensor<4x8xf32>
  %dy = linalg.exp ins(%rows : tensor<4x8xf32>) outs(%c48 : tensor<4x8xf32>) -> tensor<4x8xf32>
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
  %g = linalg.reduce { arith.addf } ins(%each : tensor<4x8x8xf32>) outs(%c : tensor<8x8xf32>) dimensions = [0]
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norms : tensor<8x8xf32>, tensor<4xf32>
}

// -----

// Sums of rows by place are the gradient of a table as well.

// CHECK-LABEL: func.func @rows(
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[H:.*]] = bsr.scatter_add
// CHECK:         %[[S:.*]] = bsr.sample %{{.*}}, %[[H]]
// CHECK:         %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         linalg.reduce {{.*}} ins(%[[D]]
#id = affine_map<(i, j) -> (i, j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @rows(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %ids: tensor<4xi32> {bsr.name = "ids"}) -> (tensor<8x8xf32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %c48 = arith.constant dense<0.0> : tensor<4x8xf32>
  %rows = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<4xi32>) outs(%c48 : tensor<4x8xf32>) {
  ^bb0(%a: i32, %o: f32):
    %0 = arith.index_cast %a : i32 to index
    %1 = linalg.index 1 : index
    %2 = tensor.extract %w[%0, %1] : tensor<8x8xf32>
    linalg.yield %2 : f32
  } -> tensor<4x8xf32>
  %dy = linalg.exp ins(%rows : tensor<4x8xf32>) outs(%c48 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %h = bsr.scatter_add %ids, %dy feature_dim = 1 : tensor<4xi32>, tensor<4x8xf32> -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %dz = linalg.mul ins(%rows, %dy : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c48 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = bsr.scatter_add %ids, %dz feature_dim = 1 : tensor<4xi32>, tensor<4x8xf32> -> tensor<8x8xf32>
  %next = linalg.sub ins(%w, %g : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %norm : tensor<8x8xf32>, tensor<f32>
}

// -----

// The gradient of two weights that are stacked in front of one product: each
// part of it is masked.

// CHECK-LABEL: func.func @stack(
// CHECK-SAME:    %[[PW:[^:]*]]: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.density = 5.000000e-01 : f64, bsr.name = "w"
// CHECK-SAME:    %[[PV:[^:]*]]: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.density = 5.000000e-01 : f64, bsr.name = "v"
// CHECK-NOT:     bsr.unmasked
// CHECK:         %[[H:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<2x8x8xf32>)
// CHECK:         tensor.extract_slice %[[H]][1, 0, 0]
// CHECK:         bsr.sample %[[PV]]
// CHECK:         %[[V:.*]] = tensor.insert_slice {{.*}} into %[[H]][1, 0, 0]
// CHECK:         tensor.extract_slice %[[V]][0, 0, 0]
// CHECK:         bsr.sample %[[PW]]
// CHECK:         %[[W:.*]] = tensor.insert_slice {{.*}} into %[[V]][0, 0, 0]
// CHECK:         linalg.reduce {{.*}} ins(%[[W]]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
#other = #bsr.mark<block = 4x4, density = 0.5, weight = "v">
// expected-remark @below {{masked the gradients of 2 weights}}
func.func @stack(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %v: tensor<8x8xf32> {bsr.name = "v", bsr.mark = #other},
    %x: tensor<2x4x8xf32>) -> tensor<f32> {
  %c = arith.constant dense<0.0> : tensor<2x8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<2x4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %a = tensor.expand_shape %w [[0, 1], [2]] output_shape [1, 8, 8] : tensor<8x8xf32> into tensor<1x8x8xf32>
  %b = tensor.expand_shape %v [[0, 1], [2]] output_shape [1, 8, 8] : tensor<8x8xf32> into tensor<1x8x8xf32>
  %both = tensor.concat dim(0) %a, %b : (tensor<1x8x8xf32>, tensor<1x8x8xf32>) -> tensor<2x8x8xf32>
  %y = linalg.batch_matmul ins(%x, %both : tensor<2x4x8xf32>, tensor<2x8x8xf32>) outs(%c4 : tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
  %h = linalg.generic {indexing_maps = [affine_map<(e, t, i, j) -> (e, t, i)>, affine_map<(e, t, i, j) -> (e, t, j)>,
                                        affine_map<(e, t, i, j) -> (e, i, j)>],
                       iterator_types = ["parallel", "reduction", "parallel", "parallel"]}
      ins(%x, %y : tensor<2x4x8xf32>, tensor<2x4x8xf32>) outs(%c : tensor<2x8x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<2x8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1, 2]
  return %norm : tensor<f32>
}

// -----

// Within the step as well, the sum of a gradient and of a penalty's derivative
// is masked; what is added to a weight after a step within the step is not.

// CHECK-LABEL: func.func @penalized(
// CHECK:         %[[P:.*]] = linalg.matmul indexing_maps
// CHECK-NEXT:    %[[S:.*]] = bsr.sample %{{.*}}, %[[P]]
// CHECK-NEXT:    %[[D:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK-NEXT:    %[[E:.*]] = linalg.exp
// CHECK-NEXT:    %[[SUM:.*]] = linalg.add ins(%[[D]], %[[E]]
// CHECK-NEXT:    %[[T:.*]] = bsr.sample %{{.*}}, %[[SUM]]
// CHECK-NEXT:    %[[H:.*]] = bsr.to_dense %{{.*}}, %[[T]]
// CHECK-NEXT:    linalg.reduce {{.*}} ins(%[[H]]
// CHECK-NEXT:    %[[STEP:.*]] = linalg.sub ins(%{{.*}}, %[[H]]
// CHECK-NEXT:    %[[SHIFTED:.*]] = linalg.sub ins(%[[STEP]],
// CHECK-NOT:     bsr.sample
// CHECK:         linalg.reduce {{.*}} ins(%[[SHIFTED]]
#turned = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @penalized(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<4x8xf32>) -> (tensor<f32>, tensor<f32>) {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %one = arith.constant dense<1.0> : tensor<8x8xf32>
  %c4 = arith.constant dense<0.0> : tensor<4x8xf32>
  %s = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c4 : tensor<4x8xf32>) -> tensor<4x8xf32>
  %p = linalg.matmul indexing_maps = #turned ins(%x, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %e = linalg.exp ins(%w : tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %h = linalg.add ins(%p, %e : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %norm = linalg.reduce { arith.addf } ins(%h : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  %v = linalg.sub ins(%w, %h : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %shifted = linalg.sub ins(%v, %one : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %penalty = linalg.reduce { arith.addf } ins(%shifted : tensor<8x8xf32>) outs(%s : tensor<f32>) dimensions = [0, 1]
  return %norm, %penalty : tensor<f32>, tensor<f32>
}
