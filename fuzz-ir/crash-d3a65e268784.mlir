// crash: mlir::Attribute::getContext < mlir::bsr::forEachBody < mlir::detail::OpToOpPassAdaptor::run
// sparse-opt fuzz-ir/crash-d3a65e268784.mlir --bsr-unstack
!s = tensor<1x8x8xf32>
!one = tensor<1x4x8xf32>
!two = tensor<2x4x8xf32>
!saved = tensor<4x4x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
func.func @inside(%y: !two {bsr.name = "y"}, %saved: !saved {bsr.name = "saved"},
                  %w: !s {bsr.mark = #mark, bsr.result = 0 : i64}) -> (!s, !one, !two) {
  %0 = tensor.insert_slice %y into %saved[1, 0, 0] [2, 4, 8] [1, 1, 1] : !two into !saved
  %a = tensor.extract_slice %0[2, 0, 0] [1, 4, 8] [1, 1, 1] : !saved to !one
  %b = tensor.extract_slice %0[2, 0, 0] [2, 4, 8] [1, 1, 1] : !saved to !two
  return %w, %a, %b : !s, !one, !two
}
