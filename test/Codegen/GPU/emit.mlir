// Every element of a result is an iteration of a parallel loop, tokens last.
//
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse \
// RUN:   | FileCheck %s

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

// What is computed of elements is written over them, 16 bytes a thread; a short sum is one thread's.
// CHECK-LABEL: func private @update(
// CHECK-SAME:    %[[W:.*]]: memref<4x8xf32>, %[[G:.*]]: memref<4x8xf32>, %[[Y:.*]]: memref<4x8xf32>)
// CHECK:         scf.forall (%[[I:.*]], %[[V:.*]]) in (4, 2) {
// CHECK:           %[[J:.*]] = arith.muli %[[V]], %c4
// CHECK:           vector.load %[[W]][%[[I]], %[[J]]] {alignment = 16 : i64} : memref<4x8xf32>, vector<4xf32>
// CHECK:           vector.store %{{.*}}, %[[Y]][%[[I]], %[[J]]] {alignment = 16 : i64}
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

// -----

#id = affine_map<(i, j) -> (i, j)>
#turned = affine_map<(i, j) -> (j, i)>
#row = affine_map<(i, j) -> (j)>

// Elements that lie side by side in the result are a thread's, and those of neighbouring threads are next to them, whatever
// the order of loops. What does not lie so is read one by one, what is the same for all of them once. Of smaller types a
// thread takes more elements, and where 16 bytes are no whole row, fewer.
// CHECK-LABEL: func private @turn(
// CHECK-SAME:    %[[X:.*]]: memref<12x20xf32>, %[[B:.*]]: memref<20xf32>, %[[Y:.*]]: memref<20x12xf32>)
// CHECK:         scf.forall (%[[J:.*]], %[[V:.*]]) in (20, 3) {
// CHECK:           %[[I:.*]] = arith.muli %[[V]], %c4
// CHECK-COUNT-4:   memref.load %[[X]][%{{.*}}, %[[J]]]
// CHECK:           vector.from_elements
// CHECK:           memref.load %[[B]][%[[J]]]
// CHECK:           vector.store %{{.*}}, %[[Y]][%[[J]], %[[I]]] {alignment = 16 : i64}
// CHECK-LABEL: func private @halves(
// CHECK:         scf.forall (%{{.*}}, %{{.*}}) in (4, 2) {
// CHECK:           vector.load %{{.*}} {alignment = 16 : i64} : memref<4x16xbf16>, vector<8xbf16>
// CHECK:           vector.store %{{.*}} {alignment = 16 : i64}
// CHECK-LABEL: func private @odd(
// CHECK:         scf.forall (%{{.*}}, %{{.*}}) in (4, 3) {
// CHECK:           vector.load %{{.*}} {alignment = 8 : i64} : memref<4x6xf32>, vector<2xf32>
// CHECK-LABEL: func private @scalars(
// CHECK:         scf.forall (%{{.*}}, %{{.*}}) in (4, 7) {
// CHECK:           memref.store
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @turn(%x: tensor<12x20xf32>, %b: tensor<20xf32>) -> tensor<20x12xf32> {
    %e = tensor.empty() : tensor<20x12xf32>
    %y = linalg.generic {indexing_maps = [#id, #row, #turned], iterator_types = ["parallel", "parallel"]}
        ins(%x, %b : tensor<12x20xf32>, tensor<20xf32>) outs(%e : tensor<20x12xf32>) {
    ^bb0(%a: f32, %c: f32, %o: f32):
      %0 = arith.addf %a, %c : f32
      linalg.yield %0 : f32
    } -> tensor<20x12xf32>
    bsr.yield %y : tensor<20x12xf32>
  }
  bsr.cluster private @halves(%x: tensor<4x16xbf16>) -> tensor<4x16xbf16> {
    %e = tensor.empty() : tensor<4x16xbf16>
    %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<4x16xbf16>) outs(%e : tensor<4x16xbf16>) {
    ^bb0(%a: bf16, %o: bf16):
      %0 = arith.negf %a : bf16
      linalg.yield %0 : bf16
    } -> tensor<4x16xbf16>
    bsr.yield %y : tensor<4x16xbf16>
  }
  bsr.cluster private @odd(%x: tensor<4x6xf32>) -> tensor<4x6xf32> {
    %e = tensor.empty() : tensor<4x6xf32>
    %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<4x6xf32>) outs(%e : tensor<4x6xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.negf %a : f32
      linalg.yield %0 : f32
    } -> tensor<4x6xf32>
    bsr.yield %y : tensor<4x6xf32>
  }
  bsr.cluster private @scalars(%x: tensor<4x7xf32>) -> tensor<4x7xf32> {
    %e = tensor.empty() : tensor<4x7xf32>
    %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%x : tensor<4x7xf32>) outs(%e : tensor<4x7xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.negf %a : f32
      linalg.yield %0 : f32
    } -> tensor<4x7xf32>
    bsr.yield %y : tensor<4x7xf32>
  }
  func.func @step(%x: tensor<12x20xf32>, %b: tensor<20xf32>, %h: tensor<4x16xbf16>, %o: tensor<4x6xf32>, %s: tensor<4x7xf32>)
      -> (tensor<20x12xf32>, tensor<4x16xbf16>, tensor<4x6xf32>, tensor<4x7xf32>) {
    %e0 = tensor.empty() : tensor<20x12xf32>
    %e1 = tensor.empty() : tensor<4x16xbf16>
    %e2 = tensor.empty() : tensor<4x6xf32>
    %e3 = tensor.empty() : tensor<4x7xf32>
    %0 = bsr.launch @turn ins(%x, %b : tensor<12x20xf32>, tensor<20xf32>) outs(%e0 : tensor<20x12xf32>) -> tensor<20x12xf32>
    %1 = bsr.launch @halves ins(%h : tensor<4x16xbf16>) outs(%e1 : tensor<4x16xbf16>) -> tensor<4x16xbf16>
    %2 = bsr.launch @odd ins(%o : tensor<4x6xf32>) outs(%e2 : tensor<4x6xf32>) -> tensor<4x6xf32>
    %3 = bsr.launch @scalars ins(%s : tensor<4x7xf32>) outs(%e3 : tensor<4x7xf32>) -> tensor<4x7xf32>
    return %0, %1, %2, %3 : tensor<20x12xf32>, tensor<4x16xbf16>, tensor<4x6xf32>, tensor<4x7xf32>
  }
}
