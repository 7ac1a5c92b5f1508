// RUN: sparse-opt %s --bsr-mark="match=^w$ block=2x2 density=0.5" --bsr-bind --mlir-print-local-scope -verify-diagnostics | FileCheck %s

// Of two weights with one input, gradients of each example have one form: which
// is whose, the sums over the examples say, and that of the other is left as it is.

#in = affine_map<(b, t, i, k) -> (b, t, k)>
#by = affine_map<(b, t, i, k) -> (k, i)>
#out = affine_map<(b, t, i, k) -> (b, t, i)>
#x = affine_map<(b, i, j, t) -> (b, t, i)>
#d = affine_map<(b, i, j, t) -> (b, t, j)>
#each = affine_map<(b, i, j, t) -> (b, i, j)>
#all = affine_map<(b, i, j) -> (b, i, j)>
#example = affine_map<(b, i, j) -> (b)>
#factor = affine_map<(i, j, b) -> (b)>
#of = affine_map<(i, j, b) -> (b, i, j)>
#sum = affine_map<(i, j, b) -> (i, j)>
#same = affine_map<(i, j) -> (i, j)>

// CHECK-LABEL: func.func @step
// CHECK:         %[[OF_W:.*]] = linalg.generic {{.*}}ins(%[[X:.*]], %[[DW:.*]] : tensor<3x2x4xf32>, tensor<3x2x4xf32>)
// CHECK:         %[[MASK:.*]] = bsr.to_dense
// CHECK:         %[[MASKED:.*]] = linalg.generic {{.*}}ins(%[[OF_W]], %[[MASK]] :
// CHECK:         %[[OF_U:.*]] = linalg.generic {{.*}}ins(%[[X]], %{{.*}} : tensor<3x2x4xf32>, tensor<3x2x4xf32>)
// CHECK:         linalg.generic {{.*}}ins(%[[MASKED]], %[[OF_U]] : tensor<3x4x4xf32>, tensor<3x4x4xf32>)
// CHECK:         linalg.generic {{.*}}ins(%{{.*}}, %[[MASKED]] : tensor<3xf32>, tensor<3x4x4xf32>)
// CHECK:         linalg.generic {{.*}}ins(%{{.*}}, %[[OF_U]] : tensor<3xf32>, tensor<3x4x4xf32>)
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @step(%w: tensor<4x4xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.role = "param"},
                %u: tensor<4x4xf32> {bsr.name = "u", bsr.result = 1 : i64, bsr.role = "param"},
                %x: tensor<3x2x4xf32> {bsr.name = "x"}) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<3xf32> {bsr.name = "sizes"}) {
  %zeros = arith.constant dense<0.0> : tensor<3x2x4xf32>
  %zero = arith.constant dense<0.0> : tensor<3x4x4xf32>
  %none = arith.constant dense<0.0> : tensor<3xf32>
  %matrix = arith.constant dense<0.0> : tensor<4x4xf32>
  %y = linalg.generic {indexing_maps = [#in, #by, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<3x2x4xf32>, tensor<4x4xf32>) outs(%zeros : tensor<3x2x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x2x4xf32>
  %z = linalg.generic {indexing_maps = [#in, #by, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %u : tensor<3x2x4xf32>, tensor<4x4xf32>) outs(%zeros : tensor<3x2x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x2x4xf32>
  // The loss is the sum of y times z: each is the other's gradient.
  %gw = linalg.generic {indexing_maps = [#x, #d, #each], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %z : tensor<3x2x4xf32>, tensor<3x2x4xf32>) outs(%zero : tensor<3x4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x4x4xf32>
  %gu = linalg.generic {indexing_maps = [#x, #d, #each], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<3x2x4xf32>, tensor<3x2x4xf32>) outs(%zero : tensor<3x4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x4x4xf32>
  %sizes = linalg.generic {indexing_maps = [#all, #all, #example], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%gw, %gu : tensor<3x4x4xf32>, tensor<3x4x4xf32>) outs(%none : tensor<3xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %p : f32
    %1 = arith.mulf %q, %q : f32
    %2 = arith.addf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<3xf32>
  %sw = linalg.generic {indexing_maps = [#factor, #of, #sum], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%sizes, %gw : tensor<3xf32>, tensor<3x4x4xf32>) outs(%matrix : tensor<4x4xf32>) {
  ^bb0(%f: f32, %p: f32, %o: f32):
    %0 = arith.divf %p, %f : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x4xf32>
  %su = linalg.generic {indexing_maps = [#factor, #of, #sum], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%sizes, %gu : tensor<3xf32>, tensor<3x4x4xf32>) outs(%matrix : tensor<4x4xf32>) {
  ^bb0(%f: f32, %p: f32, %o: f32):
    %0 = arith.divf %p, %f : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x4xf32>
  %next_w = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%w, %sw : tensor<4x4xf32>, tensor<4x4xf32>) outs(%matrix : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.subf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4x4xf32>
  %next_u = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%u, %su : tensor<4x4xf32>, tensor<4x4xf32>) outs(%matrix : tensor<4x4xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.subf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4x4xf32>
  return %next_w, %next_u, %sizes : tensor<4x4xf32>, tensor<4x4xf32>, tensor<3xf32>
}
