// The loss is that of (x base) w. The step trains w, and reads base.
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#d = affine_map<(i, j, k) -> (k, i)>
func.func @frozen(%base: tensor<16x16xf32> {bsr.name = "base", bsr.role = "param", bsr.init = "normal(0.5)"},
                  %w: tensor<16x16xf32> {bsr.name = "w", bsr.role = "param", bsr.init = "normal(0.5)", bsr.result = 0 : i64},
                  %x: tensor<4x16xf32> {bsr.name = "batch.x", bsr.role = "batch"},
                  %lr: tensor<f32> {bsr.name = "lr", bsr.role = "lr"})
    -> (tensor<16x16xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %none = arith.constant dense<0.0> : tensor<4x16xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %h = linalg.matmul ins(%x, %base : tensor<4x16xf32>, tensor<16x16xf32>) outs(%none : tensor<4x16xf32>) -> tensor<4x16xf32>
  %y = linalg.matmul ins(%h, %w : tensor<4x16xf32>, tensor<16x16xf32>) outs(%none : tensor<4x16xf32>) -> tensor<4x16xf32>
  %loss = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%y : tensor<4x16xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%e: f32, %sum: f32):
    %square = arith.mulf %e, %e : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> tensor<f32>
  %square = arith.constant dense<0.0> : tensor<16x16xf32>
  %g = linalg.generic {indexing_maps = [#d, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %y : tensor<4x16xf32>, tensor<4x16xf32>) outs(%square : tensor<16x16xf32>) {
  ^bb0(%p: f32, %q: f32, %sum: f32):
    %m = arith.mulf %p, %q : f32
    %s = arith.addf %sum, %m : f32
    linalg.yield %s : f32
  } -> tensor<16x16xf32>
  %rate = tensor.extract %lr[] : tensor<f32>
  %next = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%w, %g : tensor<16x16xf32>, tensor<16x16xf32>) outs(%square : tensor<16x16xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %m = arith.mulf %rate, %q : f32
    %s = arith.subf %p, %m : f32
    linalg.yield %s : f32
  } -> tensor<16x16xf32>
  return %next, %loss : tensor<16x16xf32>, tensor<f32>
}
