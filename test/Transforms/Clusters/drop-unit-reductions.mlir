// RUN: sparse-opt %s --bsr-drop-unit-reductions | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func @one
// CHECK:         iterator_types = ["parallel", "parallel"]
func.func @one(%x: tensor<8x1xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %y = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x1xf32>) outs(%b : tensor<8xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// CHECK-LABEL: func @two
// CHECK:         iterator_types = ["parallel", "reduction"]
func.func @two(%x: tensor<8x2xf32>, %b: tensor<8xf32>) -> tensor<8xf32> {
  %y = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x2xf32>) outs(%b : tensor<8xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// A product of one summand stays a product.
// CHECK-LABEL: func @product
// CHECK:         iterator_types = ["parallel", "parallel", "reduction"]
func.func @product(%x: tensor<8x1xf32>, %y: tensor<1x4xf32>, %b: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %z = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
                                        affine_map<(i, j, k) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<8x1xf32>, tensor<1x4xf32>) outs(%b : tensor<8x4xf32>) {
  ^bb0(%a: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %c : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x4xf32>
  return %z : tensor<8x4xf32>
}
