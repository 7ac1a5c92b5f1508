// RUN: sparse-opt %s --split-input-file --bsr-unstack --canonicalize --cse | FileCheck %s

// Slices of parts of matrices are slices of the matrix; inserts of parts, and of
// every second matrix, read the whole stack. Several matrices go where they belong.

// CHECK-LABEL: func.func @parts(
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W1:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W2:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[T:[^:]*]]: tensor<2x8x8xf32> {{[^%]*}}%[[P:[^:]*]]: tensor<1x4x8xf32>
// CHECK:         %[[WHOLE:.*]] = tensor.insert_slice %[[W2]] into %{{.*}}[2, 0, 0]
// CHECK:         %[[TOP:.*]] = tensor.extract_slice %[[W1]][4, 0] [4, 8] [1, 1]
// CHECK:         %[[SECONDS:.*]] = tensor.extract_slice %[[WHOLE]][0, 0, 0] [2, 8, 8] [2, 1, 1]
// CHECK:         %[[PART:.*]] = tensor.insert_slice %[[P]] into %[[WHOLE]][1, 0, 0] [1, 4, 8] [1, 1, 1]
// CHECK:         %[[SPREAD:.*]] = tensor.insert_slice %[[T]] into %[[WHOLE]][0, 0, 0] [2, 8, 8] [2, 1, 1]
// CHECK:         %[[T0:.*]] = tensor.extract_slice %[[T]][0, 0, 0] [1, 8, 8]
// CHECK:         %[[T1:.*]] = tensor.extract_slice %[[T]][1, 0, 0] [1, 8, 8]
// CHECK:         return %[[W0]], %[[T0]], %[[T1]], %[[TOP]], %[[SECONDS]], %[[PART]], %[[SPREAD]]
!s = tensor<3x8x8xf32>
!two = tensor<2x8x8xf32>
!part = tensor<1x4x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
func.func @parts(%w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64},
                 %t: !two {bsr.name = "t"}, %p: !part {bsr.name = "p"})
    -> (!s, tensor<4x8xf32>, !two, !s, !s) {
  %top = tensor.extract_slice %w[1, 4, 0] [1, 4, 8] [1, 1, 1] : !s to tensor<4x8xf32>
  %seconds = tensor.extract_slice %w[0, 0, 0] [2, 8, 8] [2, 1, 1] : !s to !two
  %part = tensor.insert_slice %p into %w[1, 0, 0] [1, 4, 8] [1, 1, 1] : !part into !s
  %spread = tensor.insert_slice %t into %w[0, 0, 0] [2, 8, 8] [2, 1, 1] : !two into !s
  %next = tensor.insert_slice %t into %w[1, 0, 0] [2, 8, 8] [1, 1, 1] : !two into !s
  return %next, %top, %seconds, %part, %spread : !s, tensor<4x8xf32>, !two, !s, !s
}

// -----

// The loop over matrices is any; an operation of several results, the first of
// which is a copy, is one for each matrix. One that reads along the stack in
// another dimension is none.

// CHECK-DAG:     #[[FROM:.*]] = affine_map<(d0, d1, d2) -> (d2, d1)>
// CHECK-DAG:     #[[TO:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-LABEL: func.func @loops(
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<8x4xf32> {{[^%]*}}%[[W1:[^:]*]]: tensor<8x4xf32> {{[^%]*}}%[[X:[^:]*]]: tensor<8xf32> {{[^%]*}}%[[D:[^:]*]]: tensor<2x8x2xf32>
// CHECK:         linalg.generic {indexing_maps = [#{{.*}}, #{{.*}}, #{{.*}}], iterator_types = ["parallel", "parallel"]} ins(%[[W0]], %[[X]] : tensor<8x4xf32>, tensor<8xf32>) outs(%{{.*}} : tensor<8x4xf32>)
// CHECK:         linalg.generic {indexing_maps = [#{{.*}}, #{{.*}}, #{{.*}}], iterator_types = ["parallel", "parallel"]} ins(%[[W1]], %[[X]] : tensor<8x4xf32>, tensor<8xf32>) outs(%{{.*}} : tensor<8x4xf32>)
// CHECK:         linalg.generic {indexing_maps = [#[[FROM]], #[[TO]]], iterator_types = ["parallel", "reduction", "parallel"]} ins(%[[W0]] :
// CHECK:         linalg.generic {indexing_maps = [#[[FROM]], #[[TO]]], iterator_types = ["parallel", "reduction", "parallel"]} ins(%[[W1]] :
// CHECK:         %[[TWO0:.*]]:2 = linalg.generic {{.*}} ins(%[[W0]] :
// CHECK:         %[[TWO1:.*]]:2 = linalg.generic {{.*}} ins(%[[W1]] :
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[D]] : tensor<2x8x4xf32>, tensor<2x8x2xf32>)
!s = tensor<2x8x4xf32>
!d = tensor<2x8x2xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
#id = affine_map<(l, r, c) -> (l, r, c)>
#inner = affine_map<(r, l, c) -> (l, r, c)>
#row = affine_map<(r, l, c) -> (r)>
#diagonal = affine_map<(l, r, c) -> (l, r, l)>
func.func @loops(%w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64},
                 %x: tensor<8xf32> {bsr.name = "x"}, %d: !d {bsr.name = "d"})
    -> (!s, tensor<2x3x8xf32>, !s, !s, !s) {
  %e = tensor.empty() : !s
  %y = linalg.generic {indexing_maps = [#inner, #row, #inner], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %x : !s, tensor<8xf32>) outs(%e : !s) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> !s
  %z = arith.constant dense<0.0> : tensor<2x3x8xf32>
  %sums = linalg.generic {indexing_maps = [affine_map<(k, c, l, r) -> (l, r, c)>, affine_map<(k, c, l, r) -> (l, k, r)>],
                          iterator_types = ["parallel", "reduction", "parallel", "parallel"]}
      ins(%w : !s) outs(%z : tensor<2x3x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x3x8xf32>
  %two:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : !s) outs(%e, %e : !s, !s) {
  ^bb0(%a: f32, %o: f32, %q: f32):
    %0 = arith.negf %a : f32
    linalg.yield %a, %0 : f32, f32
  } -> (!s, !s)
  %along = linalg.generic {indexing_maps = [#id, #diagonal, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %d : !s, !d) outs(%e : !s) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> !s
  return %y, %sums, %two#0, %two#1, %along : !s, tensor<2x3x8xf32>, !s, !s, !s
}

// -----

// A next stack that no other is part of is taken apart all the same. What adds a
// scalar to a stack has the slices of that; what a region reads is whole. A name
// may be that of a matrix, with another role.

// CHECK-LABEL: func.func @others(
// CHECK-SAME:    %[[W0:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[W1:[^:]*]]: tensor<8x8xf32> {{[^%]*}}%[[X:[^:]*]]: tensor<8x8xf32> {bsr.name = "w.0", bsr.role = "batch"}, %[[V:[^:]*]]: tensor<2x8x8xf32>
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} outs(%[[V]] : tensor<2x8x8xf32>)
// CHECK:         tensor.extract_slice %[[SUM]][0, 0, 0]
// CHECK:         tensor.extract_slice %[[SUM]][1, 0, 0]
// CHECK:         scf.if
// CHECK-NEXT:      linalg.negf ins(%[[STACK:.*]] : tensor<2x8x8xf32>)
// CHECK:         return %[[X]], %[[X]],
!s = tensor<2x8x8xf32>
!m = tensor<8x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
#id = affine_map<(l, r, c) -> (l, r, c)>
#none = affine_map<(l, r, c) -> ()>
func.func @others(%w: !s {bsr.name = "w", bsr.role = "param", bsr.mark = #mark, bsr.result = 0 : i64},
                  %x: !m {bsr.name = "w.0", bsr.role = "batch"}, %v: !s {bsr.name = "v"},
                  %a: tensor<f32> {bsr.name = "a"}, %c: i1) -> (!s, !s, !s) {
  %e = tensor.empty() : !s
  %s0 = tensor.insert_slice %x into %e[0, 0, 0] [1, 8, 8] [1, 1, 1] : !m into !s
  %next = tensor.insert_slice %x into %s0[1, 0, 0] [1, 8, 8] [1, 1, 1] : !m into !s
  %sum = linalg.generic {indexing_maps = [#none, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%a : tensor<f32>) outs(%v : !s) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.addf %p, %o : f32
    linalg.yield %0 : f32
  } -> !s
  %y = linalg.mul ins(%w, %sum : !s, !s) outs(%e : !s) -> !s
  %branch = scf.if %c -> !s {
    %0 = linalg.negf ins(%y : !s) outs(%e : !s) -> !s
    scf.yield %0 : !s
  } else {
    scf.yield %v : !s
  }
  return %next, %y, %branch : !s, !s, !s
}
