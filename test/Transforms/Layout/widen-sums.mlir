// RUN: sparse-opt %s --bsr-widen-sums | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// A product is not rounded before it is added; sums that start at zero need no copy.
// CHECK-LABEL: func @product
// CHECK-SAME:    %[[A:[^:]*]]: tensor<4x8xf16>, %[[B:[^:]*]]: tensor<8x2xf16>
// CHECK:         %[[ZERO:.*]] = arith.constant dense<0.000000e+00> : tensor<4x2xf32>
// CHECK:         %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[B]] : {{.*}} outs(%[[ZERO]]
// CHECK:         ^bb0(%[[X:.*]]: f16, %[[Y:.*]]: f16, %[[O:.*]]: f32):
// CHECK-NEXT:      %[[WX:.*]] = arith.extf %[[X]]
// CHECK-NEXT:      %[[WY:.*]] = arith.extf %[[Y]]
// CHECK-NEXT:      %[[M:.*]] = arith.mulf %[[WX]], %[[WY]] : f32
// CHECK-NEXT:      %[[S:.*]] = arith.addf %[[O]], %[[M]] : f32
// CHECK-NEXT:      linalg.yield %[[S]]
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[WIDE]]
// CHECK:           arith.truncf {{.*}} f32 to f16
// CHECK:         return %[[R]]
func.func @product(%a: tensor<4x8xf16>, %b: tensor<8x2xf16>) -> tensor<4x2xf16> {
  %zero = arith.constant 0.0 : f16
  %e = tensor.empty() : tensor<4x2xf16>
  %i = linalg.fill ins(%zero : f16) outs(%e : tensor<4x2xf16>) -> tensor<4x2xf16>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
                                        affine_map<(i, j, k) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<4x8xf16>, tensor<8x2xf16>) outs(%i : tensor<4x2xf16>) {
  ^bb0(%x: f16, %z: f16, %out: f16):
    %0 = arith.mulf %x, %z : f16
    %1 = arith.addf %out, %0 : f16
    linalg.yield %1 : f16
  } -> tensor<4x2xf16>
  return %y : tensor<4x2xf16>
}

// Other terms are rounded as the operation says, and sums may start from anything.
// CHECK-LABEL: func @sums
// CHECK-SAME:    %[[X:[^:]*]]: tensor<4x8xbf16>, %[[I:[^:]*]]: tensor<4xbf16>
// CHECK:         %[[INIT:.*]] = linalg.generic {{.*}} ins(%[[I]]
// CHECK:           arith.extf
// CHECK:         %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[X]] : {{.*}} outs(%[[INIT]]
// CHECK:         ^bb0(%[[A:.*]]: bf16, %[[O:.*]]: f32):
// CHECK-NEXT:      %[[E:.*]] = math.exp %[[A]] : bf16
// CHECK-NEXT:      %[[W:.*]] = arith.extf %[[E]]
// CHECK-NEXT:      %[[S:.*]] = arith.addf %[[O]], %[[W]] : f32
// CHECK:         linalg.generic {{.*}} ins(%[[WIDE]]
// CHECK:           arith.truncf
func.func @sums(%x: tensor<4x8xbf16>, %i: tensor<4xbf16>) -> tensor<4xbf16> {
  %y = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xbf16>) outs(%i : tensor<4xbf16>) {
  ^bb0(%a: bf16, %out: bf16):
    %0 = math.exp %a : bf16
    %1 = arith.addf %0, %out : bf16
    linalg.yield %1 : bf16
  } -> tensor<4xbf16>
  return %y : tensor<4xbf16>
}

// Largest elements need no more digits; f32 is wide.
// CHECK-LABEL: func @stays
// CHECK-NOT:     arith.extf
// CHECK-NOT:     arith.truncf
// CHECK:         return
func.func @stays(%x: tensor<4x8xbf16>, %i: tensor<4xbf16>, %w: tensor<4x8xf32>, %j: tensor<4xf32>)
    -> (tensor<4xbf16>, tensor<4xf32>) {
  %y = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xbf16>) outs(%i : tensor<4xbf16>) {
  ^bb0(%a: bf16, %out: bf16):
    %0 = arith.maximumf %a, %out : bf16
    linalg.yield %0 : bf16
  } -> tensor<4xbf16>
  %z = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%w : tensor<4x8xf32>) outs(%j : tensor<4xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  return %y, %z : tensor<4xbf16>, tensor<4xf32>
}
