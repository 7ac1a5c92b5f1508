// Passes run on a module in which nothing is of the dialect.
//
// RUN: sparse-opt %s --bsr-recompute | FileCheck %s
// RUN: sparse-opt %s --bsr-loosen-slices | FileCheck %s
// RUN: sparse-opt %s --bsr-cluster | FileCheck %s
// RUN: sparse-opt %s --bsr-plan-clusters | FileCheck %s
// RUN: sparse-opt %s --bsr-panel | FileCheck %s
// RUN: sparse-opt %s --bsr-emit | FileCheck %s

// CHECK:      func @f(%[[X:.*]]: tensor<4xf32>)
// CHECK-NEXT:   return %[[X]]
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
