# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A step as text: one product with a weight, its gradient, and SGD."""

TEXT = """
!m = tensor<16x16xf32>
#xt = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#dw = affine_map<(i, j, k) -> (i, j)>
func.func @step(%w: !m {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
                %x: !m {bsr.name = "x", bsr.role = "batch"},
                %lr: tensor<f32> {bsr.name = "lr", bsr.role = "lr"})
    -> (!m {bsr.name = "w"}, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %zero = arith.constant dense<0.0> : !m
  %none = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.matmul ins(%x, %w : !m, !m) outs(%zero : !m) -> !m
  %dw = linalg.matmul indexing_maps = [#xt, #dy, #dw] ins(%x, %y : !m, !m) outs(%zero : !m) -> !m
  %next = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>,
                       affine_map<(i, j) -> ()>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%w, %dw, %lr : !m, !m, tensor<f32>) outs(%w : !m) {
  ^bb0(%a: f32, %g: f32, %r: f32, %out: f32):
    %d = arith.mulf %g, %r : f32
    %b = arith.subf %a, %d : f32
    linalg.yield %b : f32
  } -> !m
  %loss = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>],
      iterator_types = ["reduction", "reduction"]}
      ins(%y : !m) outs(%none : tensor<f32>) {
  ^bb0(%a: f32, %s: f32):
    %q = arith.mulf %a, %a : f32
    %t = arith.addf %s, %q : f32
    linalg.yield %t : f32
  } -> tensor<f32>
  return %next, %loss : !m, tensor<f32>
}
"""
