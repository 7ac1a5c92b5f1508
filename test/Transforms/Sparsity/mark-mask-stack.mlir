// RUN: sparse-opt %s --bsr-mark="match=^w$ dims=stack,row,col block=4x4 density=0.5 mask=^mask" | FileCheck %s

// Masks of a stack: of the gradients at once, and of the matrix that a loop reads,
// which lies transposed. What another stack goes with is none.

// CHECK-LABEL: func.func @stack(
// CHECK-SAME:    tensor<2x8x8xf32> {bsr.mark = {{.*}}, bsr.name = "w", bsr.result = 0 : i64},
// CHECK-SAME:    tensor<2x8x8xf32> {bsr.mask = #bsr.mask<weight = "w">, bsr.name = "mask"},
// CHECK-SAME:    tensor<2x8x8xi1> {bsr.mask = #bsr.mask<weight = "w", transpose = true>, bsr.name = "mask in loop"},
// CHECK-SAME:    tensor<2x8x8xf32> {bsr.name = "mask of v"},
// CHECK-SAME:    tensor<2x8x8xf32> {bsr.name = "v"},
!m = tensor<8x8xf32>
!s = tensor<2x8x8xf32>
!b = tensor<2x8x8xi1>
#id = affine_map<(r, c) -> (r, c)>
#turn = affine_map<(r, c) -> (c, r)>
func.func @stack(%w: !s {bsr.name = "w", bsr.result = 0 : i64},
                 %mask: !s {bsr.name = "mask"}, %inner: !b {bsr.name = "mask in loop"},
                 %other: !s {bsr.name = "mask of v"}, %v: !s {bsr.name = "v"},
                 %x: !m {bsr.name = "x"}, %g: !s {bsr.name = "g"}) -> (!s, !s, !m) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %zeros = arith.constant dense<0.0> : !m
  %e = tensor.empty() : !m
  %es = tensor.empty() : !s
  %y = scf.for %i = %c0 to %c2 step %c1 iter_args(%h = %x) -> !m {
    %slice = tensor.extract_slice %w[%i, 0, 0] [1, 8, 8] [1, 1, 1] : !s to tensor<1x8x8xf32>
    %wi = tensor.collapse_shape %slice [[0, 1], [2]] : tensor<1x8x8xf32> into !m
    %part = tensor.extract_slice %inner[%i, 0, 0] [1, 8, 8] [1, 1, 1] : !b to tensor<8x8xi1>
    %masked = linalg.generic {indexing_maps = [#id, #turn, #id], iterator_types = ["parallel", "parallel"]}
        ins(%wi, %part : !m, tensor<8x8xi1>) outs(%e : !m) {
    ^bb0(%a: f32, %k: i1, %o: f32):
      %0 = arith.select %k, %a, %zero : f32
      linalg.yield %0 : f32
    } -> !m
    %next = linalg.matmul ins(%h, %masked : !m, !m) outs(%zeros : !m) -> !m
    scf.yield %next : !m
  }
  %gm = linalg.mul ins(%g, %mask : !s, !s) outs(%es : !s) -> !s
  %next = linalg.sub ins(%w, %gm : !s, !s) outs(%es : !s) -> !s
  %vm = linalg.mul ins(%v, %other : !s, !s) outs(%es : !s) -> !s
  return %next, %vm, %y : !s, !s, !m
}
