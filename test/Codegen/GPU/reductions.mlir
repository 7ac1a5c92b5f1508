// Sums that several threads share, as launches of blocks.
//
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

#in = affine_map<(i, f) -> (f, i)>
#out = affine_map<(i, f) -> (i)>

// Results lie side by side: eight threads read eight of them, 32 bytes, and the 96 terms of each are those of 16
// threads, which hand over what they have in shared memory. The last block takes its last result again.
// CHECK-LABEL: func private @across(
// CHECK-SAME:    %[[X:.*]]: memref<96x13xf32>, %[[Y:.*]]: memref<13xf32>)
// CHECK:         gpu.launch blocks(%[[BLOCK:[a-z0-9]+]], %{{[a-z0-9]+}}, %{{[a-z0-9]+}}) in (%{{[a-z0-9]+}} = %c2, %{{[a-z0-9]+}} = %c1, %{{[a-z0-9]+}} = %c1)
// CHECK-SAME:        threads(%[[THREAD:[a-z0-9]+]], %{{[a-z0-9]+}}, %{{[a-z0-9]+}}) in (%{{[a-z0-9]+}} = %c128, %{{[a-z0-9]+}} = %c1, %{{[a-z0-9]+}} = %c1)
// CHECK-SAME:        workgroup(%[[SHARED:.*]] : memref<128xf32, #gpu.address_space<workgroup>>)
// CHECK-DAG:       %[[SEGMENT:.*]] = arith.divui %[[THREAD]], %c8
// CHECK-DAG:       %[[LANE:.*]] = arith.remui %[[THREAD]], %c8
// CHECK:           %[[N:.*]] = arith.addi %{{.*}}, %[[LANE]]
// CHECK:           %[[INSIDE:.*]] = arith.cmpi ult, %[[N]], %c13
// CHECK:           %[[TAKEN:.*]] = arith.minui %[[N]], %c12
// CHECK:           %[[SUM:.*]] = scf.for %[[K:.*]] = %[[SEGMENT]] to %c96 step %c16 iter_args(%{{.*}} = %{{.*}}) -> (f32) {
// CHECK:             memref.load %[[X]][%[[K]], %[[TAKEN]]]
// CHECK:           %[[FIRST:.*]] = arith.cmpi eq, %[[SEGMENT]], %c0
// CHECK:           memref.store %[[SUM]], %[[SHARED]]
// CHECK:           gpu.barrier
// CHECK:           arith.andi %[[FIRST]], %[[INSIDE]]
// CHECK:           scf.if
// CHECK:             %[[ALL:.*]] = scf.for %{{.*}} = %c1 to %c16 step %c1 iter_args(%{{.*}} = %[[SUM]])
// CHECK:               memref.load %[[SHARED]]
// CHECK:             %[[RESULT:.*]] = arith.addf %[[ALL]]
// CHECK:             memref.store %[[RESULT]], %[[Y]][%[[N]]]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @across(%x: tensor<96x13xf32>) -> tensor<13xf32> {
    %z = arith.constant dense<1.0> : tensor<13xf32>
    %y = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<96x13xf32>) outs(%z : tensor<13xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.mulf %a, %a : f32
      %1 = arith.addf %o, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<13xf32>
    bsr.yield %y : tensor<13xf32>
  }
  func.func @step(%x: tensor<96x13xf32>) -> tensor<13xf32> {
    %e = tensor.empty() : tensor<13xf32>
    %y = bsr.launch @across ins(%x : tensor<96x13xf32>) outs(%e : tensor<13xf32>) -> tensor<13xf32>
    return %y : tensor<13xf32>
  }
}

// -----

#in = affine_map<(f, i) -> (f, i)>
#out = affine_map<(f, i) -> (f)>

// Terms lie side by side: two warps take those of one result, and combine by shuffles first. What is no word is moved in
// one.
// CHECK-LABEL: func private @along(
// CHECK-SAME:    %[[X:.*]]: memref<96x300xf16>, %[[Y:.*]]: memref<96xf16>)
// CHECK:         gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c24,
// CHECK-SAME:        threads(%[[THREAD:[a-z0-9]+]], %{{[a-z0-9]+}}, %{{[a-z0-9]+}}) in (%{{[a-z0-9]+}} = %c256,
// CHECK-SAME:        workgroup(%[[SHARED:.*]] : memref<8xf16, #gpu.address_space<workgroup>>)
// CHECK-DAG:       %[[SEGMENT:.*]] = arith.remui %[[THREAD]], %c64
// CHECK:           scf.for %[[K:.*]] = %[[SEGMENT]] to %c300 step %c64
// CHECK:             memref.load %[[X]][%{{.*}}, %[[K]]]
// CHECK:           arith.extui %{{.*}} : i16 to i32
// CHECK:           gpu.shuffle down %{{.*}}, %c16_i32, %c32_i32 : i32
// CHECK:           arith.trunci %{{.*}} : i32 to i16
// CHECK:           arith.maximumf
// CHECK-COUNT-4:   gpu.shuffle down
// CHECK:           scf.if
// CHECK:             memref.store %{{.*}}, %[[SHARED]]
// CHECK:           gpu.barrier
// CHECK:           scf.if
// CHECK:             memref.load %[[SHARED]]
// CHECK:             memref.store %{{.*}}, %[[Y]]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @along(%x: tensor<96x300xf16>) -> tensor<96xf16> {
    %z = arith.constant dense<0xFC00> : tensor<96xf16>
    %y = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<96x300xf16>) outs(%z : tensor<96xf16>) {
    ^bb0(%a: f16, %o: f16):
      %1 = arith.maximumf %o, %a : f16
      linalg.yield %1 : f16
    } -> tensor<96xf16>
    bsr.yield %y : tensor<96xf16>
  }
  func.func @step(%x: tensor<96x300xf16>) -> tensor<96xf16> {
    %e = tensor.empty() : tensor<96xf16>
    %y = bsr.launch @along ins(%x : tensor<96x300xf16>) outs(%e : tensor<96xf16>) -> tensor<96xf16>
    return %y : tensor<96xf16>
  }
}

// -----

#in = affine_map<(i) -> (i)>
#out = affine_map<(i) -> ()>

// So long a sum is that of many blocks, which leave parts of it in scratch memory for a second launch.
// CHECK-LABEL: func private @total(
// CHECK-SAME:    %[[X:.*]]: memref<100000xf32>, %[[Y:.*]]: memref<f32>, %[[PARTS:.*]]: memref<32x1xf32>)
// CHECK:         gpu.launch blocks(%{{[a-z0-9]+}}, %[[PART:[a-z0-9]+]], %{{[a-z0-9]+}}) in (%{{[a-z0-9]+}} = %c1, %{{[a-z0-9]+}} = %c32, %{{[a-z0-9]+}} = %c1)
// CHECK:           scf.for %{{.*}} = %{{.*}} to %c100000 step %c8192
// CHECK:             memref.load %[[X]]
// CHECK:           memref.store %{{.*}}, %[[PARTS]][%[[PART]], %c0]
// CHECK:         gpu.launch blocks({{.*}}) in (%{{[a-z0-9]+}} = %c1, %{{[a-z0-9]+}} = %c1, %{{[a-z0-9]+}} = %c1)
// CHECK:           scf.for %{{.*}} = %{{.*}} to %c32 step %c32
// CHECK:             memref.load %[[PARTS]]
// CHECK:           memref.store %{{.*}}, %[[Y]][]
// CHECK-LABEL: func @step(
// CHECK:         bufferization.alloc_tensor() : tensor<32x1xf32>
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @total(%x: tensor<100000xf32>) -> tensor<f32> {
    %z = arith.constant dense<0.0> : tensor<f32>
    %y = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["reduction"]}
        ins(%x : tensor<100000xf32>) outs(%z : tensor<f32>) {
    ^bb0(%a: f32, %o: f32):
      %1 = arith.addf %o, %a : f32
      linalg.yield %1 : f32
    } -> tensor<f32>
    bsr.yield %y : tensor<f32>
  }
  func.func @step(%x: tensor<100000xf32>) -> tensor<f32> {
    %e = tensor.empty() : tensor<f32>
    %y = bsr.launch @total ins(%x : tensor<100000xf32>) outs(%e : tensor<f32>) -> tensor<f32>
    return %y : tensor<f32>
  }
}

// -----

#in = affine_map<(i, f) -> (f, i)>
#out = affine_map<(i, f) -> (i)>

// Few terms are one thread's.
// CHECK-LABEL: func private @few(
// CHECK:         scf.forall
// CHECK-NOT:     gpu.launch
// CHECK:         return
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @few(%x: tensor<31x64xf32>) -> tensor<64xf32> {
    %z = arith.constant dense<0.0> : tensor<64xf32>
    %y = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction"]}
        ins(%x : tensor<31x64xf32>) outs(%z : tensor<64xf32>) {
    ^bb0(%a: f32, %o: f32):
      %1 = arith.addf %o, %a : f32
      linalg.yield %1 : f32
    } -> tensor<64xf32>
    bsr.yield %y : tensor<64xf32>
  }
  func.func @step(%x: tensor<31x64xf32>) -> tensor<64xf32> {
    %e = tensor.empty() : tensor<64xf32>
    %y = bsr.launch @few ins(%x : tensor<31x64xf32>) outs(%e : tensor<64xf32>) -> tensor<64xf32>
    return %y : tensor<64xf32>
  }
}

// -----

// A thread block has the norm of a block of a product that is not stored; largest entries are compared.
// CHECK-LABEL: func private @scores(
// CHECK-SAME:    %[[A:.*]]: memref<10x64xf32>, %[[B:.*]]: memref<10x48xf32>, %[[Y:.*]]: memref<4x3xf32>)
// CHECK:         gpu.launch blocks({{.*}}) in (%{{.*}} = %c12,
// CHECK:           scf.for %{{.*}} = %{{.*}} to %c256 step %c256
// CHECK:             scf.for %{{.*}} = %c0 to %c10
// CHECK:               memref.load %[[A]]
// CHECK:               memref.load %[[B]]
// CHECK:             math.absf
// CHECK:             arith.maximumf
// CHECK:           gpu.shuffle down
// CHECK:           arith.maximumf
// CHECK:           memref.store %{{.*}}, %[[Y]]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @scores(%a: tensor<10x64xf32>, %b: tensor<10x48xf32>) -> tensor<4x3xf32> {
    %0 = bsr.block_scores linf %a, %b feature_dim = 1 : tensor<10x64xf32>, tensor<10x48xf32> -> tensor<4x3xf32>
    bsr.yield %0 : tensor<4x3xf32>
  }
  func.func @step(%a: tensor<10x64xf32>, %b: tensor<10x48xf32>) -> tensor<4x3xf32> {
    %e = tensor.empty() : tensor<4x3xf32>
    %y = bsr.launch @scores ins(%a, %b : tensor<10x64xf32>, tensor<10x48xf32>) outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
    return %y : tensor<4x3xf32>
  }
}
