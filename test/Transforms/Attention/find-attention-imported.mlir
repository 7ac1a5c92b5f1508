// RUN: sparse-opt %s --bsr-find-attention --mlir-print-local-scope | FileCheck %s

// Attention that was imported reads its operands as they lie before they are permuted, and is computed of the blocks in which its mask
// of positions has an entry; so is its gradient.

// CHECK: %[[PATTERN:.*]] = bsr.constant_pattern row_ptr = [0, 1, 3] col_idx = [0, 0, 1] : !bsr.pattern<128x128, block = 64x64, slots = 3>
// CHECK: %[[Y:.*]], %[[LSE:.*]] = bsr.attention(%arg0, %arg1, %arg1) mask %{{.*}} pattern %[[PATTERN]] scale = 1.000000e+00 zero_empty
// CHECK-SAME: maps = [affine_map<(d0, d1, d2, d3, d4) -> (d1, d0, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d4)>,
// CHECK: bsr.attention_grad(%arg0, %arg1, %arg1, %[[Y]], %[[LSE]], %arg0) mask %{{.*}} pattern %[[PATTERN]] scale = 1.000000e+00 zero_empty
// CHECK-SAME: maps = [affine_map<(d0, d1, d2, d3, d4) -> (d1, d0, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d2, d4)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d4)>, affine_map<(d0, d1, d2, d3, d4) -> (d1, d0, d4)>
#q = affine_map<(t, i, j, d, e) -> (t, i, d)>
#k = affine_map<(t, i, j, d, e) -> (t, j, d)>
#v = affine_map<(t, i, j, d, e) -> (t, j, e)>
#y = affine_map<(t, i, j, d, e) -> (t, i, e)>
#m = affine_map<(t, i, j, d, e) -> (i, j)>
!t = tensor<4x128x16xf32>
func.func @f(%x: tensor<128x4x16xf32>, %k: !t) -> (!t, !t) {
  %empty = tensor.empty() : !t
  %q = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (b, a, c)>, affine_map<(a, b, c) -> (a, b, c)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<128x4x16xf32>) outs(%empty : !t) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> !t
  %bits = tensor.empty() : tensor<128x128xi1>
  %mask = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      outs(%bits : tensor<128x128xi1>) {
  ^bb0(%out: i1):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %seen = arith.cmpi sle, %j, %i : index
    linalg.yield %seen : i1
  } -> tensor<128x128xi1>
  %y, %lse = bsr.attention(%q, %k, %k) mask %mask scale = 1.0 zero_empty maps = [#q, #k, #v, #y, #m]
      : (!t, !t, !t, tensor<128x128xi1>) -> (!t, tensor<2x4x128xf32>)
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %k, %y, %lse, %q) mask %mask scale = 1.0 zero_empty
      maps = [#q, #k, #v, #y, #y, #q, #k, #v, #m]
      : (!t, !t, !t, !t, tensor<2x4x128xf32>, !t, tensor<128x128xi1>) -> (!t, !t, !t)
  return %y, %dq : !t, !t
}
