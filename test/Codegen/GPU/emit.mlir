// Every element of a result is an iteration of a parallel loop, tokens last.
//
// RUN: sparse-opt %s --split-input-file --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse \
// RUN:   | FileCheck %s --implicit-check-not=vector.

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// CHECK-LABEL: func private @product(
// CHECK-SAME:    %[[PTR:.*]]: memref<5xi32>, %[[IDX:.*]]: memref<3xi32>, %[[SLOT:.*]]: memref<3xi32>,
// CHECK-SAME:    %[[W:.*]]: memref<3x16x16xf32>, %[[X:.*]]: memref<32x5xf32>, %[[Y:.*]]: memref<64x5xf32>)
// CHECK:         scf.forall (%[[LINE:.*]], %[[ROW:.*]], %[[T:.*]]) in (4, 16, 5) {
// CHECK:           %[[F:.*]] = arith.addi
// CHECK:           %[[SUM:.*]] = scf.for %[[K:.*]] = %{{.*}} to %{{.*}} step %c1
// CHECK-DAG:         memref.load %[[SLOT]][%[[K]]]
// CHECK-DAG:         memref.load %[[IDX]][%[[K]]]
// CHECK:             scf.for %[[I:.*]] = %c0 to %c16
// CHECK-DAG:           memref.load %[[W]][%{{.*}}, %[[I]], %[[ROW]]]
// CHECK-DAG:           memref.load %[[X]][%{{.*}}, %[[T]]]
// CHECK:           memref.store %[[SUM]], %[[Y]][%[[F]], %[[T]]]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x5xf32>) -> tensor<64x5xf32> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes}
        : !pattern, tensor<3x16x16xf32>, tensor<32x5xf32> -> tensor<64x5xf32>
    bsr.yield %y : tensor<64x5xf32>
  }
  func.func @step(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x5xf32>) -> tensor<64x5xf32> {
    %init = tensor.empty() : tensor<64x5xf32>
    %y = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<32x5xf32>)
        outs(%init : tensor<64x5xf32>) -> tensor<64x5xf32>
    return %y : tensor<64x5xf32>
  }
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x8, slots = 3>

// The entries of a block are threads'; each goes through the blocks of a block row.
// CHECK-LABEL: func private @gradient(
// CHECK-SAME:    %[[PTR:.*]]: memref<3xi32>, %{{.*}}: memref<3xi32>, %[[SLOT:.*]]: memref<3xi32>,
// CHECK:         scf.forall (%[[LINE:.*]], %[[R:.*]], %[[C:.*]]) in (2, 16, 8) {
// CHECK:           scf.for %[[K:.*]] = %{{.*}} to %{{.*}} step %c1 {
// CHECK:             scf.for %{{.*}} = %c0 to %c5
// CHECK:             memref.store %{{.*}}, %{{.*}}[%{{.*}}, %[[R]], %[[C]]]
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  bsr.cluster private @gradient(%p: !pattern, %a: tensor<32x5xf32>, %b: tensor<64x5xf32>) -> tensor<3x16x8xf32> {
    %g = bsr.sddmm %p, %a, %b feature_dim = 0 : !pattern, tensor<32x5xf32>, tensor<64x5xf32> -> tensor<3x16x8xf32>
    bsr.yield %g : tensor<3x16x8xf32>
  }
  func.func @step(%p: !pattern, %a: tensor<32x5xf32>, %b: tensor<64x5xf32>) -> tensor<3x16x8xf32> {
    %init = tensor.empty() : tensor<3x16x8xf32>
    %g = bsr.launch @gradient ins(%p, %a, %b : !pattern, tensor<32x5xf32>, tensor<64x5xf32>)
        outs(%init : tensor<3x16x8xf32>) -> tensor<3x16x8xf32>
    return %g : tensor<3x16x8xf32>
  }
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#all = affine_map<(i, j) -> ()>

// What is computed of an element is written over it; a short sum is one thread's.
// CHECK-LABEL: func private @update(
// CHECK-SAME:    %[[W:.*]]: memref<4x8xf32>, %[[G:.*]]: memref<4x8xf32>, %[[Y:.*]]: memref<4x8xf32>)
// CHECK:         scf.forall (%[[I:.*]], %[[J:.*]]) in (4, 8) {
// CHECK:           memref.store %{{.*}}, %[[Y]][%[[I]], %[[J]]]
// CHECK-LABEL: func private @sum(
// CHECK:         scf.for
// CHECK:           scf.for
// CHECK:         memref.store
// CHECK-LABEL: func @step(
// CHECK:         bsr.launch @update {{.*}} in_place = [0, 1]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @update(%w: tensor<4x8xf32>, %g: tensor<4x8xf32>) -> tensor<4x8xf32> {
    %e = tensor.empty() : tensor<4x8xf32>
    %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%w, %g : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %0 = arith.subf %a, %b : f32
      linalg.yield %0 : f32
    } -> tensor<4x8xf32>
    bsr.yield %y : tensor<4x8xf32>
  }
  bsr.cluster private @sum(%x: tensor<3x8xf32>) -> tensor<f32> {
    %z = arith.constant dense<0.0> : tensor<f32>
    %s = linalg.generic {indexing_maps = [#id, #all], iterator_types = ["reduction", "reduction"]}
        ins(%x : tensor<3x8xf32>) outs(%z : tensor<f32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.addf %o, %a : f32
      linalg.yield %0 : f32
    } -> tensor<f32>
    bsr.yield %s : tensor<f32>
  }
  func.func @step(%w: tensor<4x8xf32>, %g: tensor<4x8xf32>, %x: tensor<3x8xf32>) -> (tensor<4x8xf32>, tensor<f32>) {
    %e = tensor.empty() : tensor<4x8xf32>
    %n = tensor.empty() : tensor<f32>
    %y = bsr.launch @update ins(%w, %g : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
    %s = bsr.launch @sum ins(%x : tensor<3x8xf32>) outs(%n : tensor<f32>) -> tensor<f32>
    return %y, %s : tensor<4x8xf32>, tensor<f32>
  }
}
