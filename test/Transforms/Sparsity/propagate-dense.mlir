// RUN: sparse-opt %s --split-input-file --bsr-propagate=require-sparse | FileCheck %s --implicit-check-not=bsr.to_dense

// The rules that push to_dense down, named as in the description of bsr-propagate.

// D1: forward, and input gradient, of a layer as JAX writes it.
// CHECK-LABEL: func.func @layer(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[W:[^:]*]]: tensor<2x4x4xf32>, %[[X:[^:]*]]: tensor<3x5x8xf32>, %[[DY:[^:]*]]: tensor<3x5x12xf32>)
// CHECK-NEXT:    %[[Y:.*]] = bsr.spmm %[[P]], %[[W]], %[[X]] feature_dim = 2
// CHECK-NEXT:    %[[DX:.*]] = bsr.spmm %[[P]], %[[W]], %[[DY]] transpose feature_dim = 2
// CHECK-NEXT:    return %[[Y]], %[[DX]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @layer(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<3x5x8xf32>, %dy: tensor<3x5x12xf32>)
    -> (tensor<3x5x12xf32>, tensor<3x5x8xf32>) {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  // The zero test looks through broadcasts and reshapes.
  %e0 = tensor.empty() : tensor<180xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(d0) -> ()>, affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]}
      ins(%zero : tensor<f32>) outs(%e0 : tensor<180xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<180xf32>
  %c0 = tensor.expand_shape %b [[0, 1, 2]] output_shape [3, 5, 12] : tensor<180xf32> into tensor<3x5x12xf32>
  %c1 = arith.constant dense<0.0> : tensor<3x5x8xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d2)>,
                       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %d : tensor<3x5x8xf32>, tensor<8x12xf32>) outs(%c0 : tensor<3x5x12xf32>) {
  ^bb0(%a: f32, %b0: f32, %o: f32):
    %1 = arith.mulf %a, %b0 : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<3x5x12xf32>
  %dx = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d2, d3)>,
                       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%dy, %d : tensor<3x5x12xf32>, tensor<8x12xf32>) outs(%c1 : tensor<3x5x8xf32>) {
  ^bb0(%a: f32, %b0: f32, %o: f32):
    %1 = arith.mulf %a, %b0 : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<3x5x8xf32>
  return %y, %dx : tensor<3x5x12xf32>, tensor<3x5x8xf32>
}

// -----

// D1, D2: named products; the weight transposed by torch, then on the left, which
// needs the result transposed; a vector has no token dimension.
// CHECK-LABEL: func.func @named(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<12x8, block = 4x4, slots = 2>, %[[W:[^:]*]]: tensor<2x4x4xf32>, %[[X:[^:]*]]: tensor<5x8xf32>, %[[V:[^:]*]]: tensor<8xf32>)
// CHECK:         %[[Y:.*]] = bsr.spmm %[[P]], %[[W]], %[[X]] transpose feature_dim = 1
// CHECK:         %[[L:.*]] = bsr.spmm %[[P]], %[[W]], %{{.*}} transpose feature_dim = 0 {{.*}} tensor<8x5xf32> -> tensor<12x5xf32>
// CHECK:         %[[U:.*]] = bsr.spmm %[[P]], %[[W]], %[[V]] transpose feature_dim = 0 {{.*}} tensor<8xf32> -> tensor<12xf32>
// CHECK:         return %[[Y]], %[[L]], %[[U]]
!p = !bsr.pattern<12x8, block = 4x4, slots = 2>
func.func @named(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<5x8xf32>, %v: tensor<8xf32>)
    -> (tensor<5x12xf32>, tensor<12x5xf32>, tensor<12xf32>) {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<12x8xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %wt = linalg.transpose ins(%d : tensor<12x8xf32>) outs(%e : tensor<8x12xf32>) permutation = [1, 0]
  %c0 = arith.constant dense<0.0> : tensor<5x12xf32>
  %y = linalg.matmul ins(%x, %wt : tensor<5x8xf32>, tensor<8x12xf32>) outs(%c0 : tensor<5x12xf32>) -> tensor<5x12xf32>
  %e1 = tensor.empty() : tensor<8x5xf32>
  %xt = linalg.transpose ins(%x : tensor<5x8xf32>) outs(%e1 : tensor<8x5xf32>) permutation = [1, 0]
  %c1 = arith.constant dense<0.0> : tensor<12x5xf32>
  %l = linalg.matmul ins(%d, %xt : tensor<12x8xf32>, tensor<8x5xf32>) outs(%c1 : tensor<12x5xf32>) -> tensor<12x5xf32>
  %c2 = arith.constant dense<0.0> : tensor<12xf32>
  %u = linalg.matvec ins(%d, %v : tensor<12x8xf32>, tensor<8xf32>) outs(%c2 : tensor<12xf32>) -> tensor<12xf32>
  return %y, %l, %u : tensor<5x12xf32>, tensor<12x5xf32>, tensor<12xf32>
}

// -----

// D1 where a middle dimension is contracted (token mixing): the features are
// there; what the result's order needs, and what undoes it, cancel.
// CHECK-LABEL: func.func @mix(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[W:[^:]*]]: tensor<2x4x4xf32>, %[[X:[^:]*]]: tensor<3x8x5xf32>)
// CHECK-NEXT:    %[[Y:.*]] = bsr.spmm %[[P]], %[[W]], %[[X]] feature_dim = 1 {{.*}} tensor<3x8x5xf32> -> tensor<3x12x5xf32>
// CHECK-NEXT:    return %[[Y]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @mix(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<3x8x5xf32>) -> tensor<3x12x5xf32> {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %c = arith.constant dense<0.0> : tensor<3x5x12xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d3, d1)>, affine_map<(d0, d1, d2, d3) -> (d3, d2)>,
                       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %d : tensor<3x8x5xf32>, tensor<8x12xf32>) outs(%c : tensor<3x5x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<3x5x12xf32>
  %e = tensor.empty() : tensor<3x12x5xf32>
  %t = linalg.transpose ins(%y : tensor<3x5x12xf32>) outs(%e : tensor<3x12x5xf32>) permutation = [0, 2, 1]
  return %t : tensor<3x12x5xf32>
}

// -----

// The same with the transposes around the product in the graph.
// CHECK-LABEL: func.func @swap(
// CHECK-SAME:    %[[X:[^: ]*]]: tensor<3x8x5xf32>)
// CHECK-NEXT:    %[[Y:.*]] = bsr.spmm %{{.*}}, %{{.*}}, %[[X]] feature_dim = 1 {{.*}} tensor<3x8x5xf32> -> tensor<3x12x5xf32>
// CHECK-NEXT:    return %[[Y]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @swap(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<3x8x5xf32>) -> tensor<3x12x5xf32> {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e0 = tensor.empty() : tensor<3x5x8xf32>
  %t0 = linalg.transpose ins(%x : tensor<3x8x5xf32>) outs(%e0 : tensor<3x5x8xf32>) permutation = [0, 2, 1]
  %c = arith.constant dense<0.0> : tensor<3x5x12xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d2)>,
                       affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%t0, %d : tensor<3x5x8xf32>, tensor<8x12xf32>) outs(%c : tensor<3x5x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<3x5x12xf32>
  %e = tensor.empty() : tensor<3x12x5xf32>
  %t = linalg.transpose ins(%y : tensor<3x5x12xf32>) outs(%e : tensor<3x12x5xf32>) permutation = [0, 2, 1]
  return %t : tensor<3x12x5xf32>
}

// -----

// D1 + c, and D3 for the casts of a weight stored in bf16.
// CHECK-LABEL: func.func @bias(
// CHECK-SAME:    %[[W:[^: ]*]]: tensor<2x4x4xbf16>, %[[X:[^:]*]]: tensor<5x8xf32>, %[[B:[^:]*]]: tensor<5x12xf32>)
// CHECK:         %[[V:.*]] = linalg.generic {{.*}} ins(%[[W]] : tensor<2x4x4xbf16>)
// CHECK:           arith.extf
// CHECK:         %[[Y:.*]] = bsr.spmm %{{.*}}, %[[V]], %[[X]] feature_dim = 1
// CHECK:         linalg.add ins(%[[Y]], %[[B]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @bias(%p: !p, %w: tensor<2x4x4xbf16>, %x: tensor<5x8xf32>, %b: tensor<5x12xf32>) -> tensor<5x12xf32> {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xbf16> -> tensor<8x12xbf16>
  %e = tensor.empty() : tensor<8x12xf32>
  %f = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<8x12xbf16>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<8x12xf32>
  %y = linalg.matmul ins(%x, %f : tensor<5x8xf32>, tensor<8x12xf32>) outs(%b : tensor<5x12xf32>) -> tensor<5x12xf32>
  return %y : tensor<5x12xf32>
}

// -----

// D3: a body that is zero off the pattern whatever the dense operand is samples
// it; select(c, 0, 0) is 0.
// CHECK-LABEL: func.func @select(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[W:[^:]*]]: tensor<2x4x4xf32>, %[[C:[^:]*]]: tensor<2x4x4xi1>,
// CHECK:         %[[V:.*]] = linalg.generic {{.*}} ins(%[[C]], %[[W]] : tensor<2x4x4xi1>, tensor<2x4x4xf32>)
// CHECK:         bsr.spmm %[[P]], %[[V]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @select(%p: !p, %w: tensor<2x4x4xf32>, %c: tensor<2x4x4xi1>, %x: tensor<5x8xf32>) -> tensor<5x12xf32> {
  %true = arith.constant dense<true> : tensor<i1>
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %dc = bsr.to_dense %p, %c background %true : !p, tensor<2x4x4xi1>, tensor<i1> -> tensor<8x12xi1>
  %e = tensor.empty() : tensor<8x12xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dc, %d : tensor<8x12xi1>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%a: i1, %b: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %0 = arith.select %a, %b, %zero : f32
    linalg.yield %0 : f32
  } -> tensor<8x12xf32>
  %c0 = arith.constant dense<0.0> : tensor<5x12xf32>
  %y = linalg.matmul ins(%x, %m : tensor<5x8xf32>, tensor<8x12xf32>) outs(%c0 : tensor<5x12xf32>) -> tensor<5x12xf32>
  return %y : tensor<5x12xf32>
}

// -----

// D4: the sum of squares of a gradient: absent entries add nothing, dead slots
// are left out.
// CHECK-LABEL: func.func @norm(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[G:[^:]*]]: tensor<2x4x4xf32>, %[[I:[^:]*]]: tensor<f32>)
// CHECK:         %[[LIVE:.*]] = bsr.live %[[P]]
// CHECK:         %[[N:.*]] = linalg.generic {indexing_maps = [#[[ID:.*]], #[[SLOT:.*]], #[[SCALAR:.*]]], iterator_types = ["reduction", "reduction", "reduction"]}
// CHECK-SAME:      ins(%[[G]], %[[LIVE]] : tensor<2x4x4xf32>, tensor<2xi1>) outs(%[[I]] : tensor<f32>)
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f32, %[[L:.*]]: i1, %[[O:.*]]: f32)
// CHECK:           %[[ZERO:.*]] = arith.constant 0.0
// CHECK:           %[[SQUARE:.*]] = arith.mulf %[[A]], %[[A]]
// CHECK:           %[[TERM:.*]] = arith.select %[[L]], %[[SQUARE]], %[[ZERO]]
// CHECK:           %[[SUM:.*]] = arith.addf %[[O]], %[[TERM]]
// CHECK:           linalg.yield %[[SUM]]
// CHECK-NOT:     bsr.num_absent
// CHECK:         return %[[N]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @norm(%p: !p, %g: tensor<2x4x4xf32>, %i: tensor<f32>) -> tensor<f32> {
  %d = bsr.to_dense %p, %g transpose : !p, tensor<2x4x4xf32> -> tensor<12x8xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>],
                       iterator_types = ["reduction", "reduction"]}
      ins(%d : tensor<12x8xf32>) outs(%i : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  return %n : tensor<f32>
}

// -----

// D3b, D4: scaled by a number, the background is 0 times the number (it may be
// NaN); the sum adds it once per absent entry, unless there is none.
// CHECK-LABEL: func.func @background(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[G:[^:]*]]: tensor<2x4x4xf32>, %[[S:[^:]*]]: tensor<f32>)
// CHECK:         %[[C:.*]] = linalg.generic {{.*}}iterator_types = []} ins(%[[S]] : tensor<f32>)
// CHECK:           arith.mulf
// CHECK:         %[[V:.*]] = linalg.generic {{.*}} ins(%[[G]], %[[S]] : tensor<2x4x4xf32>, tensor<f32>)
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[V]], %{{.*}} : tensor<2x4x4xf32>, tensor<2xi1>)
// CHECK:         %[[COUNT:.*]] = bsr.num_absent %[[P]]
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[C]], %[[COUNT]], %[[SUM]] : tensor<f32>, tensor<f32>, tensor<f32>)
// CHECK-NEXT:    ^bb0(%[[C0:.*]]: f32, %[[N0:.*]]: f32, %[[S0:.*]]: f32, %{{.*}}: f32)
// CHECK-NEXT:      %[[ALL:.*]] = arith.mulf %[[N0]], %[[C0]]
// CHECK-NEXT:      %[[TOTAL:.*]] = arith.addf %[[S0]], %[[ALL]]
// CHECK:           %[[NONE:.*]] = arith.cmpf oeq, %[[N0]]
// CHECK-NEXT:      %[[Y:.*]] = arith.select %[[NONE]], %[[S0]], %[[TOTAL]]
// CHECK-NEXT:      linalg.yield %[[Y]]
// CHECK:         return %[[R]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @background(%p: !p, %g: tensor<2x4x4xf32>, %s: tensor<f32>) -> tensor<f32> {
  %d = bsr.to_dense %p, %g : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> (d0, d1)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%d, %s : tensor<8x12xf32>, tensor<f32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x12xf32>
  %i = arith.constant dense<0.0> : tensor<f32>
  %n = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>],
                       iterator_types = ["reduction", "reduction"]}
      ins(%m : tensor<8x12xf32>) outs(%i : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %n : tensor<f32>
}

// -----

// D3, D4 with a uniform operand: optax squares complex numbers as x * x + 0 * 0: the second term is a
// constant, and the background stays zero.
// CHECK-LABEL: func.func @abs_sq(
// CHECK-NOT:     bsr.num_absent
// CHECK:         return
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
#scalar = affine_map<(d0, d1) -> ()>
func.func @abs_sq(%p: !p, %g: tensor<2x4x4xf32>, %i: tensor<f32>) -> tensor<f32> {
  %d = bsr.to_dense %p, %g : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %zero = arith.constant 0.0 : f32
  %im = linalg.fill ins(%zero : f32) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %im2 = linalg.mul ins(%im, %im : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %re2 = linalg.mul ins(%d, %d : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %s = linalg.add ins(%re2, %im2 : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %n = linalg.generic {indexing_maps = [#id, #scalar], iterator_types = ["reduction", "reduction"]}
      ins(%s : tensor<8x12xf32>) outs(%i : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %n : tensor<f32>
}

// -----

// An init that is not read does not keep a matrix.
// CHECK-LABEL: func.func @init(
// CHECK:         tensor.empty() : tensor<8x12xf32>
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @init(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<8x12xf32>) -> tensor<8x12xf32> {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %0 = linalg.exp ins(%x : tensor<8x12xf32>) outs(%d : tensor<8x12xf32>) -> tensor<8x12xf32>
  return %0 : tensor<8x12xf32>
}
