// Upstream's tiling works on the operations that implement its interface.
//
// RUN: sparse-opt %s --split-input-file --transform-interpreter --canonicalize | FileCheck %s

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// A tile of y is the product of a slice of x and the whole matrix.
// CHECK-DAG:   #[[$TWO:.*]] = affine_map<(d0) -> (d0 * 2)>
// CHECK-DAG:   #[[$THIRTY_TWO:.*]] = affine_map<(d0) -> (d0 * 32)>
// CHECK-LABEL: func @tokens
// CHECK-SAME:    %[[P:[a-z0-9]+]]: {{.*}}, %[[W:[a-z0-9]+]]: {{.*}}, %[[X:[a-z0-9]+]]: tensor<8x128x32xf32>
// CHECK:       scf.forall (%[[A:[a-z0-9]+]], %[[B:[a-z0-9]+]]) in (4, 4) shared_outs(%[[OUT:.*]] = %{{.*}})
// CHECK:         %[[I:.*]] = affine.apply #[[$TWO]](%[[A]])
// CHECK:         %[[J:.*]] = affine.apply #[[$THIRTY_TWO]](%[[B]])
// CHECK:         %[[SLICE:.*]] = tensor.extract_slice %[[X]][%[[I]], %[[J]], 0] [2, 32, 32] [1, 1, 1]
// CHECK:         %[[TILE:.*]] = bsr.spmm %[[P]], %[[W]], %[[SLICE]] feature_dim = 2
// CHECK-SAME:      tensor<2x32x32xf32> -> tensor<2x32x64xf32>
// CHECK:         tensor.parallel_insert_slice %[[TILE]] into %[[OUT]][%[[I]], %[[J]], 0] [2, 32, 64] [1, 1, 1]
func.func @tokens(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<8x128x32xf32>) -> tensor<8x128x64xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 2
      : !pattern, tensor<3x16x16xf32>, tensor<8x128x32xf32> -> tensor<8x128x64xf32>
  return %y : tensor<8x128x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %op = transform.structured.match ops{["bsr.spmm"]} in %module : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [2, 32]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// The transposed product, features in the middle, one dimension cut: a tile of
// all features is the whole dimension.
// CHECK-LABEL: func @features_in_the_middle
// CHECK-SAME:    %[[DY:[a-z0-9]+]]: tensor<8x64x128xf32>
// CHECK:       scf.for %[[J:[a-z0-9]+]] =
// CHECK:         %[[SLICE:.*]] = tensor.extract_slice %[[DY]][0, 0, %[[J]]] [8, 64, 16] [1, 1, 1]
// CHECK:         bsr.spmm %{{.*}}, %{{.*}}, %[[SLICE]] transpose feature_dim = 1
// CHECK-SAME:      tensor<8x64x16xf32> -> tensor<8x32x16xf32>
func.func @features_in_the_middle(%p: !pattern, %w: tensor<3x16x16xf32>, %dy: tensor<8x64x128xf32>) -> tensor<8x32x128xf32> {
  %dx = bsr.spmm %p, %w, %dy transpose feature_dim = 1
      : !pattern, tensor<3x16x16xf32>, tensor<8x64x128xf32> -> tensor<8x32x128xf32>
  return %dx : tensor<8x32x128xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %op = transform.structured.match ops{["bsr.spmm"]} in %module : (!transform.any_op) -> !transform.any_op
    %tiled, %loops:2 = transform.structured.tile_using_for %op tile_sizes [0, 32, 16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// A product goes into the loops of its user.
// CHECK-LABEL: func @fused
// CHECK:       scf.for %[[I:[a-z0-9]+]] =
// CHECK:         %[[TILE:.*]] = bsr.spmm {{.*}} tensor<4x32xf32> -> tensor<4x64xf32>
// CHECK:         linalg.exp ins(%[[TILE]] : tensor<4x64xf32>)
func.func @fused(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<8x32xf32>) -> tensor<8x64xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 1
      : !pattern, tensor<3x16x16xf32>, tensor<8x32xf32> -> tensor<8x64xf32>
  %init = tensor.empty() : tensor<8x64xf32>
  %z = linalg.exp ins(%y : tensor<8x64xf32>) outs(%init : tensor<8x64xf32>) -> tensor<8x64xf32>
  return %z : tensor<8x64xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %op = transform.structured.match ops{["linalg.exp"]} in %module : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.fuse %op tile_sizes [4]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Any feature of the rows is a sum over the same feature of the updates.
// CHECK-LABEL: func @scatter_features
// CHECK-SAME:    %[[IDS:[a-z0-9]+]]: tensor<8x128xi32>, %[[U:[a-z0-9]+]]: tensor<8x128x32xf32>
// CHECK:       scf.forall (%[[A:[a-z0-9]+]]) in (2)
// CHECK:         %[[F:.*]] = affine.apply #{{.*}}(%[[A]])
// CHECK:         %[[SLICE:.*]] = tensor.extract_slice %[[U]][0, 0, %[[F]]] [8, 128, 16] [1, 1, 1]
// CHECK:         bsr.scatter_add %[[IDS]], %[[SLICE]] feature_dim = 2
// CHECK-SAME:      tensor<8x128x16xf32> -> tensor<100x16xf32>
func.func @scatter_features(%ids: tensor<8x128xi32>, %u: tensor<8x128x32xf32>) -> tensor<100x32xf32> {
  %g = bsr.scatter_add %ids, %u feature_dim = 2
      : tensor<8x128xi32>, tensor<8x128x32xf32> -> tensor<100x32xf32>
  return %g : tensor<100x32xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %op = transform.structured.match ops{["bsr.scatter_add"]} in %module : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_forall %op tile_sizes [0, 16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

!pattern = !bsr.pattern<96x32, block = 16x16, slots = 3>

// A tile of rows is what a slice of the indices looks up.
// CHECK-LABEL: func @look_up
// CHECK-SAME:    %[[P:[a-z0-9]+]]: {{.*}}, %[[W:[a-z0-9]+]]: {{.*}}, %[[IDS:[a-z0-9]+]]: tensor<8x128xi32>
// CHECK:       scf.for %[[J:[a-z0-9]+]] =
// CHECK:         %[[SLICE:.*]] = tensor.extract_slice %[[IDS]][0, %[[J]]] [8, 16] [1, 1]
// CHECK:         bsr.gather_rows %[[P]], %[[W]], %[[SLICE]] feature_dim = 1
// CHECK-SAME:      tensor<8x16xi32> -> tensor<8x32x16xf32>
func.func @look_up(%p: !pattern, %w: tensor<3x16x16xf32>, %ids: tensor<8x128xi32>) -> tensor<8x32x128xf32> {
  %x = bsr.gather_rows %p, %w, %ids feature_dim = 1
      : !pattern, tensor<3x16x16xf32>, tensor<8x128xi32> -> tensor<8x32x128xf32>
  return %x : tensor<8x32x128xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %op = transform.structured.match ops{["bsr.gather_rows"]} in %module : (!transform.any_op) -> !transform.any_op
    %tiled, %loop = transform.structured.tile_using_for %op tile_sizes [0, 0, 16]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
