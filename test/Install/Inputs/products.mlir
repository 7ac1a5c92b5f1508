!p = !bsr.pattern<64x32, block = 16x16, slots = 4>
func.func @products(%p: !p, %w: tensor<4x16x16xf32>, %x: tensor<8x64xf32>, %dy: tensor<8x32xf32>)
    -> (tensor<8x32xf32>, tensor<4x16x16xf32>) {
  %y = bsr.spmm %p, %w, %x feature_dim = 1 : !p, tensor<4x16x16xf32>, tensor<8x64xf32> -> tensor<8x32xf32>
  %dw = bsr.sddmm %p, %x, %dy feature_dim = 1 : !p, tensor<8x64xf32>, tensor<8x32xf32> -> tensor<4x16x16xf32>
  return %y, %dw : tensor<8x32xf32>, tensor<4x16x16xf32>
}
