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

// A large gradient that comes last is sent while others are made: those next to it that have a
// half of its bytes together. What it reads, and what else has to come before, stays in front of it.
// CHECK-LABEL: func.func @tied(
// CHECK-SAME: %[[FIRST:[a-z0-9]*]]: tensor<32xf32> {bsr.name = "first"}, %[[SECOND:[a-z0-9]*]]: tensor<32xf32> {bsr.name = "second"}, %[[LARGE:[a-z0-9]*]]: tensor<64xf32>
// CHECK-NEXT: %[[A:.*]] = arith.mulf %[[FIRST]], %[[FIRST]]
// CHECK-NEXT: bsr.all_reduce %[[A]]
// CHECK-NEXT: %[[C:.*]] = arith.mulf %[[LARGE]], %[[LARGE]]
// CHECK-NEXT: bsr.all_reduce %[[C]] : tensor<64xf32>
// CHECK-NEXT: %[[B:.*]] = arith.mulf %[[SECOND]], %[[SECOND]]
// CHECK-NEXT: %[[B1:.*]] = arith.addf %[[B]], %[[SECOND]]
// CHECK-NEXT: bsr.all_reduce %[[B1]]
// CHECK-NEXT: return
func.func @tied(%first: tensor<32xf32> {bsr.name = "first"}, %second: tensor<32xf32> {bsr.name = "second"},
                %large: tensor<64xf32> {bsr.name = "large"}) -> (tensor<32xf32>, tensor<32xf32>, tensor<64xf32>) {
  %a = arith.mulf %first, %first : tensor<32xf32>
  %mean_a = bsr.all_reduce %a : tensor<32xf32> -> tensor<32xf32>
  %b = arith.mulf %second, %second : tensor<32xf32>
  %c = arith.mulf %large, %large : tensor<64xf32>
  %b1 = arith.addf %b, %second : tensor<32xf32>
  %mean_b = bsr.all_reduce %b1 : tensor<32xf32> -> tensor<32xf32>
  %mean_c = bsr.all_reduce %c : tensor<64xf32> -> tensor<64xf32>
  return %mean_a, %mean_b, %mean_c : tensor<32xf32>, tensor<32xf32>, tensor<64xf32>
}
