// RUN: sparse-opt %s --pass-pipeline="builtin.module(func.func(bsr-split-stages{stages=2 stage=0}))" | FileCheck %s --check-prefix=FIRST
// RUN: sparse-opt %s --pass-pipeline="builtin.module(func.func(bsr-split-stages{stages=2 stage=1}))" | FileCheck %s --check-prefix=SECOND
// RUN: not sparse-opt %s --pass-pipeline="builtin.module(func.func(bsr-split-stages{stages=3 stage=1}))" 2>&1 | FileCheck %s --check-prefix=MANY
// RUN: not sparse-opt %s --pass-pipeline="builtin.module(func.func(bsr-split-stages{stages=2 stage=2}))" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not sparse-opt %s --pass-pipeline="builtin.module(bsr-set-target{target=#bsr.gpu},func.func(bsr-split-stages))" 2>&1 | FileCheck %s --check-prefix=GPU

// MANY: error: expected at most 2 stages, since the step has as many parts that can be cut, but got 3
// NONE: error: expected two stages or more and one of them to keep, counted from 0, but got stage 2 of 2
// GPU: error: expected a target that runs on processors for stages, but got #bsr.gpu

// The activations go to the second stage, their gradient and the loss come back;
// the norm of all gradients is summed up where the first one is.

// FIRST-LABEL: func.func @step(
// FIRST-SAME: %[[W:[a-z0-9]*]]: tensor<4x4xf32> {bsr.name = "w0", bsr.result = 0 : i64, bsr.role = "param"},
// FIRST-SAME: %[[X:[a-z0-9]*]]: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"})
// FIRST-SAME: -> (tensor<4x4xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"})
// FIRST-SAME: attributes {bsr.communicates, bsr.stages = array<i64: 0, 2>}
// FIRST:      %[[H:.*]] = linalg.generic
// FIRST:      bsr.send %[[H]] to 1 : tensor<8x4xf32>
// FIRST-NEXT: %[[LOSS:.*]] = bsr.receive from 1 -> tensor<f32>
// FIRST-NEXT: %[[DH:.*]] = bsr.receive from 1 -> tensor<8x4xf32>
// FIRST-NEXT: %[[G:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[DH]] :
// FIRST:      %[[OWN:.*]] = linalg.generic {{.*}} ins(%[[G]] :
// FIRST:      %[[OTHER:.*]] = bsr.receive from 1 -> tensor<f32>
// FIRST:      %[[NORM:.*]] = linalg.generic {{.*}} ins(%[[OWN]], %[[OTHER]] :
// FIRST:      bsr.send %[[NORM]] to 1 : tensor<f32>
// FIRST:      %[[NEXT:.*]] = linalg.generic {{.*}} ins(%[[W]], %[[G]], %[[NORM]] :
// FIRST-NOT:  linalg.generic
// FIRST:      return %[[NEXT]], %[[LOSS]]

// SECOND-LABEL: func.func @step(
// SECOND-SAME: %[[W:[a-z0-9]*]]: tensor<4x4xf32> {bsr.name = "w1", bsr.result = 0 : i64, bsr.role = "param"},
// SECOND-SAME: attributes {bsr.communicates, bsr.stages = array<i64: 1, 2>}
// SECOND:      %[[H:.*]] = bsr.receive from 0 -> tensor<8x4xf32>
// SECOND-NEXT: %[[Y:.*]] = linalg.generic {{.*}} ins(%[[H]], %[[W]] :
// SECOND:      %[[LOSS:.*]] = linalg.generic {{.*}} ins(%[[Y]] :
// SECOND:      bsr.send %[[LOSS]] to 0 : tensor<f32>
// SECOND:      %[[DH:.*]] = linalg.generic {{.*}} ins(%[[Y]], %[[W]] :
// SECOND:      bsr.send %[[DH]] to 0 : tensor<8x4xf32>
// SECOND:      bsr.send %{{.*}} to 0 : tensor<f32>
// SECOND-NEXT: %[[NORM:.*]] = bsr.receive from 0 -> tensor<f32>
// SECOND-NOT:  bsr.{{send|receive}}
// SECOND:      return

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#d = affine_map<(i, j, k) -> (k, i)>
#e = affine_map<(i, j, k) -> (k, j)>
#t = affine_map<(i, j, k) -> (j, k)>
#f = affine_map<(i, j) -> (i, j)>
#n = affine_map<(i, j) -> ()>
#z = affine_map<() -> ()>
func.func @step(
    %w0: tensor<4x4xf32> {bsr.name = "w0", bsr.result = 0 : i64, bsr.role = "param"},
    %w1: tensor<4x4xf32> {bsr.name = "w1", bsr.result = 1 : i64, bsr.role = "param"},
    %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"})
    -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %zx = arith.constant dense<0.0> : tensor<8x4xf32>
  %zm = arith.constant dense<0.0> : tensor<4x4xf32>
  %z = arith.constant dense<0.0> : tensor<f32>
  %h = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w0 : tensor<8x4xf32>, tensor<4x4xf32>) outs(%zx : tensor<8x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<8x4xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %w1 : tensor<8x4xf32>, tensor<4x4xf32>) outs(%zx : tensor<8x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<8x4xf32>
  %loss = linalg.generic {indexing_maps = [#f, #n], iterator_types = ["reduction", "reduction"]}
      ins(%y : tensor<8x4xf32>) outs(%z : tensor<f32>) {
  ^bb0(%p: f32, %o: f32):
    %m = arith.mulf %p, %p : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %g1 = linalg.generic {indexing_maps = [#d, #e, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %y : tensor<8x4xf32>, tensor<8x4xf32>) outs(%zm : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<4x4xf32>
  %dh = linalg.generic {indexing_maps = [#a, #t, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%y, %w1 : tensor<8x4xf32>, tensor<4x4xf32>) outs(%zx : tensor<8x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<8x4xf32>
  %g0 = linalg.generic {indexing_maps = [#d, #e, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %dh : tensor<8x4xf32>, tensor<8x4xf32>) outs(%zm : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<4x4xf32>
  %s0 = linalg.generic {indexing_maps = [#f, #n], iterator_types = ["reduction", "reduction"]}
      ins(%g0 : tensor<4x4xf32>) outs(%z : tensor<f32>) {
  ^bb0(%p: f32, %o: f32):
    %m = arith.mulf %p, %p : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %s1 = linalg.generic {indexing_maps = [#f, #n], iterator_types = ["reduction", "reduction"]}
      ins(%g1 : tensor<4x4xf32>) outs(%z : tensor<f32>) {
  ^bb0(%p: f32, %o: f32):
    %m = arith.mulf %p, %p : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %n = linalg.generic {indexing_maps = [#z, #z, #z], iterator_types = []}
      ins(%s0, %s1 : tensor<f32>, tensor<f32>) outs(%z : tensor<f32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %s = arith.addf %p, %q : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %u0 = linalg.generic {indexing_maps = [#f, #f, #n, #f], iterator_types = ["parallel", "parallel"]}
      ins(%w0, %g0, %n : tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>) outs(%zm : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32, %o: f32):
    %d = arith.divf %q, %r : f32
    %s = arith.subf %p, %d : f32
    linalg.yield %s : f32
  } -> tensor<4x4xf32>
  %u1 = linalg.generic {indexing_maps = [#f, #f, #n, #f], iterator_types = ["parallel", "parallel"]}
      ins(%w1, %g1, %n : tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>) outs(%zm : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %r: f32, %o: f32):
    %d = arith.divf %q, %r : f32
    %s = arith.subf %p, %d : f32
    linalg.yield %s : f32
  } -> tensor<4x4xf32>
  return %u0, %u1, %loss : tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>
}
