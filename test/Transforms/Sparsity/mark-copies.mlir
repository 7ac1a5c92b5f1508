// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-mark="match=w$ block=4x8 density=0.25" | FileCheck %s

// An average of the weights follows them, as does what they were at first, of
// which only the distance is used; what else the step adds to them does not.

// CHECK-LABEL: func.func @copies(
// CHECK-SAME:    bsr.mark = [[MARK:#bsr.mark<block = 4x8, density = 2.500000e-01, weight = "p.w">]], bsr.name = "p.w"
// CHECK-SAME:    bsr.mark = [[MARK]], bsr.name = "ema"
// CHECK-SAME:    bsr.mark = [[MARK]], bsr.name = "first"
// CHECK-SAME:    tensor<8x16xf32> {bsr.name = "noise"
func.func @copies(
    %w: tensor<8x16xf32> {bsr.name = "p.w", bsr.role = "param", bsr.result = 0 : i64},
    %ema: tensor<8x16xf32> {bsr.name = "ema", bsr.role = "state", bsr.result = 1 : i64},
    %first: tensor<8x16xf32> {bsr.name = "first", bsr.role = "state"},
    // expected-warning @below {{expected "noise", which the step combines with the weight "p.w" entry by entry, to be a moment, a copy or a mask of it, but got another use: it stays dense}}
    %noise: tensor<8x16xf32> {bsr.name = "noise", bsr.role = "state"})
    -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<f32>, tensor<8x16xf32>) {
  %e = tensor.empty() : tensor<8x16xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %next = linalg.exp ins(%w : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %average = linalg.max ins(%ema, %next : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %far = linalg.sub ins(%w, %first : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %distance = linalg.reduce ins(%far : tensor<8x16xf32>) outs(%zero : tensor<f32>) dimensions = [0, 1]
      (%a: f32, %o: f32) {
        %0 = arith.mulf %a, %a : f32
        %1 = arith.addf %0, %o : f32
        linalg.yield %1 : f32
      }
  %other = linalg.add ins(%w, %noise : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %next, %average, %distance, %other : tensor<8x16xf32>, tensor<8x16xf32>, tensor<f32>, tensor<8x16xf32>
}

// -----

// A gradient that is only added up follows its weight if the update reads it,
// through a selection of whole tensors too. What another parameter follows is
// none of it.

// CHECK-LABEL: func.func @selected(
// CHECK-SAME:    bsr.mark = {{.*}}, bsr.name = "p.w"
// CHECK-SAME:    tensor<8x16xf32> {bsr.mark = {{.*}}, bsr.name = "sum"
// CHECK-SAME:    tensor<8x16xf32> {bsr.name = "other"
func.func @selected(
    %w: tensor<8x16xf32> {bsr.name = "p.w", bsr.result = 0 : i64},
    %sum: tensor<8x16xf32> {bsr.name = "sum", bsr.result = 1 : i64},
    %other: tensor<8x16xf32> {bsr.name = "other", bsr.result = 2 : i64},
    %x: tensor<8x4xf32> {bsr.name = "x"}, %y: tensor<4x16xf32> {bsr.name = "y"}, %ok: i1 {bsr.name = "ok"})
    -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) {
  %e = arith.constant dense<0.0> : tensor<8x16xf32>
  %g = linalg.matmul ins(%x, %y : tensor<8x4xf32>, tensor<4x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %added = linalg.add ins(%sum, %g : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %stepped = linalg.sub ins(%w, %added : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %next = arith.select %ok, %stepped, %w : tensor<8x16xf32>
  %h = linalg.matmul ins(%x, %y : tensor<8x4xf32>, tensor<4x16xf32>) outs(%g : tensor<8x16xf32>) -> tensor<8x16xf32>
  %next_other = linalg.sub ins(%other, %h : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %next, %added, %next_other : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}

// -----

// What the program has and the step does not use is no error.

// expected-warning @below {{expected the step to use the weight "head.w", which 'w$' matches, but got none that does}}
func.func @unused(%x: tensor<8x16xf32> {bsr.name = "x"}) attributes {bsr.unused = ["head.w", "head.b"]} { return }

// -----

// Averages and target networks that are parameters follow their weight,
// whether their names match or not, if the step changes them; a weight of which
// a moment matches is none.

// CHECK-LABEL: func.func @parameters(
// CHECK-SAME:    bsr.mark = [[MARK:#bsr.mark<block = 4x8, density = 2.500000e-01, weight = "p.w">]], bsr.name = "p.w"
// CHECK-SAME:    bsr.mark = [[MARK]], bsr.name = "ema.w"
// CHECK-SAME:    bsr.mark = [[MARK]], bsr.name = "target"
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 4x8, density = 2.500000e-01, weight = "kept.w">, bsr.name = "kept.w"
func.func @parameters(
    %w: tensor<8x16xf32> {bsr.name = "p.w", bsr.role = "param", bsr.result = 0 : i64},
    %ema: tensor<8x16xf32> {bsr.name = "ema.w", bsr.role = "param", bsr.result = 1 : i64},
    %target: tensor<8x16xf32> {bsr.name = "target", bsr.role = "param", bsr.result = 2 : i64},
    %kept: tensor<8x16xf32> {bsr.name = "kept.w", bsr.role = "param", bsr.result = 3 : i64},
    %x: tensor<4x8xf32> {bsr.name = "x"}) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) {
  %c = arith.constant dense<0.0> : tensor<8x16xf32>
  %e = arith.constant dense<0.0> : tensor<4x16xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x16xf32>) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %g = linalg.matmul indexing_maps = [affine_map<(i, j, k) -> (k, i)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>]
      ins(%x, %y : tensor<4x8xf32>, tensor<4x16xf32>) outs(%c : tensor<8x16xf32>) -> tensor<8x16xf32>
  %next = linalg.sub ins(%w, %g : tensor<8x16xf32>, tensor<8x16xf32>) outs(%c : tensor<8x16xf32>) -> tensor<8x16xf32>
  %average = linalg.max ins(%ema, %next : tensor<8x16xf32>, tensor<8x16xf32>) outs(%c : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %next, %average, %next, %kept : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}
