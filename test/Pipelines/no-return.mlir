// RUN: not sparse-opt %s --bsr-reuse-state 2>&1 | FileCheck %s
// RUN: not sparse-opt %s --bsr-store-results 2>&1 | FileCheck %s
// RUN: not sparse-opt %s --bsr-plan-memory 2>&1 | FileCheck %s
// RUN: not sparse-opt %s --bsr-score-blocks 2>&1 | FileCheck %s
// RUN: not sparse-opt %s --bsr-time-launches 2>&1 | FileCheck %s
// RUN: not sparse-opt %s --bsr-mark="match=w" 2>&1 | FileCheck %s
// RUN: not sparse-opt %s --bsr-to-llvm 2>&1 | FileCheck %s
// RUN: not sparse-opt %s --bsr-to-cpu 2>&1 | FileCheck %s

// A pass that looks for what a step returns says so where it returns nothing.

// CHECK: no-return.mlir:[[# @LINE + 2]]:3: error: expected a step that ends in 'func.return', but got 'ub.unreachable'
func.func @step(%w: tensor<16x16xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<16x16xf32> {
  ub.unreachable
}
