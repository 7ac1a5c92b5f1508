// A step with two weights and two products.
#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#d = affine_map<(i, j, k) -> (k, i)>
#e = affine_map<(i, j, k) -> (k, j)>
#f = affine_map<(i, j, k) -> (i, j)>
func.func @step(
    %w: tensor<4x4xf32> {bsr.name = "w", bsr.role = "param", bsr.result = 0 : i64},
    %v: tensor<4x4xf32> {bsr.name = "v", bsr.role = "param", bsr.result = 1 : i64},
    %x: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"})
    -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %zero = arith.constant dense<0.0> : tensor<8x4xf32>
  %none = arith.constant dense<0.0> : tensor<f32>
  %same = arith.constant dense<0.0> : tensor<4x4xf32>
  %y = linalg.generic {indexing_maps = [#a, #b, #c],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<8x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<8x4xf32>) {
  ^bb0(%u: f32, %t: f32, %o: f32):
    %m = arith.mulf %u, %t : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<8x4xf32>
  %y2 = linalg.generic {indexing_maps = [#a, #b, #c],
                        iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%y, %v : tensor<8x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<8x4xf32>) {
  ^bb0(%u: f32, %w2: f32, %o: f32):
    %m = arith.mulf %u, %w2 : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<8x4xf32>
  %l = linalg.reduce { arith.addf } ins(%y2 : tensor<8x4xf32>)
      outs(%none : tensor<f32>) dimensions = [0, 1]
  %n = linalg.generic {indexing_maps = [#d, #e, #f],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<8x4xf32>, tensor<8x4xf32>) outs(%same : tensor<4x4xf32>) {
  ^bb0(%u: f32, %t: f32, %o: f32):
    %m = arith.mulf %u, %t : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<4x4xf32>
  return %n, %n, %l : tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>
}
