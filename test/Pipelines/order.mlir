// A pass that runs before the one it needs says so.
//
// RUN: split-file %s %t
// RUN: not sparse-opt %t/matmul.mlir --bsr-layout 2>&1 | FileCheck %s --check-prefix=LAYOUT
// LAYOUT: matmul.mlir:2:{{.*}}: error: expected linalg-generalize-named-ops before bsr-layout, but got 'linalg.matmul'
// RUN: not sparse-opt %t/forall.mlir --bsr-hoist-memory 2>&1 | FileCheck %s --check-prefix=FORALL
// FORALL: error: expected scf-forall-to-parallel before bsr-hoist-memory, but got 'scf.forall'
// RUN: not sparse-opt %t/forall.mlir --pass-pipeline='builtin.module(func.func(scf-forall-to-parallel),bsr-hoist-memory)' 2>&1 \
// RUN:   | FileCheck %s --check-prefix=PARALLEL
// PARALLEL: error: expected convert-scf-to-openmp before bsr-hoist-memory, but got 'scf.parallel'
// RUN: not sparse-opt %t/cluster.mlir --bsr-bufferize 2>&1 | FileCheck %s --check-prefix=CLUSTER
// CLUSTER: error: expected bsr-emit before bsr-bufferize, but got 'bsr.cluster'
// RUN: not sparse-opt %t/plan.mlir --bsr-emit 2>&1 | FileCheck %s --check-prefix=PLAN
// PLAN: plan.mlir:1:{{.*}}: error: expected a plan, as bsr-cluster and bsr-plan-clusters write it, but got none
// RUN: sparse-opt %t/plan.mlir --bsr-plan-clusters --bsr-emit
// RUN: not sparse-opt %t/marked.mlir --bsr-lower-patterns 2>&1 | FileCheck %s --check-prefix=MARKED
// MARKED: error: expected bsr-bind before bsr-lower-patterns, but got argument "w" with #bsr.mark<
// RUN: not sparse-opt %t/scores.mlir --bsr-plan-memory 2>&1 | FileCheck %s --check-prefix=SCORES
// SCORES: error: expected bsr-guard-scores before bsr-plan-memory, but got scores of "w" in every step
// RUN: not sparse-opt %t/launch.mlir --bsr-separate-results --bsr-reuse-operands 2>&1 | FileCheck %s --check-prefix=REUSE
// REUSE: error: expected bsr-reuse-operands before bsr-separate-results, but got a result with memory of its own
// RUN: sparse-opt %t/launch.mlir --bsr-reuse-operands --bsr-separate-results

//--- matmul.mlir
func.func @step(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>, %c: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %d = linalg.matmul ins(%a, %b : tensor<4x4xf32>, tensor<4x4xf32>) outs(%c : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %d : tensor<4x4xf32>
}
//--- forall.mlir
func.func @f(%m: memref<8xf32>) {
  scf.forall (%i) in (8) {
    %a = memref.alloca() : memref<f32>
    %v = memref.load %m[%i] : memref<8xf32>
    memref.store %v, %a[] : memref<f32>
  }
  return
}
//--- cluster.mlir
bsr.cluster private @c(%x: tensor<4xf32>, %e: tensor<4xf32>) -> tensor<4xf32> {
  %y = linalg.exp ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  bsr.yield %y : tensor<4xf32>
}
//--- plan.mlir
bsr.cluster private @copy(%x: tensor<4xf32>, %e: tensor<4xf32>) -> tensor<4xf32> {
  %y = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4xf32>
  bsr.yield %y : tensor<4xf32>
}
func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = bsr.launch @copy ins(%x, %e : tensor<4xf32>, tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
//--- marked.mlir
func.func @step(%w: tensor<32x64xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 16x16, density = 0.5, weight = "w">}) {
  return
}
//--- scores.mlir
func.func private @norms(%s: memref<2x4xf32>)
func.func @step(%x: memref<4xf32> {bsr.name = "x", bsr.carried}) {
  %s = memref.alloc() {bsr.scores = "w"} : memref<2x4xf32>
  func.call @norms(%s) : (memref<2x4xf32>) -> ()
  return
}
//--- launch.mlir
func.func private @make(memref<4xf32>, memref<4xf32>)
func.func @step(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "z"}) {
  %e = tensor.empty() : tensor<4xf32>
  %y = bsr.launch @make ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
