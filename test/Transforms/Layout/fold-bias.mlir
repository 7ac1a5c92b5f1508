// RUN: sparse-opt %s --bsr-fold-bias | FileCheck %s

#id = affine_map<(i, j) -> (i, j)>
#feature = affine_map<(i, j) -> (i)>
#token = affine_map<(i, j) -> (j)>
!p = !bsr.pattern<64x64, block = 16x16, slots = 3>
!v = tensor<3x16x16xf32>
!t = tensor<64x64xf32>

// Either operand may be the product, and the product a transposed one.
// CHECK-LABEL: func @folds
// CHECK:         %[[Y:.*]] = bsr.spmm %{{.*}}, %{{.*}}, %{{.*}} bias %{{.*}} transpose feature_dim = 0
// CHECK-NOT:     linalg.generic
// CHECK:         return %[[Y]]
func.func @folds(%p: !p, %v: !v, %x: !t, %b: tensor<64xf32>) -> !t {
  %e = tensor.empty() : !t
  %y = bsr.spmm %p, %v, %x transpose feature_dim = 0 : !p, !v, !t -> !t
  %z = linalg.generic {indexing_maps = [#feature, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%b, %y : tensor<64xf32>, !t) outs(%e : !t) {
  ^bb0(%s: f32, %u: f32, %out: f32):
    %0 = arith.addf %s, %u : f32
    linalg.yield %0 : f32
  } -> !t
  return %z : !t
}

// Not a bias: a value for each token; read by something else too; not added; made
// after the product.
// CHECK-LABEL: func @stays
// CHECK-NOT:     bias
// CHECK:         return
func.func @stays(%p: !p, %v: !v, %x: !t, %b: tensor<64xf32>) -> (!t, !t, !t, !t, !t) {
  %e = tensor.empty() : !t
  %0 = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %a = linalg.generic {indexing_maps = [#id, #token, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0, %b : !t, tensor<64xf32>) outs(%e : !t) {
  ^bb0(%s: f32, %u: f32, %out: f32):
    %n = arith.addf %s, %u : f32
    linalg.yield %n : f32
  } -> !t
  %1 = bsr.spmm %p, %v, %a feature_dim = 0 : !p, !v, !t -> !t
  %c = linalg.generic {indexing_maps = [#id, #feature, #id], iterator_types = ["parallel", "parallel"]}
      ins(%1, %b : !t, tensor<64xf32>) outs(%e : !t) {
  ^bb0(%s: f32, %u: f32, %out: f32):
    %n = arith.addf %s, %u : f32
    linalg.yield %n : f32
  } -> !t
  %2 = bsr.spmm %p, %v, %c feature_dim = 0 : !p, !v, !t -> !t
  %d = linalg.generic {indexing_maps = [#id, #feature, #id], iterator_types = ["parallel", "parallel"]}
      ins(%2, %b : !t, tensor<64xf32>) outs(%e : !t) {
  ^bb0(%s: f32, %u: f32, %out: f32):
    %n = arith.subf %s, %u : f32
    linalg.yield %n : f32
  } -> !t
  %3 = bsr.spmm %p, %v, %d feature_dim = 0 : !p, !v, !t -> !t
  %f = tensor.empty() : tensor<64xf32>
  %late = linalg.exp ins(%b : tensor<64xf32>) outs(%f : tensor<64xf32>) -> tensor<64xf32>
  %g = linalg.generic {indexing_maps = [#id, #feature, #id], iterator_types = ["parallel", "parallel"]}
      ins(%3, %late : !t, tensor<64xf32>) outs(%e : !t) {
  ^bb0(%s: f32, %u: f32, %out: f32):
    %n = arith.addf %s, %u : f32
    linalg.yield %n : f32
  } -> !t
  return %a, %1, %c, %d, %g : !t, !t, !t, !t, !t
}
