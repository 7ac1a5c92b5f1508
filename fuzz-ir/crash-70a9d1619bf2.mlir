// crash: mlir::Attribute::getContext < mlir::NamedAttrList::set < mlir::bsr::forEachBody
// sparse-opt fuzz-ir/crash-70a9d1619bf2.mlir --bsr-bind
#mark = #bsr.mark<block = 4x4, density = 1.0, weight = "w">
func.func private @masks(
    %mask: tensor<4x8xi1> {bsr.name = "mask", bsr.result = 0 : i64, bsr.mask = #bsr.mask<weight = "w">},
    %w: tensor<4x8xf32> {bsr.name = "w", bsr.result = 1 : i64, bsr.mark = #mark},
    %swapped: tensor<8x4xbf16> {bsr.mask = #bsr.mask<weight = "w", transpose = true>},
    %count: tensor<f32> {bsr.name = "count", bsr.result = 2 : i64})
    -> (tensor<4x8xi1> {bsr.name = "mask"}, tensor<4x8xf32>, tensor<f32> {bsr.name = "count"},
        tensor<4x8xf32> {bsr.name = "y"}, tensor<8x4xbf16> {bsr.name = "z"}) {
  %zero = arith.constant dense<0.0> : tensor<4x8xf32>
  %e = tensor.empty() : tensor<4x8xf32>
  %y = linalg.select ins(%mask, %w, %zero : tensor<4x8xi1>, tensor<4x8xf32>, tensor<4x8xf32>)
                     outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %mask, %w, %count, %y, %swapped
      : tensor<4x8xi1>, tensor<4x8xf32>, tensor<f32>, tensor<4x8xf32>, tensor<8x4xbf16>
}
