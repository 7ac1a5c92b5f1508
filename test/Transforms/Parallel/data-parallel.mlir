// RUN: sparse-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(bsr-data-parallel))' --verify-diagnostics | FileCheck %s

// The gradient of a marked weight is reduced as values, before the norm and the
// update read it; the loss and the scores are reduced, too.
#id = affine_map<(s, i, j) -> (s, i, j)>
#number = affine_map<(s, i, j) -> ()>
// CHECK-LABEL: func.func @clipped(
// CHECK-SAME: attributes {bsr.communicates}
func.func @clipped(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.role = "param", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                   %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                   %x: tensor<16x8xf32> {bsr.name = "x", bsr.role = "batch"},
                   %dy: tensor<16x8xf32> {bsr.name = "dy", bsr.role = "batch"})
    -> (tensor<2x4x4xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"},
        tensor<2x2xf32> {bsr.name = "w", bsr.role = "scores"}) {
  // CHECK: %[[G:.*]] = bsr.sddmm
  // CHECK: %[[MEAN:.*]] = bsr.all_reduce %[[G]] : tensor<2x4x4xf32> -> tensor<2x4x4xf32>
  %g = bsr.sddmm %p, %x, %dy feature_dim = 1
      : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<16x8xf32>, tensor<16x8xf32>
      -> tensor<2x4x4xf32>
  // CHECK: %[[S:.*]] = bsr.block_scores
  %s = bsr.block_scores l1 %x, %dy feature_dim = 1
      : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x2xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  // CHECK: linalg.generic {{.*}} ins(%[[MEAN]] : tensor<2x4x4xf32>)
  %norm = linalg.generic {indexing_maps = [#id, #number], iterator_types = ["reduction", "reduction", "reduction"]}
      ins(%g : tensor<2x4x4xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%e: f32, %sum: f32):
    %square = arith.mulf %e, %e : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<f32>
  // CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[MEAN]], %{{.*}} :
  %next = linalg.generic {indexing_maps = [#id, #id, #number, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %g, %norm : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<f32>) outs(%w : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %n: f32, %out: f32):
    %scaled = arith.divf %b, %n : f32
    %new = arith.subf %a, %scaled : f32
    linalg.yield %new : f32
  } -> tensor<2x4x4xf32>
  // CHECK: %[[L:.*]] = linalg.reduce
  %loss = linalg.reduce ins(%x : tensor<16x8xf32>) outs(%zero : tensor<f32>) dimensions = [0, 1]
    (%a: f32, %sum: f32) {
      %add = arith.addf %a, %sum : f32
      linalg.yield %add : f32
    }
  // CHECK-DAG: %[[LOSS:.*]] = bsr.all_reduce %[[L]] : tensor<f32> -> tensor<f32>
  // CHECK-DAG: %[[SCORES:.*]] = bsr.all_reduce %[[S]] : tensor<2x2xf32> -> tensor<2x2xf32>
  // CHECK: return %{{.*}}, %[[LOSS]], %[[SCORES]]
  return %next, %loss, %s : tensor<2x4x4xf32>, tensor<f32>, tensor<2x2xf32>
}

// -----

// What does not differ is not reduced; a gradient of a gradient's entries is none.
// CHECK-LABEL: func.func @counted(
// CHECK-COUNT-1: bsr.all_reduce
// CHECK-NOT: bsr.all_reduce
func.func @counted(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                   %n: tensor<f32> {bsr.name = "n", bsr.role = "state", bsr.result = 1 : i64},
                   %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> (tensor<4xf32>, tensor<f32>) {
  %g = linalg.reduce ins(%x : tensor<8x4xf32>) outs(%w : tensor<4xf32>) dimensions = [0]
    (%a: f32, %sum: f32) {
      %0 = arith.addf %a, %sum : f32
      linalg.yield %0 : f32
    }
  %total = linalg.reduce ins(%g : tensor<4xf32>) outs(%n : tensor<f32>) dimensions = [0]
    (%a: f32, %sum: f32) {
      %0 = arith.addf %a, %sum : f32
      linalg.yield %0 : f32
    }
  return %g, %total : tensor<4xf32>, tensor<f32>
}

// -----

func.func @largest(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                   %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> tensor<4xf32> {
  // expected-error @below {{expected the next value of "w" to depend on the batch by sums over it, which are gradients, but got 'linalg.reduce'}}
  %g = linalg.reduce ins(%x : tensor<8x4xf32>) outs(%w : tensor<4xf32>) dimensions = [0]
    (%a: f32, %most: f32) {
      %0 = arith.maximumf %a, %most : f32
      linalg.yield %0 : f32
    }
  return %g : tensor<4xf32>
}

// -----

// A sum over the batch that scales what is another sum over the batch.
func.func @divided(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                   %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> tensor<4xf32> {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %g = linalg.reduce ins(%x : tensor<8x4xf32>) outs(%w : tensor<4xf32>) dimensions = [0]
    (%a: f32, %sum: f32) {
      %0 = arith.addf %a, %sum : f32
      linalg.yield %0 : f32
    }
  %count = linalg.reduce ins(%x : tensor<8x4xf32>) outs(%zero : tensor<f32>) dimensions = [0, 1]
    (%a: f32, %sum: f32) {
      %0 = arith.addf %a, %sum : f32
      linalg.yield %0 : f32
    }
  // expected-error @below {{expected the next value of "w" to depend on the batch by sums over it, which are gradients, but got another way}}
  %mean = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%g, %count : tensor<4xf32>, tensor<f32>) outs(%w : tensor<4xf32>) {
  ^bb0(%a: f32, %n: f32, %out: f32):
    %0 = arith.divf %a, %n : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %mean : tensor<4xf32>
}

// -----

// Both ways in: the second sum reads what the first one's mean was to be.
func.func @twice(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                 %v: tensor<4xf32> {bsr.name = "v", bsr.role = "param", bsr.result = 1 : i64},
                 %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %g = linalg.reduce ins(%x : tensor<8x4xf32>) outs(%w : tensor<4xf32>) dimensions = [0]
    (%a: f32, %sum: f32) {
      %0 = arith.addf %a, %sum : f32
      linalg.yield %0 : f32
    }
  // expected-error @below {{expected the next value of "v" to depend on the batch by sums over it, which are gradients, but got one that depends on another and the batch}}
  %h = linalg.generic {indexing_maps = [affine_map<(b, i) -> (b, i)>, affine_map<(b, i) -> (i)>, affine_map<(b, i) -> (i)>], iterator_types = ["reduction", "parallel"]}
      ins(%x, %g : tensor<8x4xf32>, tensor<4xf32>) outs(%v : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  return %g, %h : tensor<4xf32>, tensor<4xf32>
}

// -----

func.func @stored(%s: tensor<8x4xf32> {bsr.name = "s", bsr.role = "state", bsr.result = 0 : i64},
                  %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> tensor<8x4xf32> {
  // expected-error @below {{expected the next value of "s" to depend on the batch by sums over it, which are gradients, but got another way}}
  %0 = arith.addf %s, %x : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  // expected-error @below {{expected a target that runs on processors for means over processes, but got #bsr.gpu}}
  func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
    return %w : tensor<4xf32>
  }
}
