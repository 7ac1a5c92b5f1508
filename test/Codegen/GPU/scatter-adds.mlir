// RUN: sparse-opt %s --bsr-plan-clusters --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

// A thread finds the first token of a row, or the next one of a token's row, going backwards through all; then a block of 128
// threads has a row, each thread a feature, and adds the updates of the tokens that follow each other.
// CHECK-LABEL: func private @gradient(
// CHECK-SAME:    %[[IDS:.*]]: memref<3x50xi32>, %[[U:.*]]: memref<3x130x50xf32>, %[[Y:.*]]: memref<40x130xf32>, %[[LINKS:.*]]: memref<190xi32>)
// CHECK:         gpu.launch blocks(%{{.*}}) in (%{{.*}} = %c2, %{{.*}} = %c1, %{{.*}} = %c1) threads({{.*}} = %c128,
// CHECK:           %[[IS_TOKEN:.*]] = arith.cmpi uge, %[[ITEM:.*]], %c40
// CHECK:           %[[ROW:.*]] = arith.select %[[IS_TOKEN]]
// CHECK:           %[[FIRST:.*]] = arith.select %[[IS_TOKEN]], %{{.*}}, %c0
// CHECK:           %[[NEXT:.*]] = scf.for %{{.*}} = %c0 to %c150 step %c1 iter_args(%[[FOUND:.*]] = %c150)
// CHECK:             %[[OTHER:.*]] = arith.subi %c149
// CHECK:             %[[OF:.*]] = memref.load %[[IDS]]
// CHECK:             arith.cmpi eq, %[[OF]], %[[ROW]]
// CHECK:             arith.cmpi uge, %[[OTHER]], %[[FIRST]]
// CHECK:             arith.select %{{.*}}, %[[OTHER]], %[[FOUND]]
// CHECK:           arith.cmpi ult, %[[ITEM]], %c190
// CHECK:           %[[LINK:.*]] = arith.index_cast %[[NEXT]]
// CHECK:           memref.store %[[LINK]], %[[LINKS]][%[[ITEM]]]
// CHECK:         gpu.launch blocks(%[[ROW:[a-z0-9]+]], %{{[a-z0-9]+}}, %{{[a-z0-9]+}}) in (%{{.*}} = %c40, %{{.*}} = %c2, %{{.*}} = %c1)
// CHECK:           %[[FEATURE:.*]] = arith.minui %[[F:.*]], %c129
// CHECK:           memref.load %[[LINKS]][%[[ROW]]]
// CHECK:           %[[SUM:.*]]:2 = scf.while
// CHECK:             arith.cmpi ult, %{{.*}}, %c150
// CHECK:             memref.load %[[U]][%{{.*}}, %[[FEATURE]], %{{.*}}]
// CHECK:             arith.addf
// CHECK:             memref.load %[[LINKS]]
// CHECK:           scf.if
// CHECK:             memref.store %[[SUM]]#1, %[[Y]][%[[ROW]], %[[F]]]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @gradient(%ids: tensor<3x50xi32>, %u: tensor<3x130x50xf32>) -> tensor<40x130xf32> {
    %0 = bsr.scatter_add %ids, %u feature_dim = 1 : tensor<3x50xi32>, tensor<3x130x50xf32> -> tensor<40x130xf32>
    bsr.yield %0 : tensor<40x130xf32>
  }
  func.func @step(%ids: tensor<3x50xi32>, %u: tensor<3x130x50xf32>) -> tensor<40x130xf32> {
    %e = tensor.empty() : tensor<40x130xf32>
    %y = bsr.launch @gradient ins(%ids, %u : tensor<3x50xi32>, tensor<3x130x50xf32>)
        outs(%e : tensor<40x130xf32>) -> tensor<40x130xf32>
    return %y : tensor<40x130xf32>
  }
}
