// RUN: sparse-opt %s --bsr-schedule-reductions | FileCheck %s

// What needs no mean comes first; then what needs the first one, then the
// rest, in the order in which it stood. What is nested counts.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[W:[a-z0-9]*]]: tensor<4xf32> {bsr.name = "w"}, %[[DW:[a-z0-9]*]]: tensor<4xf32> {bsr.name = "dw"}, %[[DV:[a-z0-9]*]]: tensor<4xf32>
// CHECK-NEXT: %[[MEAN_W:.*]] = bsr.all_reduce %[[DW]]
// CHECK-NEXT: %[[GRAD:.*]] = arith.mulf %[[DV]], %[[DV]]
// CHECK-NEXT: %[[MEAN_V:.*]] = bsr.all_reduce %[[GRAD]]
// CHECK-NEXT: %[[OTHER:.*]] = arith.mulf %[[GRAD]], %[[W]]
// CHECK-NEXT: %[[NEXT_W:.*]] = arith.subf %[[W]], %[[MEAN_W]]
// CHECK-NEXT: %[[BRANCH:.*]] = scf.if
// CHECK-NEXT: scf.yield %[[NEXT_W]]
// CHECK:      %[[BOTH:.*]] = arith.addf %[[MEAN_V]], %[[MEAN_W]]
// CHECK-NEXT: %[[NORM:.*]] = bsr.all_reduce %[[BOTH]]
// CHECK-NEXT: arith.mulf %[[NORM]], %[[BRANCH]]
// CHECK-NEXT: return
func.func @step(%w: tensor<4xf32> {bsr.name = "w"}, %dw: tensor<4xf32> {bsr.name = "dw"},
                %dv: tensor<4xf32> {bsr.name = "dv"}, %flag: i1 {bsr.name = "flag"})
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %mean_w = bsr.all_reduce %dw : tensor<4xf32> -> tensor<4xf32>
  %grad = arith.mulf %dv, %dv : tensor<4xf32>
  %mean_v = bsr.all_reduce %grad : tensor<4xf32> -> tensor<4xf32>
  %both = arith.addf %mean_v, %mean_w : tensor<4xf32>
  %norm = bsr.all_reduce %both : tensor<4xf32> -> tensor<4xf32>
  %next_w = arith.subf %w, %mean_w : tensor<4xf32>
  %branch = scf.if %flag -> tensor<4xf32> {
    scf.yield %next_w : tensor<4xf32>
  } else {
    scf.yield %w : tensor<4xf32>
  }
  %last = arith.mulf %norm, %branch : tensor<4xf32>
  %other = arith.mulf %grad, %w : tensor<4xf32>
  return %next_w, %last, %other : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// What is no step stays.
// CHECK-LABEL: func.func @helper
// CHECK-NEXT: bsr.all_reduce
// CHECK-NEXT: arith.subf
// CHECK-NEXT: arith.mulf
func.func @helper(%w: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %mean = bsr.all_reduce %w : tensor<4xf32> -> tensor<4xf32>
  %next = arith.subf %w, %mean : tensor<4xf32>
  %other = arith.mulf %w, %w : tensor<4xf32>
  return %next, %other : tensor<4xf32>, tensor<4xf32>
}
