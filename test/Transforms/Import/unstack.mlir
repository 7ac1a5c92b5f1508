// RUN: sparse-opt %s --split-input-file --bsr-unstack --canonicalize --cse | FileCheck %s

// The optimizer over a whole stack is one for each matrix, moments and scalars
// included; names, marks, aliases and results follow, in place.

// CHECK-LABEL: func.func @optimizer(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<4x8xf32> {bsr.name = "x"},
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<8x8xf32> {bsr.aliases = ["t.0"], bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w.0">, bsr.name = "w.0", bsr.origin = {name = "w", offsets = array<i64: 0, 0, 0>, shape = array<i64: 2, 8, 8>, sizes = array<i64: 1, 8, 8>}, bsr.result = 1 : i64},
// CHECK-SAME:    %[[W1:[^:]*]]: tensor<8x8xf32> {bsr.aliases = ["t.1"], bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w.1">, bsr.name = "w.1", bsr.origin = {name = "w", offsets = array<i64: 1, 0, 0>, shape = array<i64: 2, 8, 8>, sizes = array<i64: 1, 8, 8>}, bsr.result = 2 : i64},
// CHECK-SAME:    %[[M0:[^:]*]]: tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w.0">, bsr.name = "m.0", bsr.origin = {name = "m", offsets = array<i64: 0, 0, 0>, shape = array<i64: 2, 8, 8>, sizes = array<i64: 1, 8, 8>}, bsr.result = 4 : i64},
// CHECK-SAME:    %[[M1:[^:]*]]: tensor<8x8xf32> {{.*}} bsr.name = "m.1", {{.*}} bsr.result = 5 : i64},
// CHECK-SAME:    %[[S:[^:]*]]: tensor<f32> {bsr.name = "s", bsr.result = 0 : i64},
// CHECK-SAME:    %[[B:[^:]*]]: tensor<2x8xf32> {bsr.name = "b", bsr.result = 3 : i64})
// CHECK-SAME:    -> (tensor<f32>, tensor<8x8xf32> {bsr.name = "next.0"}, tensor<8x8xf32> {bsr.name = "next.1"}, tensor<2x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>)
// CHECK:         %[[N0:.*]]:2 = linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} ins(%[[W0]], %[[M0]], %[[S]] :
// CHECK:         %[[N1:.*]]:2 = linalg.generic {{.*}} ins(%[[W1]], %[[M1]], %[[S]] :
// CHECK:         return %[[S]], %[[N0]]#0, %[[N1]]#0, %[[B]], %[[N0]]#1, %[[N1]]#1
!s = tensor<2x8x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
#id = affine_map<(l, r, c) -> (l, r, c)>
#scalar = affine_map<(l, r, c) -> ()>
func.func @optimizer(%x: tensor<4x8xf32> {bsr.name = "x"},
                     %w: !s {bsr.name = "w", bsr.aliases = ["t"], bsr.mark = #mark, bsr.result = 1 : i64},
                     %m: !s {bsr.name = "m", bsr.mark = #mark, bsr.result = 3 : i64},
                     %t: tensor<f32> {bsr.name = "s", bsr.result = 0 : i64},
                     %b: tensor<2x8xf32> {bsr.name = "b", bsr.result = 2 : i64})
    -> (tensor<f32>, !s {bsr.name = "next"}, tensor<2x8xf32>, !s) {
  %e = tensor.empty() : !s
  %next:2 = linalg.generic {indexing_maps = [#id, #id, #scalar, #id, #id],
                            iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %m, %t : !s, !s, tensor<f32>) outs(%e, %e : !s, !s) {
  ^bb0(%a: f32, %c: f32, %d: f32, %o: f32, %q: f32):
    %0 = arith.mulf %c, %d : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1, %0 : f32, f32
  } -> (!s, !s)
  return %t, %next#0, %b, %next#1 : tensor<f32>, !s, tensor<2x8xf32>, !s
}

// -----

// The gradient of each layer is inserted into zeros, in any order; a matrix that
// nothing was inserted for is a fill. Slices with and without the dimension of the
// stack, one matrix or several.

// CHECK-LABEL: func.func @gradient(
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W1:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W2:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[X:[^:]*]]: tensor<8x8xf32>
// CHECK:         %[[G0:.*]] = linalg.matmul ins(%[[X]], %[[W1]] :
// CHECK:         %[[G2:.*]] = linalg.matmul ins(%[[X]], %[[W2]] :
// CHECK:         %[[ZERO:.*]] = linalg.fill {{.*}} -> tensor<8x8xf32>
// CHECK:         %[[A0:.*]] = linalg.generic {{.*}} ins(%[[W0]], %[[G0]] :
// CHECK:         %[[A1:.*]] = linalg.generic {{.*}} ins(%[[W1]], %[[ZERO]] :
// CHECK:         %[[A2:.*]] = linalg.generic {{.*}} ins(%[[W2]], %[[G2]] :
// CHECK:         return %[[A0]], %[[A1]], %[[A2]]
!s = tensor<3x8x8xf32>
!m = tensor<8x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
func.func @gradient(%w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64},
                    %x: !m {bsr.name = "x"}) -> !s {
  %zero = arith.constant dense<0.0> : !m
  %f = arith.constant 0.0 : f32
  %e = tensor.empty() : !s
  %zeros = linalg.fill ins(%f : f32) outs(%e : !s) -> !s
  %w1 = tensor.extract_slice %w[1, 0, 0] [1, 8, 8] [1, 1, 1] : !s to tensor<1x8x8xf32>
  %m1 = tensor.collapse_shape %w1 [[0, 1], [2]] : tensor<1x8x8xf32> into !m
  %g0 = linalg.matmul ins(%x, %m1 : !m, !m) outs(%zero : !m) -> !m
  %back = tensor.extract_slice %w[1, 0, 0] [2, 8, 8] [1, 1, 1] : !s to tensor<2x8x8xf32>
  %m2 = tensor.extract_slice %back[1, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<2x8x8xf32> to !m
  %g2 = linalg.matmul ins(%x, %m2 : !m, !m) outs(%zero : !m) -> !m
  %s2 = tensor.insert_slice %g2 into %zeros[2, 0, 0] [1, 8, 8] [1, 1, 1] : !m into !s
  %one = tensor.expand_shape %g0 [[0, 1], [2]] output_shape [1, 8, 8] : !m into tensor<1x8x8xf32>
  %s0 = tensor.insert_slice %one into %s2[0, 0, 0] [1, 8, 8] [1, 1, 1] : tensor<1x8x8xf32> into !s
  %next = linalg.add ins(%w, %s0 : !s, !s) outs(%e : !s) -> !s
  return %next : !s
}

// -----

// A sum over all matrices is one after the other; the sum of each alone is a sum
// of its own. A product in batches is a product of each; the copy among its
// operands that transposes each matrix, a transpose of each.

// CHECK-LABEL: func.func @sums(
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W1:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[X:[^:]*]]: tensor<2x4x8xf32>
// CHECK-DAG:     %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<f32>
// CHECK:         %[[S0:.*]] = linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]} ins(%[[W0]] : tensor<8x8xf32>) outs(%[[ZERO]] :
// CHECK:         %[[S1:.*]] = linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]} ins(%[[W1]] : tensor<8x8xf32>) outs(%[[S0]] :
// CHECK:         %[[N0:.*]] = linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]} ins(%[[W0]] : tensor<8x8xf32>) outs(%[[ZERO]] :
// CHECK:         %[[N1:.*]] = linalg.generic {{.*}}iterator_types = ["reduction", "reduction"]} ins(%[[W1]] : tensor<8x8xf32>) outs(%[[ZERO]] :
// CHECK:         %[[A0:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} ins(%[[W0]], %[[N0]] : tensor<8x8xf32>, tensor<f32>)
// CHECK:         %[[A1:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel"]} ins(%[[W1]], %[[N1]] : tensor<8x8xf32>, tensor<f32>)
// CHECK:         %[[T0:.*]] = linalg.generic {{.*}} ins(%[[W0]] : tensor<8x8xf32>)
// CHECK:         %[[T1:.*]] = linalg.generic {{.*}} ins(%[[W1]] : tensor<8x8xf32>)
// CHECK:         %[[X0:.*]] = tensor.extract_slice %[[X]][0, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<2x4x8xf32> to tensor<4x8xf32>
// CHECK:         linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[X0]], %[[T0]] :
// CHECK:         %[[X1:.*]] = tensor.extract_slice %[[X]][1, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<2x4x8xf32> to tensor<4x8xf32>
// CHECK:         linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[X1]], %[[T1]] :
// CHECK:         return %[[A0]], %[[A1]], %[[S1]]
!s = tensor<2x8x8xf32>
!x = tensor<2x4x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
#id = affine_map<(l, r, c) -> (l, r, c)>
#first = affine_map<(l, r, c) -> (l)>
#none = affine_map<(l, r, c) -> ()>
func.func @sums(%w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64},
                %x: !x {bsr.name = "x"}) -> (!s, tensor<f32>, !x) {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %sum = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction", "reduction"]}
      ins(%w : !s) outs(%zero : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %zeros = arith.constant dense<0.0> : tensor<2xf32>
  %norms = linalg.generic {indexing_maps = [#id, #first], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%w : !s) outs(%zeros : tensor<2xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<2xf32>
  %e = tensor.empty() : !s
  %next = linalg.generic {indexing_maps = [#id, #first, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %norms : !s, tensor<2xf32>) outs(%e : !s) {
  ^bb0(%a: f32, %n: f32, %o: f32):
    %0 = arith.divf %a, %n : f32
    linalg.yield %0 : f32
  } -> !s
  %t = linalg.transpose ins(%w : !s) outs(%e : !s) permutation = [0, 2, 1]
  %c = arith.constant dense<0.0> : !x
  %y = linalg.batch_matmul ins(%x, %t : !x, !s) outs(%c : !x) -> !x
  return %next, %sum, %y : !s, tensor<f32>, !x
}

// -----

// What no rule takes apart reads the matrices stacked again: a slice at an index
// that is not known, a transpose of the stack itself, an operation on indices, an
// operation within a region. What others use stays whole: here the average.

// CHECK-LABEL: func.func @whole(
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W1:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[V:[^:]*]]: tensor<2x8x8xf32>
// CHECK:         %[[E:.*]] = tensor.empty() : tensor<2x8x8xf32>
// CHECK:         %[[I:.*]] = tensor.insert_slice %[[W0]] into %[[E]][0, 0, 0]
// CHECK:         %[[W:.*]] = tensor.insert_slice %[[W1]] into %[[I]][1, 0, 0]
// CHECK:         tensor.extract_slice %[[W]][%{{.*}}, 0, 0]
// CHECK:         linalg.generic {{.*}} ins(%[[W]] :
// CHECK:         linalg.generic {{.*}} ins(%[[W]] :
// CHECK:         scf.if
// CHECK:           linalg.negf ins(%[[W]] :
// CHECK:         %[[V0:.*]] = tensor.extract_slice %[[V]][0, 0, 0]
// CHECK:         %[[A0:.*]] = linalg.generic {{.*}} ins(%[[W0]], %[[V0]] :
// CHECK:         %[[V1:.*]] = tensor.extract_slice %[[V]][1, 0, 0]
// CHECK:         %[[A1:.*]] = linalg.generic {{.*}} ins(%[[W1]], %[[V1]] :
// CHECK:         %[[J:.*]] = tensor.insert_slice %[[A0]] into
// CHECK:         %[[A:.*]] = tensor.insert_slice %[[A1]] into %[[J]]
// CHECK:         return %[[W0]], %[[W1]], %{{.*}}, %[[A]],
!s = tensor<2x8x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
#id = affine_map<(l, r, c) -> (l, r, c)>
#roll = affine_map<(l, r, c) -> (r, l, c)>
func.func @whole(%w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64},
                 %v: !s {bsr.name = "average"}, %i: index, %c: i1)
    -> (!s, tensor<8x8xf32>, !s, tensor<8x2x8xf32>, !s, !s) {
  %slice = tensor.extract_slice %w[%i, 0, 0] [1, 8, 8] [1, 1, 1] : !s to tensor<8x8xf32>
  %et = tensor.empty() : tensor<8x2x8xf32>
  %turned = linalg.generic {indexing_maps = [#id, #roll], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : !s) outs(%et : tensor<8x2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8x2x8xf32>
  %e = tensor.empty() : !s
  %counted = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : !s) outs(%e : !s) {
  ^bb0(%a: f32, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %0 : index to i32
    %2 = arith.sitofp %1 : i32 to f32
    %3 = arith.mulf %a, %2 : f32
    linalg.yield %3 : f32
  } -> !s
  %branch = scf.if %c -> !s {
    %0 = linalg.negf ins(%w : !s) outs(%e : !s) -> !s
    scf.yield %0 : !s
  } else {
    scf.yield %v : !s
  }
  %average = linalg.add ins(%w, %v : !s, !s) outs(%e : !s) -> !s
  return %w, %slice, %average, %turned, %counted, %branch
      : !s, tensor<8x8xf32>, !s, tensor<8x2x8xf32>, !s, !s
}

// -----

// Stacks of stacks, matrices with heads: from the outside in, all but the rows and
// the columns. The shape is that of the whole.

// CHECK-LABEL: func.func @nested(
// CHECK-SAME:    tensor<8x2x4xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, dims = [row, col, col], weight = "w.0.0">, bsr.name = "w.0.0", bsr.origin = {name = "w", offsets = array<i64: 0, 0, 0, 0, 0>, shape = array<i64: 2, 1, 8, 2, 4>, sizes = array<i64: 1, 1, 8, 2, 4>}, bsr.result = 0 : i64}
// CHECK-SAME:    tensor<8x2x4xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, dims = [row, col, col], weight = "w.1.0">, bsr.name = "w.1.0", bsr.origin = {name = "w", offsets = array<i64: 1, 0, 0, 0, 0>, shape = array<i64: 2, 1, 8, 2, 4>, sizes = array<i64: 1, 1, 8, 2, 4>}, bsr.result = 1 : i64}
// CHECK:         return %{{.*}}, %{{.*}} : tensor<8x2x4xf32>, tensor<8x2x4xf32>
!s = tensor<2x1x8x2x4xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, stack, row, col, col], weight = "w">
func.func @nested(%w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64}) -> !s {
  return %w : !s
}

// -----

// What a loop stored for the backward pass is a value: also where the stored form
// has a dimension more.

// CHECK-LABEL: func.func @saved(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<4x8xf32> {bsr.name = "x"}
// CHECK-NOT:     insert_slice
// CHECK:         %[[Y:.*]] = linalg.exp ins(%[[X]] :
// CHECK:         %[[Z:.*]] = linalg.negf ins(%[[Y]] :
// CHECK:         return %{{.*}}, %[[Z]]
!s = tensor<1x8x8xf32>
!x = tensor<4x8xf32>
!saved = tensor<2x4x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
#id = affine_map<(l, r, c) -> (l, r, c)>
#back = affine_map<(l, r, c) -> (r, c)>
func.func @saved(%x: !x {bsr.name = "x"}, %w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64})
    -> (!s, !x) {
  %e = tensor.empty() : !x
  %e1 = tensor.empty() : tensor<1x4x8xf32>
  %saved = tensor.empty() : !saved
  %y = linalg.exp ins(%x : !x) outs(%e : !x) -> !x
  %y1 = linalg.generic {indexing_maps = [#back, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y : !x) outs(%e1 : tensor<1x4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<1x4x8xf32>
  %x1 = tensor.expand_shape %x [[0, 1], [2]] output_shape [1, 4, 8] : !x into tensor<1x4x8xf32>
  %s0 = tensor.insert_slice %y1 into %saved[0, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<1x4x8xf32> into !saved
  %s1 = tensor.insert_slice %x1 into %s0[1, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<1x4x8xf32> into !saved
  %r = tensor.extract_slice %s1[0, 0, 0] [1, 4, 8] [1, 1, 1] : !saved to tensor<1x4x8xf32>
  %r0 = tensor.collapse_shape %r [[0, 1], [2]] : tensor<1x4x8xf32> into !x
  %z = linalg.negf ins(%r0 : !x) outs(%e : !x) -> !x
  return %w, %z : !s, !x
}

// -----

// The masks of a stack are a mask for each of its matrices.

// CHECK-LABEL: func.func @masks(
// CHECK-SAME:    tensor<8x8xi1> {bsr.mask = #bsr.mask<weight = "w.0", transpose = true>, bsr.name = "mask.0", bsr.origin = {name = "mask", offsets = array<i64: 0, 0, 0>, shape = array<i64: 2, 8, 8>, sizes = array<i64: 1, 8, 8>}, bsr.result = 0 : i64},
// CHECK-SAME:    %[[K1:[^:]*]]: tensor<8x8xi1> {bsr.mask = #bsr.mask<weight = "w.1", transpose = true>, bsr.name = "mask.1", {{.*}}bsr.result = 1 : i64},
// CHECK-SAME:    tensor<8x8xf32> {{.*}}bsr.name = "w.0", {{.*}}bsr.result = 2 : i64},
// CHECK-SAME:    %[[W1:[^:]*]]: tensor<8x8xf32> {{.*}}bsr.name = "w.1", {{.*}}bsr.result = 3 : i64}
// CHECK:         linalg.generic {{.*}} ins(%[[K1]], %[[W1]] :
!s = tensor<2x8x8xf32>
!b = tensor<2x8x8xi1>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
#id = affine_map<(r, c) -> (r, c)>
#turn = affine_map<(r, c) -> (c, r)>
func.func @masks(%mask: !b {bsr.name = "mask", bsr.mask = #bsr.mask<weight = "w", transpose = true>, bsr.result = 0 : i64},
                 %w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 1 : i64})
    -> (!b, !s, tensor<8x8xf32> {bsr.name = "y"}) {
  %zero = arith.constant 0.0 : f32
  %m = tensor.extract_slice %mask[1, 0, 0] [1, 8, 8] [1, 1, 1] : !b to tensor<8x8xi1>
  %v = tensor.extract_slice %w[1, 0, 0] [1, 8, 8] [1, 1, 1] : !s to tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#turn, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %v : tensor<8x8xi1>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%k: i1, %a: f32, %o: f32):
    %0 = arith.select %k, %a, %zero : f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  return %mask, %w, %y : !b, !s, tensor<8x8xf32>
}

// -----

// A loop that takes two matrices at a time (`unroll=2`) reads them from a stack of
// stacks of two, and stores their gradients in one; the last matrix is apart. What
// it saves for the backward pass, too.

// CHECK-LABEL: func.func @unrolled(
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W1:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W2:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W3:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W4:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[X:[^:]*]]: tensor<8x8xf32>
// CHECK-NOT:     _shape
// CHECK:         linalg.matmul ins(%[[X]], %[[W2]] :
// CHECK:         %[[G3:.*]] = linalg.matmul ins(%[[X]], %[[W3]] :
// CHECK-NOT:     _slice
// CHECK:         %[[Z:.*]] = linalg.fill {{.*}} -> tensor<8x8xf32>
// CHECK-NOT:     _slice
// CHECK:         linalg.generic {{.*}} ins(%[[W0]], %[[Z]] :
// CHECK:         linalg.generic {{.*}} ins(%[[W1]], %[[Z]] :
// CHECK:         linalg.generic {{.*}} ins(%[[W2]], %[[X]] :
// CHECK:         linalg.generic {{.*}} ins(%[[W3]], %[[G3]] :
// CHECK:         linalg.generic {{.*}} ins(%[[W4]], %[[X]] :
!s = tensor<5x8x8xf32>
!four = tensor<4x8x8xf32>
!two = tensor<2x8x8xf32>
!split = tensor<2x2x8x8xf32>
!m = tensor<8x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
func.func @unrolled(%w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64},
                    %x: !m {bsr.name = "x"}) -> (!s, !m) {
  %f = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : !m
  %e = tensor.empty() : !s
  %e2 = tensor.empty() : !two
  %es = tensor.empty() : !split
  %zeros = linalg.fill ins(%f : f32) outs(%es : !split) -> !split
  %most = tensor.extract_slice %w[0, 0, 0] [4, 8, 8] [1, 1, 1] : !s to !four
  %pairs = tensor.expand_shape %most [[0, 1], [2], [3]] output_shape [2, 2, 8, 8] : !four into !split
  %pair = tensor.extract_slice %pairs[1, 0, 0, 0] [1, 2, 8, 8] [1, 1, 1, 1] : !split to tensor<1x2x8x8xf32>
  %both = tensor.collapse_shape %pair [[0, 1], [2], [3]] : tensor<1x2x8x8xf32> into !two
  %w2 = tensor.extract_slice %both[0, 0, 0] [1, 8, 8] [1, 1, 1] : !two to !m
  %w3 = tensor.extract_slice %pairs[1, 1, 0, 0] [1, 1, 8, 8] [1, 1, 1, 1] : !split to !m
  %y = linalg.matmul ins(%x, %w2 : !m, !m) outs(%zero : !m) -> !m
  %g3 = linalg.matmul ins(%x, %w3 : !m, !m) outs(%zero : !m) -> !m
  %s0 = tensor.insert_slice %x into %e2[0, 0, 0] [1, 8, 8] [1, 1, 1] : !m into !two
  %s1 = tensor.insert_slice %g3 into %s0[1, 0, 0] [1, 8, 8] [1, 1, 1] : !m into !two
  %gs = tensor.insert_slice %s1 into %zeros[1, 0, 0, 0] [1, 2, 8, 8] [1, 1, 1, 1] : !two into !split
  %joined = tensor.collapse_shape %gs [[0, 1], [2], [3]] : !split into !four
  %part = tensor.insert_slice %joined into %e[0, 0, 0] [4, 8, 8] [1, 1, 1] : !four into !s
  %g = tensor.insert_slice %x into %part[4, 0, 0] [1, 8, 8] [1, 1, 1] : !m into !s
  %next = linalg.add ins(%w, %g : !s, !s) outs(%e : !s) -> !s
  return %next, %y : !s, !m
}

// -----

// Backward, the step that is left over comes first, so that pairs of what was saved
// lie across: a slice of a slice, and a slice of what was inserted.

// CHECK-LABEL: func.func @remainder(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<2x4x8xf32> {bsr.name = "x"}, %[[Y:[^:]*]]: tensor<1x4x8xf32> {bsr.name = "y"}
// CHECK:         %[[X1:.*]] = tensor.extract_slice %[[X]][1, 0, 0] [1, 4, 8] [1, 1, 1] :
// CHECK-NOT:     _slice
// CHECK:         return %{{.*}}, %[[X1]], %[[Y]]
!s = tensor<1x8x8xf32>
!one = tensor<1x4x8xf32>
!two = tensor<2x4x8xf32>
!saved = tensor<3x4x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
func.func @remainder(%x: !two {bsr.name = "x"}, %y: !one {bsr.name = "y"},
                     %w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64}) -> (!s, !one, !one) {
  %saved = tensor.empty() : !saved
  %s0 = tensor.insert_slice %x into %saved[0, 0, 0] [2, 4, 8] [1, 1, 1] : !two into !saved
  %s1 = tensor.insert_slice %y into %s0[2, 0, 0] [1, 4, 8] [1, 1, 1] : !one into !saved
  %pair = tensor.extract_slice %s1[1, 0, 0] [2, 4, 8] [1, 1, 1] : !saved to !two
  %a = tensor.extract_slice %pair[0, 0, 0] [1, 4, 8] [1, 1, 1] : !two to !one
  %b = tensor.extract_slice %pair[1, 0, 0] [1, 4, 8] [1, 1, 1] : !two to !one
  return %w, %a, %b : !s, !one, !one
}
