// RUN: sparse-opt %s --split-input-file --bsr-propagate=require-sparse --canonicalize | FileCheck %s --implicit-check-not=bsr.sample --implicit-check-not=bsr.to_dense

// The rules for look-ups of rows, named as in the description of bsr-propagate.

// E1, E2: a one-hot matrix chooses rows, of the matrix or of its transpose.
// CHECK-LABEL: func.func @one_hot(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[V:[^:]*]]: tensor<2x4x4xf32>, %[[I:[^:]*]]: tensor<3x5xi32>, %[[U:[^:]*]]: tensor<3x5x12xf32>
// CHECK-DAG:     %[[X:.*]] = bsr.gather_rows %[[P]], %[[V]], %[[I]] feature_dim = 2
// CHECK-DAG:     %[[G:.*]] = bsr.scatter_rows %[[P]], %[[I]], %[[U]] feature_dim = 2
// CHECK:         return %[[X]], %[[G]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @one_hot(%p: !p, %v: tensor<2x4x4xf32>, %i: tensor<3x5xi32>, %u: tensor<3x5x12xf32>)
    -> (tensor<3x5x12xf32>, tensor<2x4x4xf32>) {
  %one = arith.constant 1.0 : f32
  %none = arith.constant 0.0 : f32
  %d = bsr.to_dense %p, %v : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e = tensor.empty() : tensor<3x5x8xf32>
  %hot = linalg.generic {
      indexing_maps = [affine_map<(a, b, r) -> (a, b)>, affine_map<(a, b, r) -> (a, b, r)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%i : tensor<3x5xi32>) outs(%e : tensor<3x5x8xf32>) {
  ^bb0(%id: i32, %o: f32):
    %0 = linalg.index 2 : index
    %1 = arith.index_cast %0 : index to i32
    %2 = arith.cmpi eq, %1, %id : i32
    %3 = arith.select %2, %one, %none : f32
    linalg.yield %3 : f32
  } -> tensor<3x5x8xf32>
  %z0 = arith.constant dense<0.0> : tensor<3x5x12xf32>
  %x = linalg.generic {
      indexing_maps = [affine_map<(a, b, c, r) -> (a, b, r)>, affine_map<(a, b, c, r) -> (r, c)>, affine_map<(a, b, c, r) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%hot, %d : tensor<3x5x8xf32>, tensor<8x12xf32>) outs(%z0 : tensor<3x5x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x5x12xf32>
  %z1 = arith.constant dense<0.0> : tensor<8x12xf32>
  %g = linalg.generic {
      indexing_maps = [affine_map<(r, c, a, b) -> (a, b, r)>, affine_map<(r, c, a, b) -> (a, b, c)>, affine_map<(r, c, a, b) -> (r, c)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%hot, %u : tensor<3x5x8xf32>, tensor<3x5x12xf32>) outs(%z1 : tensor<8x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x12xf32>
  %s = bsr.sample %p, %g : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %x, %s : tensor<3x5x12xf32>, tensor<2x4x4xf32>
}

// -----

// E3: what else the body computes stays; the row is computed in front, at the
// points of all loops but that of the features.
// CHECK-LABEL: func.func @body(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[V:[^:]*]]: tensor<2x4x4xf32>, %[[I:[^:]*]]: tensor<5xi16>, %[[S:[^:]*]]: tensor<12xf32>
// CHECK:         %[[ROW:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[I]] : tensor<5xi16>) outs(%{{.*}} : tensor<3x5xi64>)
// CHECK:           %[[B:.*]] = linalg.index 0
// CHECK:           arith.addi %{{.*}}, %[[B]]
// CHECK:         %[[X:.*]] = bsr.gather_rows %[[P]], %[[V]], %[[ROW]] feature_dim = 2
// CHECK-SAME:      tensor<3x5xi64> -> tensor<3x5x12xf32>
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[S]], %[[X]] : tensor<12xf32>, tensor<3x5x12xf32>)
// CHECK-NEXT:      ^bb0(%[[A:.*]]: f32, %[[E:.*]]: f32, %{{.*}}: f32)
// CHECK-NEXT:        arith.mulf %[[E]], %[[A]]
// CHECK:         return %[[Y]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @body(%p: !p, %v: tensor<2x4x4xf32>, %i: tensor<5xi16>, %s: tensor<12xf32>) -> tensor<3x12x5xf32> {
  %d = bsr.to_dense %p, %v : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e = tensor.empty() : tensor<3x12x5xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(b, f, t) -> (t)>, affine_map<(b, f, t) -> (f)>, affine_map<(b, f, t) -> (b, f, t)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%i, %s : tensor<5xi16>, tensor<12xf32>) outs(%e : tensor<3x12x5xf32>) {
  ^bb0(%id: i16, %a: f32, %o: f32):
    %0 = arith.index_cast %id : i16 to index
    %1 = linalg.index 0 : index
    %2 = arith.addi %0, %1 : index
    %3 = linalg.index 1 : index
    %4 = tensor.extract %d[%2, %3] : tensor<8x12xf32>
    %5 = arith.mulf %4, %a : f32
    linalg.yield %5 : f32
  } -> tensor<3x12x5xf32>
  return %y : tensor<3x12x5xf32>
}

// -----

// E3: columns, of a transposed matrix: rows again.
// CHECK-LABEL: func.func @columns(
// CHECK:         bsr.gather_rows %{{.*}}, %{{.*}}, %{{.*}} transpose feature_dim = 1
// CHECK-SAME:      tensor<5xi32> -> tensor<5x8xf32>
// CHECK:         bsr.gather_rows %{{.*}}, %{{.*}}, %{{.*}} feature_dim = 1
// CHECK-SAME:      tensor<5xi32> -> tensor<5x12xf32>
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @columns(%p: !p, %v: tensor<2x4x4xf32>, %i: tensor<5xi32>) -> (tensor<5x8xf32>, tensor<5x12xf32>) {
  %d = bsr.to_dense %p, %v : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %t = bsr.to_dense %p, %v transpose : !p, tensor<2x4x4xf32> -> tensor<12x8xf32>
  %e0 = tensor.empty() : tensor<5x8xf32>
  %x = linalg.generic {
      indexing_maps = [affine_map<(t, f) -> (t)>, affine_map<(t, f) -> (t, f)>],
      iterator_types = ["parallel", "parallel"]} ins(%i : tensor<5xi32>) outs(%e0 : tensor<5x8xf32>) {
  ^bb0(%id: i32, %o: f32):
    %0 = arith.index_cast %id : i32 to index
    %1 = linalg.index 1 : index
    %2 = tensor.extract %d[%1, %0] : tensor<8x12xf32>
    linalg.yield %2 : f32
  } -> tensor<5x8xf32>
  %e1 = tensor.empty() : tensor<5x12xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(t, f) -> (t)>, affine_map<(t, f) -> (t, f)>],
      iterator_types = ["parallel", "parallel"]} ins(%i : tensor<5xi32>) outs(%e1 : tensor<5x12xf32>) {
  ^bb0(%id: i32, %o: f32):
    %0 = arith.index_cast %id : i32 to index
    %1 = linalg.index 1 : index
    %2 = tensor.extract %t[%1, %0] : tensor<12x8xf32>
    linalg.yield %2 : f32
  } -> tensor<5x12xf32>
  return %x, %y : tensor<5x8xf32>, tensor<5x12xf32>
}

// -----

// E4, of the matrix and of its transpose.
// CHECK-LABEL: func.func @scatter_add(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x8, block = 4x4, slots = 2>, %[[I:[^:]*]]: tensor<5xi64>, %[[U:[^:]*]]: tensor<8x5xf32>
// CHECK-DAG:     bsr.scatter_rows %[[P]], %[[I]], %[[U]] feature_dim = 0
// CHECK-DAG:     bsr.scatter_rows %[[P]], %[[I]], %[[U]] transpose feature_dim = 0
// CHECK-NOT:     bsr.scatter_add
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
func.func @scatter_add(%p: !p, %i: tensor<5xi64>, %u: tensor<8x5xf32>) -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>) {
  %g = bsr.scatter_add %i, %u feature_dim = 0 : tensor<5xi64>, tensor<8x5xf32> -> tensor<8x8xf32>
  %s = bsr.sample %p, %g : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  %t = bsr.sample %p, %g transpose : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  return %s, %t : tensor<2x4x4xf32>, tensor<2x4x4xf32>
}
