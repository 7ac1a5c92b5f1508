// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters | FileCheck %s

#id = affine_map<(f, t) -> (f, t)>
#token = affine_map<(f, t) -> (t)>

// What work items can go through one after the other is a chain: the sum is in registers.
// CHECK-LABEL: bsr.cluster private @quotients
// CHECK-SAME:    plan = #bsr.plan<chain, shared = [16]>
// CHECK:         linalg.generic {{.*}}bsr.root = #bsr.root<nest = 0 loops = [-1, 0]>
// CHECK:         arith.addf
// CHECK:         linalg.generic {{.*}}bsr.root = #bsr.root<nest = 1 loops = [-1, 0]>
// CHECK:         arith.divf
bsr.cluster private @quotients(%x: tensor<8x16xf32>, %i: tensor<16xf32>, %e: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %s = linalg.generic {indexing_maps = [#id, #token], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<8x16xf32>) outs(%i : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %y = linalg.generic {indexing_maps = [#id, #token, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<8x16xf32>, tensor<16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x16xf32>
  bsr.yield %y : tensor<8x16xf32>
}

// -----

#id = affine_map<(i) -> (i)>

// A piece that is an argument becomes a copy, which can write it where it belongs.
// CHECK-LABEL: bsr.cluster private @pieces
// CHECK-SAME:    plan = #bsr.plan<nests>
// CHECK:         linalg.generic {{.*}}bsr.root = #bsr.root<nest = 0>
// CHECK:         math.exp
// CHECK:         linalg.generic {{.*}}bsr.root = #bsr.root<nest = 1>
// CHECK-NEXT:    ^bb0(%[[IN:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      linalg.yield %[[IN]]
// CHECK:         tensor.concat
// CHECK-NOT:       bsr.root
bsr.cluster private @pieces(%x: tensor<8xf32>, %e: tensor<8xf32>) -> tensor<16xf32> {
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %c = tensor.concat dim(0) %y, %x : (tensor<8xf32>, tensor<8xf32>) -> tensor<16xf32>
  bsr.yield %c : tensor<16xf32>
}

// -----

#id = affine_map<(i) -> (i)>

// A plan stays: here each operation has loops of its own, where one nest could have both.
// CHECK-LABEL: bsr.cluster private @planned
// CHECK:         bsr.root = #bsr.root<nest = 0>
// CHECK:         bsr.root = #bsr.root<nest = 1>
bsr.cluster private @planned(%x: tensor<8xf32>, %e: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)
    attributes {plan = #bsr.plan<nests>} {
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {bsr.root = #bsr.root<nest = 0>} {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) attrs = {bsr.root = #bsr.root<nest = 1>} {
  ^bb0(%a: f32, %o: f32):
    %0 = math.absf %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  bsr.yield %y, %z : tensor<8xf32>, tensor<8xf32>
}
