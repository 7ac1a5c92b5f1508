// What products take, counted by hand: 2 for each product of two numbers that is added to a sum.
//
// RUN: sparse-opt %s --split-input-file --bsr-count-flops | FileCheck %s

!p = !bsr.pattern<32x64, block = 4x8, slots = 5>
#id = affine_map<(t, c) -> (t, c)>

// A block has 4 * 8 entries. Each is in a product with 6 * 10 tokens, 7 tokens, and summed over 9 tokens:
// 2 * 32 * (60 + 7 + 9) = 4864. What is no product counts as nothing.
// CHECK-LABEL: func @sparse
// CHECK-SAME: bsr.work = {blocks = {w = 4864 : i64}, dense = 0 : i64, scores = 0 : i64}
func.func @sparse(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %w: tensor<5x4x8xf32> {bsr.name = "w", bsr.pattern = 0 : i64},
                  %x: tensor<6x10x32xf32> {bsr.name = "x"}, %dy: tensor<64x7xf32> {bsr.name = "dy"},
                  %a: tensor<32x9xf32> {bsr.name = "a"}, %b: tensor<64x9xf32> {bsr.name = "b"},
                  %rows: tensor<32xf32> {bsr.name = "rows"})
    -> (tensor<6x10x64xf32> {bsr.name = "y"}, tensor<32x7xf32> {bsr.name = "dx"}, tensor<5x4x8xf32> {bsr.name = "dw"},
        tensor<6x10x64xf32> {bsr.name = "z"}, tensor<64xf32> {bsr.name = "r"}) {
  %y = bsr.spmm %p, %w, %x feature_dim = 2 : !p, tensor<5x4x8xf32>, tensor<6x10x32xf32> -> tensor<6x10x64xf32>
  %dx = bsr.spmm %p, %w, %dy transpose feature_dim = 0 : !p, tensor<5x4x8xf32>, tensor<64x7xf32> -> tensor<32x7xf32>
  %dw = bsr.sddmm %p, %a, %b feature_dim = 0 : !p, tensor<32x9xf32>, tensor<64x9xf32> -> tensor<5x4x8xf32>
  %z = linalg.exp ins(%y : tensor<6x10x64xf32>) outs(%y : tensor<6x10x64xf32>) -> tensor<6x10x64xf32>
  %r = bsr.reduce_vec %p, %w dim = 1 : !p, tensor<5x4x8xf32> -> tensor<64xf32>
  return %y, %dx, %dw, %z, %r
      : tensor<6x10x64xf32>, tensor<32x7xf32>, tensor<5x4x8xf32>, tensor<6x10x64xf32>, tensor<64xf32>
}

// -----

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#ba = affine_map<(t, i, j, k) -> (t, i, k)>
#bb = affine_map<(t, i, j, k) -> (t, k, j)>
#bc = affine_map<(t, i, j, k) -> (t, i, j)>
#cx = affine_map<(n, p, f, k, c) -> (n, p + k, c)>
#cw = affine_map<(n, p, f, k, c) -> (k, c, f)>
#cy = affine_map<(n, p, f, k, c) -> (n, p, f)>
#v = affine_map<(i) -> (i)>
#s = affine_map<(i) -> ()>

// 5x8 by 8x10: 2 * 400; 3 of 4x6 by 6x5: 2 * 360; a convolution with 3 places of 4 channels to 2 * 5 * 7 numbers:
// 2 * 840; of 16-bit numbers summed in 32: 2 * 400. A sum of numbers is none, and integers are no floating point.
// CHECK-LABEL: func @dense
// CHECK-SAME: bsr.work = {blocks = {}, dense = 4000 : i64, scores = 0 : i64}
func.func @dense(%a: tensor<5x8xf32> {bsr.name = "a"}, %b: tensor<8x10xf32> {bsr.name = "b"}, %c: tensor<5x10xf32> {bsr.name = "c"},
                 %ba: tensor<3x4x6xf32> {bsr.name = "ba"}, %bb: tensor<3x6x5xf32> {bsr.name = "bb"}, %bc: tensor<3x4x5xf32> {bsr.name = "bc"},
                 %x: tensor<2x7x4xf32> {bsr.name = "x"}, %w: tensor<3x4x7xf32> {bsr.name = "w"}, %y: tensor<2x5x7xf32> {bsr.name = "y"},
                 %h: tensor<5x8xbf16> {bsr.name = "h"}, %g: tensor<8x10xbf16> {bsr.name = "g"},
                 %i: tensor<5x8xi32> {bsr.name = "i"}, %j: tensor<8x10xi32> {bsr.name = "j"}, %ij: tensor<5x10xi32> {bsr.name = "ij"},
                 %q: tensor<9xf32> {bsr.name = "q"}, %sum: tensor<f32> {bsr.name = "sum"})
    -> (tensor<5x10xf32> {bsr.name = "r0"}, tensor<3x4x5xf32> {bsr.name = "r1"}, tensor<2x5x7xf32> {bsr.name = "r2"},
        tensor<5x10xf32> {bsr.name = "r3"}, tensor<5x10xi32> {bsr.name = "r4"}, tensor<f32> {bsr.name = "r5"}) {
  %r0 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<5x8xf32>, tensor<8x10xf32>) outs(%c : tensor<5x10xf32>) {
  ^bb0(%0: f32, %1: f32, %2: f32):
    %3 = arith.mulf %0, %1 : f32
    %4 = arith.addf %2, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<5x10xf32>
  %r1 = linalg.generic {indexing_maps = [#ba, #bb, #bc], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%ba, %bb : tensor<3x4x6xf32>, tensor<3x6x5xf32>) outs(%bc : tensor<3x4x5xf32>) {
  ^bb0(%0: f32, %1: f32, %2: f32):
    %3 = arith.mulf %0, %1 : f32
    %4 = arith.addf %3, %2 : f32
    linalg.yield %4 : f32
  } -> tensor<3x4x5xf32>
  %r2 = linalg.generic {indexing_maps = [#cx, #cw, #cy], iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x7x4xf32>, tensor<3x4x7xf32>) outs(%y : tensor<2x5x7xf32>) {
  ^bb0(%0: f32, %1: f32, %2: f32):
    %3 = arith.mulf %0, %1 : f32
    %4 = arith.addf %2, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<2x5x7xf32>
  %r3 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %g : tensor<5x8xbf16>, tensor<8x10xbf16>) outs(%c : tensor<5x10xf32>) {
  ^bb0(%0: bf16, %1: bf16, %2: f32):
    %5 = arith.extf %0 : bf16 to f32
    %6 = arith.extf %1 : bf16 to f32
    %3 = arith.mulf %5, %6 : f32
    %4 = arith.addf %2, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<5x10xf32>
  %r4 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%i, %j : tensor<5x8xi32>, tensor<8x10xi32>) outs(%ij : tensor<5x10xi32>) {
  ^bb0(%0: i32, %1: i32, %2: i32):
    %3 = arith.muli %0, %1 : i32
    %4 = arith.addi %2, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<5x10xi32>
  %r5 = linalg.generic {indexing_maps = [#v, #s], iterator_types = ["reduction"]}
      ins(%q : tensor<9xf32>) outs(%sum : tensor<f32>) {
  ^bb0(%0: f32, %1: f32):
    %2 = arith.addf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<f32>
  return %r0, %r1, %r2, %r3, %r4, %r5
      : tensor<5x10xf32>, tensor<3x4x5xf32>, tensor<2x5x7xf32>, tensor<5x10xf32>, tensor<5x10xi32>, tensor<f32>
}

// -----

#q = affine_map<(t, i, j, d, e) -> (t, i, d)>
#k = affine_map<(t, i, j, d, e) -> (t, j, d)>
#v = affine_map<(t, i, j, d, e) -> (t, j, e)>
#y = affine_map<(t, i, j, d, e) -> (t, i, e)>
!p = !bsr.pattern<8x6, block = 4x2, slots = 3>

// 3 sequences of 8 queries by 6 keys of 4 features, values of 5: forward 2 * 144 * (4 + 5), backward twice that,
// though the gradient makes the scores again.
// CHECK-LABEL: func @attention
// CHECK-SAME: bsr.work = {blocks = {}, dense = 7776 : i64, scores = 0 : i64}
func.func @attention(%q: tensor<3x8x4xf32> {bsr.name = "q"}, %k: tensor<3x6x4xf32> {bsr.name = "k"}, %v: tensor<3x6x5xf32> {bsr.name = "v"},
                     %dy: tensor<3x8x5xf32> {bsr.name = "dy"})
    -> (tensor<3x8x5xf32> {bsr.name = "y"}, tensor<3x8x4xf32> {bsr.name = "dq"}, tensor<3x6x4xf32> {bsr.name = "dk"}, tensor<3x6x5xf32> {bsr.name = "dv"}) {
  %y, %lse = bsr.attention(%q, %k, %v) scale = 5.000000e-01 maps = [#q, #k, #v, #y]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %dy) scale = 5.000000e-01 maps = [#q, #k, #v, #y, #y, #q, #k, #v]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<3x8x5xf32>, tensor<2x3x8xf32>,
         tensor<3x8x5xf32>) -> (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>)
  return %y, %dq, %dk, %dv : tensor<3x8x5xf32>, tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>
}

// Of a pattern that changes: of each block of 4 queries by 2 keys 2 * 3 * 8 * (4 + 5), three times.
// CHECK-LABEL: func @changing
// CHECK-SAME: bsr.work = {blocks = {mask = 1296 : i64}, dense = 0 : i64, scores = 0 : i64}
func.func @changing(%q: tensor<3x8x4xf32> {bsr.name = "q"}, %k: tensor<3x6x4xf32> {bsr.name = "k"}, %v: tensor<3x6x5xf32> {bsr.name = "v"},
                    %dy: tensor<3x8x5xf32> {bsr.name = "dy"}, %p: !p {bsr.name = "mask", bsr.role = "pattern"})
    -> (tensor<3x8x5xf32> {bsr.name = "y"}, tensor<3x8x4xf32> {bsr.name = "dq"}, tensor<3x6x4xf32> {bsr.name = "dk"}, tensor<3x6x5xf32> {bsr.name = "dv"}) {
  %y, %lse = bsr.attention(%q, %k, %v) pattern %p scale = 5.000000e-01 maps = [#q, #k, #v, #y]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, !p) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %dy) pattern %p scale = 5.000000e-01 maps = [#q, #k, #v, #y, #y, #q, #k, #v]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<3x8x5xf32>, tensor<2x3x8xf32>,
         tensor<3x8x5xf32>, !p) -> (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>)
  return %y, %dq, %dk, %dv : tensor<3x8x5xf32>, tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>
}

// What a mask of the program leaves is the step's own: 3 blocks of 8, 2 * 3 * 24 * 9. A static weight is in the manifest:
// of each of its 2 blocks 2 * 16 * 6.
// CHECK-LABEL: func @fixed
// CHECK-SAME: bsr.work = {blocks = {w = 192 : i64}, dense = 1296 : i64, scores = 0 : i64}
func.func @fixed(%q: tensor<3x8x4xf32> {bsr.name = "q"}, %k: tensor<3x6x4xf32> {bsr.name = "k"}, %v: tensor<3x6x5xf32> {bsr.name = "v"},
                 %w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern_number = 0 : i64}, %x: tensor<6x8xf32> {bsr.name = "x"})
    -> (tensor<3x8x5xf32> {bsr.name = "y"}, tensor<6x8xf32> {bsr.name = "z"})
    attributes {bsr.patterns = [{name = "w", type = !bsr.pattern<8x8, block = 4x4, slots = 2>,
                                 row_ptr = array<i32: 0, 1, 2>, col_idx = array<i32: 1, 0>}]} {
  %p = bsr.constant_pattern row_ptr = [0, 1, 3] col_idx = [0, 1, 2] : !p
  %y, %lse = bsr.attention(%q, %k, %v) pattern %p scale = 5.000000e-01 maps = [#q, #k, #v, #y]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, !p) -> (tensor<3x8x5xf32>, tensor<2x3x8xf32>)
  %s = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [1, 0] {bsr.name = "w"} : !bsr.pattern<8x8, block = 4x4, slots = 2>
  %z = bsr.spmm %s, %w, %x feature_dim = 1 : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<2x4x4xf32>, tensor<6x8xf32> -> tensor<6x8xf32>
  return %y, %z : tensor<3x8x5xf32>, tensor<6x8xf32>
}

// -----

!p = !bsr.pattern<8x6, block = 4x2, slots = 3>

// Values of 2 by 3 points, one pattern: 6 matrices, whose blocks have 8 sums of 5 products each; and back.
// CHECK-LABEL: func @batched
// CHECK-SAME: bsr.work = {blocks = {mask = 960 : i64}, dense = 0 : i64, scores = 0 : i64}
func.func @batched(%p: !p {bsr.name = "mask", bsr.role = "pattern"}, %q: tensor<2x3x8x5xf32> {bsr.name = "q"}, %k: tensor<2x3x6x5xf32> {bsr.name = "k"})
    -> (tensor<2x3x8x5xf32> {bsr.name = "y"}) {
  %s = bsr.sddmm %p, %q, %k feature_dim = 2 : !p, tensor<2x3x8x5xf32>, tensor<2x3x6x5xf32> -> tensor<2x3x3x4x2xf32>
  %y = bsr.spmm %p, %s, %k transpose feature_dim = 2 : !p, tensor<2x3x3x4x2xf32>, tensor<2x3x6x5xf32> -> tensor<2x3x8x5xf32>
  return %y : tensor<2x3x8x5xf32>
}

// Scores of all blocks of an 8x6 gradient of 10 tokens are made in runs with scores alone.
// CHECK-LABEL: func @scores
// CHECK-SAME: bsr.work = {blocks = {}, dense = 0 : i64, scores = 960 : i64}
func.func @scores(%a: tensor<10x8xf32> {bsr.name = "a"}, %b: tensor<10x6xf32> {bsr.name = "b"}) -> (tensor<2x3xf32> {bsr.name = "w", bsr.role = "scores"}) {
  %s = bsr.block_scores l1 %a, %b feature_dim = 1 : tensor<10x8xf32>, tensor<10x6xf32> -> tensor<2x3xf32>
  return %s : tensor<2x3xf32>
}

// -----

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>

// Seven rounds of 2 * 64, one round of unknown length, and of two branches the one of two products: 2 * 64 * (7 + 1 + 2).
// CHECK-LABEL: func @loops
// CHECK-SAME: bsr.work = {blocks = {}, dense = 1280 : i64, scores = 0 : i64}
func.func @loops(%a: tensor<4x4xf32> {bsr.name = "a"}, %n: tensor<index> {bsr.name = "n"}, %is: tensor<i1> {bsr.name = "is"}) -> (tensor<4x4xf32> {bsr.name = "y"}) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %end = tensor.extract %n[] : tensor<index>
  %x = scf.for %i = %c0 to %c7 step %c1 iter_args(%acc = %a) -> tensor<4x4xf32> {
    %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%acc, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) {
    ^bb0(%0: f32, %1: f32, %2: f32):
      %3 = arith.mulf %0, %1 : f32
      %4 = arith.addf %2, %3 : f32
      linalg.yield %4 : f32
    } -> tensor<4x4xf32>
    scf.yield %r : tensor<4x4xf32>
  }
  %z = scf.for %i = %c0 to %end step %c1 iter_args(%acc = %x) -> tensor<4x4xf32> {
    %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%acc, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) {
    ^bb0(%0: f32, %1: f32, %2: f32):
      %3 = arith.mulf %0, %1 : f32
      %4 = arith.addf %2, %3 : f32
      linalg.yield %4 : f32
    } -> tensor<4x4xf32>
    scf.yield %r : tensor<4x4xf32>
  }
  %flag = tensor.extract %is[] : tensor<i1>
  %y = scf.if %flag -> tensor<4x4xf32> {
    %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%z, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) {
    ^bb0(%0: f32, %1: f32, %2: f32):
      %3 = arith.mulf %0, %1 : f32
      %4 = arith.addf %2, %3 : f32
      linalg.yield %4 : f32
    } -> tensor<4x4xf32>
    scf.yield %r : tensor<4x4xf32>
  } else {
    %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%z, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) {
    ^bb0(%0: f32, %1: f32, %2: f32):
      %3 = arith.mulf %0, %1 : f32
      %4 = arith.addf %2, %3 : f32
      linalg.yield %4 : f32
    } -> tensor<4x4xf32>
    %s = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%r, %a : tensor<4x4xf32>, tensor<4x4xf32>) outs(%a : tensor<4x4xf32>) {
    ^bb0(%0: f32, %1: f32, %2: f32):
      %3 = arith.mulf %0, %1 : f32
      %4 = arith.addf %2, %3 : f32
      linalg.yield %4 : f32
    } -> tensor<4x4xf32>
    scf.yield %s : tensor<4x4xf32>
  }
  return %y : tensor<4x4xf32>
}

// More than there are numbers for.
// CHECK-LABEL: func @large
// CHECK-SAME: dense = 9223372036854775807 : i64
func.func @large(%a: tensor<8388608x8388608xf32> {bsr.name = "a"}) -> (tensor<8388608x8388608xf32> {bsr.name = "y"}) {
  %r = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %a : tensor<8388608x8388608xf32>, tensor<8388608x8388608xf32>) outs(%a : tensor<8388608x8388608xf32>) {
  ^bb0(%0: f32, %1: f32, %2: f32):
    %3 = arith.mulf %0, %1 : f32
    %4 = arith.addf %2, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<8388608x8388608xf32>
  return %r : tensor<8388608x8388608xf32>
}

// A function that is no step has no manifest.
// CHECK-LABEL: func @other
// CHECK-NOT: bsr.work
func.func @other(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  return %a : tensor<4x4xf32>
}
