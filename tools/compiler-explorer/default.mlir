// A step of training, x w and one update of w, with w stored in blocks of 16x16, a tenth of them.
!m = tensor<768x768xf32>
#xt = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#dw = affine_map<(i, j, k) -> (i, j)>
func.func @step(%w: !m {bsr.mark = #bsr.mark<block = 16x16, density = 0.1, weight = "w">, bsr.name = "w", bsr.result = 0 : i64}, %x: !m {bsr.name = "x"}, %dy: !m {bsr.name = "dy"})
    -> (!m, !m {bsr.name = "y"}) {
  %0 = arith.constant dense<0.0> : !m
  %y = linalg.matmul ins(%x, %w : !m, !m) outs(%0 : !m) -> !m
  %dw = linalg.matmul indexing_maps = [#xt, #dy, #dw] ins(%x, %dy : !m, !m) outs(%0 : !m) -> !m
  %next = linalg.sub ins(%w, %dw : !m, !m) outs(%w : !m) -> !m
  return %next, %y : !m, !m
}
