// Attention with a bias and a mask, and its gradient, of as many features as kernels take.

#q = affine_map<(t, i, j, d, e) -> (t, d, i)>
#k = affine_map<(t, i, j, d, e) -> (t, d, j)>
#v = affine_map<(t, i, j, d, e) -> (t, j, e)>
#y = affine_map<(t, i, j, d, e) -> (t, i, e)>
#bias = affine_map<(t, i, j, d, e) -> (t, i, j)>
#mask = affine_map<(t, i, j, d, e) -> (t, j)>
!q = tensor<4x128x192xbf16>
!v = tensor<4x192x128xbf16>
!bias = tensor<4x192x192xbf16>
!mask = tensor<4x192xi1>
!lse = tensor<2x4x192xf32>
func.func @step(%q: !q {bsr.name = "q"}, %k: !q {bsr.name = "k"}, %v: !v {bsr.name = "v"}, %dy: !v {bsr.name = "dy"},
                %bias: !bias {bsr.name = "bias"}, %mask: !mask {bsr.name = "mask"})
    -> (!v {bsr.name = "y"}, !q {bsr.name = "dq"}, !q {bsr.name = "dk"}, !v {bsr.name = "dv"}) {
  %y, %lse = bsr.attention(%q, %k, %v) bias %bias mask %mask scale = 1.250000e-01
      maps = [#q, #k, #v, #y, #bias, #mask] : (!q, !q, !v, !bias, !mask) -> (!v, !lse)
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %dy) bias %bias mask %mask scale = 1.250000e-01
      maps = [#q, #k, #v, #y, #y, #q, #k, #v, #bias, #mask] : (!q, !q, !v, !v, !lse, !v, !bias, !mask) -> (!q, !q, !v)
  return %y, %dq, %dk, %dv : !v, !q, !q, !v
}
