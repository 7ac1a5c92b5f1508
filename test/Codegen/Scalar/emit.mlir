// Plain loops: an operation after the other, an element after the other.
//
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse \
// RUN:   | FileCheck %s --implicit-check-not=vector. --implicit-check-not=scf.forall

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// The forward product gathers by columns of blocks; nothing is cut in panels.
// CHECK-LABEL: func private @product(
// CHECK-SAME:    %[[PTR:.*]]: memref<5xi32>, %[[IDX:.*]]: memref<3xi32>, %[[SLOT:.*]]: memref<3xi32>,
// CHECK-SAME:    %[[W:.*]]: memref<3x16x16xf32>, %[[X:.*]]: memref<32x5xf32>, %[[B:.*]]: memref<64xf32>, %[[Y:.*]]: memref<64x5xf32>)
// CHECK:         scf.for %[[LINE:.*]] = %c0 to %c4
// CHECK:           scf.for %[[ROW:.*]] = %c0 to %c16
// CHECK:             scf.for %[[T:.*]] = %c0 to %c5
// CHECK:               %[[BASE:.*]] = arith.muli %[[LINE]], %c16
// CHECK:               %[[F:.*]] = arith.addi %[[BASE]], %[[ROW]]
// CHECK:               %[[START:.*]] = memref.load %[[B]][%[[F]]]
// CHECK:               %[[SUM:.*]] = scf.for %[[K:.*]] = %{{.*}} to %{{.*}} step %c1 iter_args(%{{.*}} = %[[START]])
// CHECK-DAG:             memref.load %[[SLOT]][%[[K]]]
// CHECK-DAG:             memref.load %[[IDX]][%[[K]]]
// CHECK:                 scf.for %[[I:.*]] = %c0 to %c16
// CHECK-DAG:               memref.load %[[W]][%{{.*}}, %[[I]], %[[ROW]]]
// CHECK-DAG:               memref.load %[[X]][%{{.*}}, %[[T]]]
// CHECK:                   arith.mulf
// CHECK:                   arith.addf
// CHECK:               memref.store %[[SUM]], %[[Y]][%[[F]], %[[T]]]
module attributes {bsr.target = #bsr.scalar} {
  bsr.cluster private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x5xf32>, %b: tensor<64xf32>)
      -> tensor<64x5xf32> {
    %y = bsr.spmm %p, %w, %x bias %b feature_dim = 0 {bsr.lanes}
        : !pattern, tensor<3x16x16xf32>, tensor<32x5xf32>, tensor<64xf32> -> tensor<64x5xf32>
    bsr.yield %y : tensor<64x5xf32>
  }
  func.func @step(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x5xf32>, %b: tensor<64xf32>) -> tensor<64x5xf32> {
    %init = tensor.empty() : tensor<64x5xf32>
    %y = bsr.launch @product ins(%p, %w, %x, %b : !pattern, tensor<3x16x16xf32>, tensor<32x5xf32>, tensor<64xf32>)
        outs(%init : tensor<64x5xf32>) -> tensor<64x5xf32>
    return %y : tensor<64x5xf32>
  }
}

// -----

#row = affine_map<(i, j) -> (i)>
#id = affine_map<(i, j) -> (i, j)>

// A sum that only its own cluster reads lies in scratch memory, and no input is written over.
// CHECK-LABEL: func private @normalize(
// CHECK-SAME:    %[[X:.*]]: memref<4x8xf32>, %[[I:.*]]: memref<4xf32>, %[[Y:.*]]: memref<4x8xf32>, %[[S:.*]]: memref<4xf32>)
// CHECK:         scf.for %[[R:.*]] = %c0 to %c4
// CHECK:           %[[START:.*]] = memref.load %[[I]][%[[R]]]
// CHECK:           %[[SUM:.*]] = scf.for %[[C:.*]] = %c0 to %c8 step %c1 iter_args(%[[A:.*]] = %[[START]])
// CHECK:             %[[E:.*]] = memref.load %[[X]][%[[R]], %[[C]]]
// CHECK:             arith.addf %[[A]], %[[E]]
// CHECK:           memref.store %[[SUM]], %[[S]][%[[R]]]
// CHECK:         scf.for %[[R:.*]] = %c0 to %c4
// CHECK:           scf.for %[[C:.*]] = %c0 to %c8
// CHECK-DAG:         memref.load %[[X]][%[[R]], %[[C]]]
// CHECK-DAG:         memref.load %[[S]][%[[R]]]
// CHECK:             %[[Q:.*]] = arith.divf
// CHECK:             memref.store %[[Q]], %[[Y]][%[[R]], %[[C]]]
// CHECK-LABEL: func @step
// CHECK-NOT:     in_place
module attributes {bsr.target = #bsr.scalar} {
  bsr.cluster private @normalize(%x: tensor<4x8xf32>, %i: tensor<4xf32>) -> tensor<4x8xf32> {
    %s = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<4x8xf32>) outs(%i : tensor<4xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.addf %o, %a : f32
      linalg.yield %0 : f32
    } -> tensor<4xf32>
    %e = tensor.empty() : tensor<4x8xf32>
    %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
        ins(%x, %s : tensor<4x8xf32>, tensor<4xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %0 = arith.divf %a, %b : f32
      linalg.yield %0 : f32
    } -> tensor<4x8xf32>
    bsr.yield %y : tensor<4x8xf32>
  }
  func.func @step(%x: tensor<4x8xf32>, %i: tensor<4xf32>) -> tensor<4x8xf32> {
    %init = tensor.empty() : tensor<4x8xf32>
    %y = bsr.launch @normalize ins(%x, %i : tensor<4x8xf32>, tensor<4xf32>) outs(%init : tensor<4x8xf32>) -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}
