// A chain is one launch: of 2048 items, 16 a block of 512 threads, 32 of which share each and take 3 rows. Of a
// total, blocks leave parts for a second launch.
//
// RUN: sparse-opt %s --bsr-plan-clusters --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

#id = affine_map<(b, f, t) -> (b, f, t)>
#token = affine_map<(b, f, t) -> (b, t)>
#feature = affine_map<(b, f, t) -> (f)>

// CHECK-LABEL: func private @shares(
// CHECK-SAME:    %[[X:.*]]: memref<16x96x128xf32>, %[[Y:.*]]: memref<16x96x128xf32>, %[[S:.*]]: memref<96xf32>,
// CHECK-SAME:    %[[PARTS:.*]]: memref<128x96xf32>)
// CHECK:         gpu.launch blocks({{.*}}) in (%{{[^ ]+}} = %c128, {{.*}} threads({{.*}}) in (%{{[^ ]+}} = %c512,
// CHECK-SAME:      workgroup(%[[SHARED:[^ ]+]] : memref<256xf32, #gpu.address_space<workgroup>>)
// CHECK-COUNT-3:   memref.load %[[X]]
// CHECK-NOT:       memref.load %[[X]]
// CHECK:           gpu.shuffle xor
// CHECK:           memref.store %{{.*}}, %[[SHARED]]
// CHECK:           gpu.barrier
// CHECK-COUNT-16:  memref.load %[[SHARED]]
// CHECK-NOT:       memref.load
// CHECK:           arith.divf
// CHECK:           memref.store %{{.*}}, %[[Y]]
// The 16 items of a block.
// CHECK-COUNT-4:   gpu.shuffle xor
// CHECK:           memref.store %{{.*}}, %[[PARTS]]
// CHECK:           gpu.terminator
// CHECK:         gpu.launch
// CHECK:           memref.load %[[PARTS]]
// CHECK:           memref.store %{{.*}}, %[[S]]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @shares(%x: tensor<16x96x128xf32>) -> (tensor<16x96x128xf32>, tensor<96xf32>) {
    %zero = arith.constant dense<0.0> : tensor<16x128xf32>
    %sum = linalg.generic {indexing_maps = [#id, #token], iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%x : tensor<16x96x128xf32>) outs(%zero : tensor<16x128xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.addf %o, %a : f32
      linalg.yield %0 : f32
    } -> tensor<16x128xf32>
    %e = tensor.empty() : tensor<16x96x128xf32>
    %y = linalg.generic {indexing_maps = [#id, #token, #id], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x, %sum : tensor<16x96x128xf32>, tensor<16x128xf32>) outs(%e : tensor<16x96x128xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %0 = arith.divf %a, %b : f32
      linalg.yield %0 : f32
    } -> tensor<16x96x128xf32>
    %none = arith.constant dense<0.0> : tensor<96xf32>
    %s = linalg.generic {indexing_maps = [#id, #feature], iterator_types = ["reduction", "parallel", "reduction"]}
        ins(%y : tensor<16x96x128xf32>) outs(%none : tensor<96xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = arith.addf %o, %a : f32
      linalg.yield %0 : f32
    } -> tensor<96xf32>
    bsr.yield %y, %s : tensor<16x96x128xf32>, tensor<96xf32>
  }
  func.func @step(%x: tensor<16x96x128xf32>) -> (tensor<16x96x128xf32>, tensor<96xf32>) {
    %e = tensor.empty() : tensor<16x96x128xf32>
    %f = tensor.empty() : tensor<96xf32>
    %y, %s = bsr.launch @shares ins(%x : tensor<16x96x128xf32>) outs(%e, %f : tensor<16x96x128xf32>, tensor<96xf32>)
        -> tensor<16x96x128xf32>, tensor<96xf32>
    return %y, %s : tensor<16x96x128xf32>, tensor<96xf32>
  }
}
