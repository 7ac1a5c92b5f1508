// RUN: sparse-opt %s --split-input-file --bsr-propagate=require-sparse | FileCheck %s --implicit-check-not=bsr.to_dense

// The rules between matrices and vectors along them, named as in the description
// of bsr-propagate.

// V1: vectors as they are, with dimensions of one entry, and broadcast by an
// operation of their own; the transposed matrix swaps rows and columns.
// CHECK-LABEL: func.func @factors(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[A:[^:]*]]: tensor<2x4x4xf32>, %[[R:[^:]*]]: tensor<8xf32>, %[[C:[^:]*]]: tensor<1x12xf32>)
// CHECK-DAG:     %[[VECTOR:.*]] = tensor.collapse_shape %[[C]] {{.*}} into tensor<12xf32>
// CHECK-DAG:     %[[ROWS:.*]] = bsr.sample_vec %[[P]], %[[R]] dim = 0 {{.*}} -> tensor<2x4x1xf32>
// CHECK-DAG:     %[[COLS:.*]] = bsr.sample_vec %[[P]], %[[VECTOR]] dim = 1 {{.*}} -> tensor<2x1x4xf32>
// CHECK:         %[[V:.*]] = linalg.generic
// CHECK-SAME:      ins(%[[A]], %[[ROWS]], %[[COLS]] : tensor<2x4x4xf32>, tensor<2x4x1xf32>, tensor<2x1x4xf32>)
// CHECK:         return %[[V]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @factors(%p: !p, %a: tensor<2x4x4xf32>, %r: tensor<8xf32>, %c: tensor<1x12xf32>) -> tensor<2x4x4xf32> {
  %d = bsr.to_dense %p, %a transpose : !p, tensor<2x4x4xf32> -> tensor<12x8xf32>
  %e = tensor.empty() : tensor<12x8xf32>
  %u = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (0, d0)>,
                       affine_map<(d0, d1) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%d, %r, %c : tensor<12x8xf32>, tensor<8xf32>, tensor<1x12xf32>) outs(%e : tensor<12x8xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32, %o: f32):
    %0 = arith.mulf %y, %z : f32
    %1 = arith.subf %x, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<12x8xf32>
  %v = bsr.sample %p, %u transpose : !p, tensor<12x8xf32> -> tensor<2x4x4xf32>
  return %v : tensor<2x4x4xf32>
}

// -----

// V1 of a vector alone: a broadcast of what belongs to the blocks.
// CHECK-LABEL: func.func @broadcast(
// CHECK:         %[[ROWS:.*]] = bsr.sample_vec %{{.*}}, %{{.*}} dim = 0
// CHECK:         linalg.generic {{.*}} ins(%[[ROWS]] : tensor<2x4x1xf32>) outs(%{{.*}} : tensor<2x4x4xf32>)
// CHECK-NOT:     bsr.sample %
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @broadcast(%p: !p, %r: tensor<8xf32>) -> tensor<2x4x4xf32> {
  %e = tensor.empty() : tensor<8x12xf32>
  %b = linalg.broadcast ins(%r : tensor<8xf32>) outs(%e : tensor<8x12xf32>) dimensions = [1]
  %v = bsr.sample %p, %b : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %v : tensor<2x4x4xf32>
}

// -----

// D5: rows and columns, kept with a dimension of one entry or without, of the
// transposed matrix, on top of an init.
// CHECK-LABEL: func.func @sums(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[V:[^:]*]]: tensor<2x4x4xf32>, %[[B:[^:]*]]: tensor<f32>, %[[I:[^:]*]]: tensor<12xf32>)
// CHECK-DAG:     %[[ROWS:.*]] = bsr.reduce_vec %[[P]], %[[V]] background %[[B]] dim = 0 {{.*}} -> tensor<8xf32>
// CHECK-DAG:     %[[COLUMN:.*]] = tensor.expand_shape %[[ROWS]] {{.*}} into tensor<8x1xf32>
// CHECK-DAG:     %[[COLS:.*]] = bsr.reduce_vec %[[P]], %[[V]] dim = 1 {{.*}} -> tensor<12xf32>
// CHECK-DAG:     %[[SUM:.*]] = linalg.add ins(%[[COLS]], %[[I]]
// CHECK:         return %[[COLUMN]], %[[SUM]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @sums(%p: !p, %v: tensor<2x4x4xf32>, %b: tensor<f32>, %i: tensor<12xf32>) -> (tensor<8x1xf32>, tensor<12xf32>) {
  %d = bsr.to_dense %p, %v background %b : !p, tensor<2x4x4xf32>, tensor<f32> -> tensor<8x12xf32>
  %c = arith.constant dense<0.0> : tensor<8x1xf32>
  %rows = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, 0)>],
      iterator_types = ["parallel", "reduction"]} ins(%d : tensor<8x12xf32>) outs(%c : tensor<8x1xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %x, %o : f32
    linalg.yield %0 : f32
  } -> tensor<8x1xf32>
  %t = bsr.to_dense %p, %v transpose : !p, tensor<2x4x4xf32> -> tensor<12x8xf32>
  %cols = linalg.reduce ins(%t : tensor<12x8xf32>) outs(%i : tensor<12xf32>) dimensions = [1]
      (%x: f32, %o: f32) {
        %1 = arith.addf %o, %x : f32
        linalg.yield %1 : f32
      }
  return %rows, %cols : tensor<8x1xf32>, tensor<12xf32>
}

// -----

// D3c: off the pattern 0 times what is not below 1e-6 under a root is 0: the
// norm needs no more than what is stored.
// CHECK-LABEL: func.func @bounded(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[G:[^:]*]]: tensor<2x4x4xf32>, %[[R:[^:]*]]: tensor<8xf32>)
// CHECK:         bsr.sample_vec %[[P]], %[[R]] dim = 0
// CHECK:         bsr.live %[[P]]
// CHECK-NOT:     bsr.num_absent
// CHECK:         return
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#scalar = affine_map<(d0, d1) -> ()>
func.func @bounded(%p: !p, %g: tensor<2x4x4xf32>, %r: tensor<8xf32>) -> tensor<f32> {
  %d = bsr.to_dense %p, %g : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %f = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r : tensor<8xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%x: f32, %o: f32):
    %c = arith.constant 1.0e-6 : f32
    %below = arith.cmpf ult, %x, %c : f32
    %0 = arith.select %below, %c, %x : f32
    %1 = math.rsqrt %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x12xf32>
  %u = linalg.mul ins(%f, %d : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %i = arith.constant dense<0.0> : tensor<f32>
  %n = linalg.generic {indexing_maps = [#id, #scalar], iterator_types = ["reduction", "reduction"]}
      ins(%u : tensor<8x12xf32>) outs(%i : tensor<f32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %o, %x : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %n : tensor<f32>
}

// -----

// D3c: whether a vector is finite shows when the step runs; two of them, one
// after the other.
// CHECK-LABEL: func.func @vectors(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[G:[^:]*]]: tensor<2x4x4xf32>, %[[R:[^:]*]]: tensor<8xf32>, %[[C:[^:]*]]: tensor<12xf32>)
// CHECK:         %[[R0:.*]] = linalg.generic {{.*}}iterator_types = ["reduction"]} ins(%[[R]] : tensor<8xf32>)
// CHECK-NEXT:    ^bb0(%[[X:.*]]: f32, %[[O:.*]]: f32)
// CHECK-NEXT:      %[[ZERO:.*]] = arith.constant 0.0
// CHECK-NEXT:      %[[TERM:.*]] = arith.mulf %[[X]], %[[ZERO]]
// CHECK-NEXT:      %[[SUM:.*]] = arith.addf %[[O]], %[[TERM]]
// CHECK-NEXT:      linalg.yield %[[SUM]]
// CHECK:         %[[BR:.*]] = linalg.generic {{.*}}iterator_types = []} ins(%[[R0]] : tensor<f32>)
// CHECK-NEXT:    ^bb0
// CHECK-NEXT:      arith.constant 0.0
// CHECK-NEXT:      arith.mulf
// CHECK:         %[[C0:.*]] = linalg.generic {{.*}}iterator_types = ["reduction"]} ins(%[[C]] : tensor<12xf32>)
// CHECK:         %[[BC:.*]] = linalg.generic {{.*}}iterator_types = []} ins(%[[BR]], %[[C0]] : tensor<f32>, tensor<f32>)
// CHECK:         bsr.reduce_vec %[[P]], %{{.*}} background %[[BC]] dim = 1
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#col = affine_map<(d0, d1) -> (d1)>
func.func @vectors(%p: !p, %g: tensor<2x4x4xf32>, %r: tensor<8xf32>, %c: tensor<12xf32>) -> tensor<12xf32> {
  %d = bsr.to_dense %p, %g : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %u = linalg.generic {indexing_maps = [#row, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r, %d : tensor<8xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.mulf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8x12xf32>
  %b = linalg.broadcast ins(%c : tensor<12xf32>) outs(%e : tensor<8x12xf32>) dimensions = [0]
  %w = linalg.mul ins(%u, %b : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %i = arith.constant dense<0.0> : tensor<12xf32>
  %n = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%w : tensor<8x12xf32>) outs(%i : tensor<12xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %o, %x : f32
    linalg.yield %0 : f32
  } -> tensor<12xf32>
  return %n : tensor<12xf32>
}

// -----

// D3c: bounds of everything that is followed: in [0.25, 4], its root in [0.5, 2], twice
// that, at least 2, its inverse in [0.25, 0.5], rounded. The gradient is clipped entry by
// entry: 0 between -2 and 2 is 0, although the bounds are not constants.
// CHECK-LABEL: func.func @bounds(
// CHECK-NOT:     bsr.num_absent
// CHECK:         return
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
#scalar = affine_map<(d0, d1) -> ()>
func.func @bounds(%p: !p, %gradient: tensor<2x4x4xf32>, %r: tensor<8xf32>, %s: tensor<f32>) -> tensor<f32> {
  %whole = bsr.to_dense %p, %gradient : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %d = linalg.generic {indexing_maps = [#id, #scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%whole, %s : tensor<8x12xf32>, tensor<f32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %two = arith.constant 2.0 : f32
    %below = arith.cmpf ult, %y, %two : f32
    %high = arith.select %below, %two, %y : f32
    %low = arith.negf %high : f32
    %0 = arith.maximumf %low, %x : f32
    %1 = arith.minimumf %high, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x12xf32>
  %f = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%r : tensor<8xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%x: f32, %o: f32):
    %least = arith.constant 0.25 : f32
    %most = arith.constant 4.0 : f32
    %two = arith.constant 2.0 : f32
    %one = arith.constant 1.0 : f32
    %below = arith.cmpf ult, %x, %least : f32
    %0 = arith.select %below, %least, %x : f32
    %above = arith.cmpf ogt, %0, %most : f32
    %1 = arith.select %above, %most, %0 : f32
    %2 = math.sqrt %1 : f32
    %3 = arith.addf %2, %2 : f32
    %4 = arith.maximumf %3, %two : f32
    %5 = arith.divf %one, %4 : f32
    %6 = arith.truncf %5 : f32 to bf16
    %7 = arith.extf %6 : bf16 to f32
    linalg.yield %7 : f32
  } -> tensor<8x12xf32>
  %u = linalg.mul ins(%f, %d : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %i = arith.constant dense<0.0> : tensor<f32>
  %n = linalg.generic {indexing_maps = [#id, #scalar], iterator_types = ["reduction", "reduction"]}
      ins(%u : tensor<8x12xf32>) outs(%i : tensor<f32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %o, %x : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %n : tensor<f32>
}

// -----

// D5b: a square within the sum, of a matrix whose background is one.
// CHECK-LABEL: func.func @squares(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[V:[^:]*]]: tensor<2x4x4xf32>, %[[B:[^:]*]]: tensor<f32>)
// CHECK-DAG:     %[[SQUARE:.*]] = linalg.generic {{.*}} ins(%[[B]] : tensor<f32>)
// CHECK-DAG:     %[[SQUARES:.*]] = linalg.generic {{.*}} ins(%[[V]] : tensor<2x4x4xf32>)
// CHECK:         bsr.reduce_vec %[[P]], %[[SQUARES]] background %[[SQUARE]] dim = 0 {{.*}} -> tensor<8xf32>
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @squares(%p: !p, %v: tensor<2x4x4xf32>, %b: tensor<f32>) -> tensor<8xf32> {
  %d = bsr.to_dense %p, %v background %b : !p, tensor<2x4x4xf32>, tensor<f32> -> tensor<8x12xf32>
  %c = arith.constant dense<0.0> : tensor<8xf32>
  %rows = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]} ins(%d : tensor<8x12xf32>) outs(%c : tensor<8xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.mulf %x, %x : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8xf32>
  return %rows : tensor<8xf32>
}
