// The three products with a weight, and its update.
#x = affine_map<(i, j, k) -> (i, k)>
#w = affine_map<(i, j, k) -> (j, k)>
#xt = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#out = affine_map<(i, j, k) -> (i, j)>
func.func @step(%w: tensor<192x320xf32> {bsr.name = "w", bsr.result = 0 : i64}, %x: tensor<88x192xf32> {bsr.name = "x"}, %dy: tensor<88x320xf32> {bsr.name = "dy"})
    -> (tensor<192x320xf32>, tensor<88x320xf32> {bsr.name = "y"}, tensor<88x192xf32> {bsr.name = "dx"}) {
  %0 = arith.constant dense<0.0> : tensor<88x320xf32>
  %1 = arith.constant dense<0.0> : tensor<192x320xf32>
  %2 = arith.constant dense<0.0> : tensor<88x192xf32>
  %y = linalg.matmul ins(%x, %w : tensor<88x192xf32>, tensor<192x320xf32>) outs(%0 : tensor<88x320xf32>) -> tensor<88x320xf32>
  %dx = linalg.matmul indexing_maps = [#x, #w, #out] ins(%dy, %w : tensor<88x320xf32>, tensor<192x320xf32>) outs(%2 : tensor<88x192xf32>) -> tensor<88x192xf32>
  %dw = linalg.matmul indexing_maps = [#xt, #dy, #out] ins(%x, %dy : tensor<88x192xf32>, tensor<88x320xf32>) outs(%1 : tensor<192x320xf32>) -> tensor<192x320xf32>
  %next = linalg.sub ins(%w, %dw : tensor<192x320xf32>, tensor<192x320xf32>) outs(%w : tensor<192x320xf32>) -> tensor<192x320xf32>
  return %next, %y, %dx : tensor<192x320xf32>, tensor<88x320xf32>, tensor<88x192xf32>
}
