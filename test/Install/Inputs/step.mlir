!x = tensor<8x64xf32>
!w = tensor<64x48xf32>
!y = tensor<8x48xf32>
#xt = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#dw = affine_map<(i, j, k) -> (i, j)>
func.func @step(%w: !w {bsr.name = "w", bsr.result = 0 : i64}, %x: !x {bsr.name = "x"}, %dy: !y {bsr.name = "dy"})
    -> (!w, !y {bsr.name = "y"}) {
  %zero = arith.constant dense<0.0> : !y
  %zeros = arith.constant dense<0.0> : !w
  %y = linalg.matmul ins(%x, %w : !x, !w) outs(%zero : !y) -> !y
  %dw = linalg.matmul indexing_maps = [#xt, #dy, #dw] ins(%x, %dy : !x, !y) outs(%zeros : !w) -> !w
  %next = linalg.sub ins(%w, %dw : !w, !w) outs(%w : !w) -> !w
  return %next, %y : !w, !y
}
