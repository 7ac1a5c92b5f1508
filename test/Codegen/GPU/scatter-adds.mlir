// RUN: sparse-opt %s --bsr-plan-clusters --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

// A block of 128 threads has a row: each thread looks at a token in turn, and adds to its own feature the updates of those
// that are of the row.
// CHECK-LABEL: func private @gradient(
// CHECK-SAME:    %[[IDS:.*]]: memref<3x50xi32>, %[[U:.*]]: memref<3x130x50xf32>, %[[Y:.*]]: memref<40x130xf32>)
// CHECK:         gpu.launch blocks(%[[ROW:[a-z0-9]+]], %[[TILE:[a-z0-9]+]], %{{[a-z0-9]+}}) in (%{{.*}} = %c40, %{{.*}} = %c2, %{{.*}} = %c1)
// CHECK-SAME:        workgroup(%[[MASKS:.*]] : memref<4xi32, #gpu.address_space<workgroup>>)
// CHECK:           %[[FEATURE:.*]] = arith.minui %[[F:.*]], %c129
// CHECK:           %[[SUM:.*]] = scf.for %{{.*}} = %c0 to %c150 step %c128
// CHECK:             memref.load %[[IDS]]
// CHECK:             %[[MASK:.*]] = nvvm.vote.sync ballot %{{.*}}, %{{.*}} -> i32
// CHECK:             memref.store %[[MASK]], %[[MASKS]]
// CHECK:             gpu.barrier
// CHECK:             scf.for %{{.*}} = %c0 to %c4
// CHECK:               memref.load %[[MASKS]]
// CHECK:               scf.while
// CHECK:                 math.ctpop
// CHECK:                 memref.load %[[U]][%{{.*}}, %[[FEATURE]], %{{.*}}]
// CHECK:                 arith.addf
// CHECK:             gpu.barrier
// CHECK:           scf.if
// CHECK:             memref.store %[[SUM]], %[[Y]][%[[ROW]], %[[F]]]
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
