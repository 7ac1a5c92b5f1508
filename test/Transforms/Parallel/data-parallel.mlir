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

// A sum of integers has no mean.
func.func @integers(%n: tensor<4xi32> {bsr.name = "n", bsr.role = "state", bsr.result = 0 : i64},
                    %x: tensor<8x4xi32> {bsr.name = "x", bsr.role = "batch"}) -> tensor<4xi32> {
  // expected-error @below {{expected the next value of "n" to depend on the batch by sums over it, which are gradients, but got 'linalg.reduce'}}
  %g = linalg.reduce {arith.addi} ins(%x : tensor<8x4xi32>) outs(%n : tensor<4xi32>) dimensions = [0]
  return %g : tensor<4xi32>
}

// -----

// CHECK-LABEL: func.func @activations(
// CHECK-NOT: bsr.all_reduce
// CHECK: return
func.func @activations(%x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> (tensor<8x4xf32> {bsr.name = "y"}) {
  // expected-remark @below {{expected result "y" to be one floating-point number, but got 'tensor<8x4xf32>': it stays that of each process}}
  %y = arith.negf %x : tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  // expected-error @below {{expected a target that runs on processors for means over processes, but got #bsr.gpu}}
  func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<4xf32> {
    return %w : tensor<4xf32>
  }
}

// -----

// Two gradients of one weight are one mean, of their sum, whatever the order of their entries.
// CHECK-LABEL: func.func @tied(
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK-NEXT: %[[MEAN:.*]] = bsr.all_reduce %[[SUM]] : tensor<4x8xf32>
// CHECK-NOT: bsr.all_reduce
// CHECK: return %[[MEAN]]
func.func @tied(%w: tensor<4x8xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                %x: tensor<16x4xf32> {bsr.name = "x", bsr.role = "batch"},
                %y: tensor<16x8xf32> {bsr.name = "y", bsr.role = "batch"}) -> tensor<4x8xf32> {
  %zero = arith.constant dense<0.0> : tensor<4x8xf32>
  %other = arith.constant dense<0.0> : tensor<8x4xf32>
  %a = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %y : tensor<16x4xf32>, tensor<16x8xf32>) outs(%zero : tensor<4x8xf32>) -> tensor<4x8xf32>
  %b = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%y, %x : tensor<16x8xf32>, tensor<16x4xf32>) outs(%other : tensor<8x4xf32>) -> tensor<8x4xf32>
  %t = linalg.transpose ins(%b : tensor<8x4xf32>) outs(%zero : tensor<4x8xf32>) permutation = [1, 0]
  %g = arith.addf %a, %t : tensor<4x8xf32>
  return %g : tensor<4x8xf32>
}

// -----

// So are multiples of gradients, as of an embedding that is scaled where it is looked up, but not what
// depends on the batch in another way.
#v = affine_map<(i) -> (i)>
// CHECK-LABEL: func.func @scaled(
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK-NEXT: %[[MEAN:.*]] = bsr.all_reduce %[[SUM]] : tensor<4xf32>
// CHECK-NOT: bsr.all_reduce
// CHECK: return %[[MEAN]]
func.func @scaled(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                  %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"},
                  %y: tensor<8x4xf32> {bsr.name = "y", bsr.role = "batch"}) -> tensor<4xf32> {
  %none = arith.constant dense<0.0> : tensor<4xf32>
  %two = arith.constant dense<2.0> : tensor<4xf32>
  %three = arith.constant 3.0 : f32
  %a = linalg.reduce {arith.addf} ins(%x : tensor<8x4xf32>) outs(%none : tensor<4xf32>) dimensions = [0]
  %b = linalg.reduce {arith.addf} ins(%y : tensor<8x4xf32>) outs(%none : tensor<4xf32>) dimensions = [0]
  %as = arith.mulf %two, %a : tensor<4xf32>
  %bs = linalg.generic {indexing_maps = [#v, #v], iterator_types = ["parallel"]}
      ins(%b : tensor<4xf32>) outs(%none : tensor<4xf32>) {
  ^bb0(%p: f32, %out: f32):
    %0 = arith.divf %p, %three : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %g = arith.addf %as, %bs : tensor<4xf32>
  return %g : tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @inverse(
// CHECK-COUNT-2: bsr.all_reduce
func.func @inverse(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                   %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"},
                   %y: tensor<8x4xf32> {bsr.name = "y", bsr.role = "batch"}) -> tensor<4xf32> {
  %none = arith.constant dense<0.0> : tensor<4xf32>
  %two = arith.constant dense<2.0> : tensor<4xf32>
  %a = linalg.reduce {arith.addf} ins(%x : tensor<8x4xf32>) outs(%none : tensor<4xf32>) dimensions = [0]
  %b = linalg.reduce {arith.addf} ins(%y : tensor<8x4xf32>) outs(%none : tensor<4xf32>) dimensions = [0]
  %as = arith.divf %two, %a : tensor<4xf32>
  %g = arith.addf %as, %b : tensor<4xf32>
  return %g : tensor<4xf32>
}

// -----

// Gradients that are added up over runs are reduced where apply is 1: what they are added up to.
#v = affine_map<(i) -> (i)>
// CHECK-LABEL: func.func @accumulated(
// CHECK-SAME: attributes {bsr.accumulates, bsr.communicates}
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK-NEXT: %[[MEAN:.*]] = bsr.all_reduce %[[SUM]] : tensor<4xf32>
// CHECK-NOT: bsr.all_reduce
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %[[MEAN]]
func.func @accumulated(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                       %sum: tensor<4xf32> {bsr.name = "sum", bsr.role = "state", bsr.result = 1 : i64},
                       %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"},
                       %apply: tensor<f32> {bsr.name = "apply", bsr.role = "apply"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %none = arith.constant dense<0.0> : tensor<4xf32>
  %zero = arith.constant 0.0 : f32
  %number = tensor.extract %apply[] : tensor<f32>
  %is = arith.cmpf une, %number, %zero : f32
  %g = linalg.reduce {arith.addf} ins(%x : tensor<8x4xf32>) outs(%none : tensor<4xf32>) dimensions = [0]
  %all = arith.addf %sum, %g : tensor<4xf32>
  %next = linalg.generic {indexing_maps = [#v, #v, #v], iterator_types = ["parallel"]}
      ins(%w, %all : tensor<4xf32>, tensor<4xf32>) outs(%none : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.subf %a, %b : f32
    %1 = arith.select %is, %0, %a : f32
    linalg.yield %1 : f32
  } -> tensor<4xf32>
  %left = arith.select %is, %none, %all : tensor<4xf32>
  return %next, %left : tensor<4xf32>, tensor<4xf32>
}

// -----

// Where the update comes in all runs, all take means: of gradients that are used before they are added up,
// and of those whose sum is used in another way.
#v = affine_map<(i) -> (i)>
// CHECK-LABEL: func.func @always(
// CHECK-SAME: attributes {bsr.communicates}
// CHECK: %[[MEAN:.*]] = bsr.all_reduce
// CHECK-NEXT: arith.addf %{{.*}}, %[[MEAN]]
func.func @always(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                  %sum: tensor<4xf32> {bsr.name = "sum", bsr.role = "state", bsr.result = 1 : i64},
                  %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"},
                  %apply: tensor<i1> {bsr.name = "apply", bsr.role = "apply"}) -> (tensor<4xf32>, tensor<4xf32>) {
  %none = arith.constant dense<0.0> : tensor<4xf32>
  %is = tensor.extract %apply[] : tensor<i1>
  %g = linalg.reduce {arith.addf} ins(%x : tensor<8x4xf32>) outs(%none : tensor<4xf32>) dimensions = [0]
  %all = arith.addf %sum, %g : tensor<4xf32>
  // expected-remark @below {{expected gradients that are added up in the state of the step and used where apply is not 0, but got the next value of 'w' which depends on the batch in all runs: each run takes means over processes}}
  %next = arith.subf %w, %all : tensor<4xf32>
  %left = arith.select %is, %none, %all : tensor<4xf32>
  return %next, %left : tensor<4xf32>, tensor<4xf32>
}

// -----

#v = affine_map<(i) -> (i)>
// CHECK-LABEL: func.func @used(
// CHECK-SAME: attributes {bsr.communicates}
func.func @used(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"},
                %apply: tensor<i1> {bsr.name = "apply", bsr.role = "apply"}) -> tensor<4xf32> {
  %none = arith.constant dense<0.0> : tensor<4xf32>
  // expected-remark @below {{expected gradients that are added up in the state of the step and used where apply is not 0, but got another use of one: each run takes means over processes}}
  %g = linalg.reduce {arith.addf} ins(%x : tensor<8x4xf32>) outs(%none : tensor<4xf32>) dimensions = [0]
  %next = arith.subf %w, %g : tensor<4xf32>
  return %next : tensor<4xf32>
}

// -----

// A gradient whose entries a body extracts from the batch is reduced like one that
// the operation reads.
#vector = affine_map<(i) -> (i)>
#rows = affine_map<(s, i) -> (i)>
// CHECK-LABEL: func.func @extracted(
// CHECK:       %[[G:.*]] = linalg.generic {{.*}} outs(
// CHECK:       %[[MEAN:.*]] = bsr.all_reduce %[[G]] : tensor<4xf32> -> tensor<4xf32>
// CHECK:       linalg.generic {{.*}} ins(%{{.*}}, %[[MEAN]] :
func.func @extracted(%w: tensor<4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                     %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}) -> tensor<4xf32> {
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %rows = arith.constant dense<0.0> : tensor<8x4xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(s, i) -> (s, i)>, #rows], iterator_types = ["reduction", "parallel"]}
      ins(%rows : tensor<8x4xf32>) outs(%zero : tensor<4xf32>) {
  ^bb0(%row: f32, %sum: f32):
    %s = linalg.index 0 : index
    %i = linalg.index 1 : index
    %e = tensor.extract %x[%s, %i] : tensor<8x4xf32>
    %add = arith.addf %sum, %e : f32
    linalg.yield %add : f32
  } -> tensor<4xf32>
  %next = linalg.generic {indexing_maps = [#vector, #vector, #vector], iterator_types = ["parallel"]}
      ins(%w, %g : tensor<4xf32>, tensor<4xf32>) outs(%w : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %new = arith.subf %a, %b : f32
    linalg.yield %new : f32
  } -> tensor<4xf32>
  return %next : tensor<4xf32>
}
