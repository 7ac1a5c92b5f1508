// RUN: sparse-opt %s --bsr-find-attention=report=true 2>&1 | FileCheck %s

// Batch dimensions that were merged, four of them, one of a single element. If they are for the products and for the softmax,
// that is attention of one batch dimension.

// CHECK: remark: expected attention, but got 'tensor.collapse_shape' that merges dimensions of the scores: scores stay in memory

// CHECK-LABEL: func @merged
// CHECK:       %[[Q:.*]] = tensor.collapse_shape %arg0
// CHECK-NEXT:  %[[K:.*]] = tensor.collapse_shape %arg1
// CHECK-NEXT:  %[[V:.*]] = tensor.collapse_shape %arg2
// CHECK-NEXT:  %[[Y:.*]], %{{.*}} = bsr.attention(%[[Q]], %[[K]], %[[V]]) scale = 1.000000e+00
// CHECK-NEXT:  return %[[Y]] : tensor<24x8x4xf32>

#q = affine_map<(t, i, j, d) -> (t, i, d)>
#k = affine_map<(t, i, j, d) -> (t, j, d)>
#s = affine_map<(t, i, j, d) -> (t, i, j)>
#p = affine_map<(t, i, e, j) -> (t, i, j)>
#v = affine_map<(t, i, e, j) -> (t, j, e)>
#y = affine_map<(t, i, e, j) -> (t, i, e)>
#id = affine_map<(t, i, j) -> (t, i, j)>
#row = affine_map<(t, i, j) -> (t, i)>

func.func @merged(%q4: tensor<2x3x1x4x8x4xf32>, %k4: tensor<2x3x1x4x8x4xf32>, %v4: tensor<2x3x1x4x8x4xf32>)
    -> tensor<24x8x4xf32> {
  %q = tensor.collapse_shape %q4 [[0, 1, 2, 3], [4], [5]] : tensor<2x3x1x4x8x4xf32> into tensor<24x8x4xf32>
  %k = tensor.collapse_shape %k4 [[0, 1, 2, 3], [4], [5]] : tensor<2x3x1x4x8x4xf32> into tensor<24x8x4xf32>
  %v = tensor.collapse_shape %v4 [[0, 1, 2, 3], [4], [5]] : tensor<2x3x1x4x8x4xf32> into tensor<24x8x4xf32>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<24x8x8xf32>
  %er = tensor.empty() : tensor<24x8xf32>
  %ey = tensor.empty() : tensor<24x8x4xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<24x8x8xf32>) -> tensor<24x8x8xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<24x8xf32>) -> tensor<24x8xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%er : tensor<24x8xf32>) -> tensor<24x8xf32>
  %y0 = linalg.fill ins(%zero : f32) outs(%ey : tensor<24x8x4xf32>) -> tensor<24x8x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<24x8x4xf32>, tensor<24x8x4xf32>) outs(%s0 : tensor<24x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<24x8x8xf32>
  %m = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<24x8x8xf32>) outs(%m0 : tensor<24x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<24x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %m : tensor<24x8x8xf32>, tensor<24x8xf32>) outs(%es : tensor<24x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<24x8x8xf32>
  %l = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<24x8x8xf32>) outs(%l0 : tensor<24x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<24x8xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %l : tensor<24x8x8xf32>, tensor<24x8xf32>) outs(%es : tensor<24x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<24x8x8xf32>
  %y = linalg.generic {indexing_maps = [#p, #v, #y],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<24x8x8xf32>, tensor<24x8x4xf32>) outs(%y0 : tensor<24x8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<24x8x4xf32>
  return %y : tensor<24x8x4xf32>
}

// Else products are split where they were merged. A softmax of what is merged is no attention of what is split, which a remark says.

// CHECK-LABEL: func @f
// CHECK: %[[S:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<2x3x1x4x8x4xf32>, tensor<2x3x1x4x8x4xf32>) outs(%{{.*}} : tensor<2x3x1x4x8x8xf32>)
// CHECK: tensor.collapse_shape %[[S]] {{\[\[}}0, 1, 2, 3], [4], [5]] : tensor<2x3x1x4x8x8xf32> into tensor<24x8x8xf32>
// CHECK: ins(%{{.*}}, %arg2 : tensor<2x3x1x4x8x8xf32>, tensor<2x3x1x4x8x4xf32>)

#q6 = affine_map<(t, u, w, x, i, j, d) -> (t, u, w, x, i, d)>
#k6 = affine_map<(t, u, w, x, i, j, d) -> (t, u, w, x, j, d)>
#s6 = affine_map<(t, u, w, x, i, j, d) -> (t, u, w, x, i, j)>

func.func @f(%q4: tensor<2x3x1x4x8x4xf32>, %k4: tensor<2x3x1x4x8x4xf32>, %v4: tensor<2x3x1x4x8x4xf32>)
    -> tensor<24x8x4xf32> {
  %v = tensor.collapse_shape %v4 [[0, 1, 2, 3], [4], [5]] : tensor<2x3x1x4x8x4xf32> into tensor<24x8x4xf32>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<24x8x8xf32>
  %er = tensor.empty() : tensor<24x8xf32>
  %ey = tensor.empty() : tensor<24x8x4xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<24x8xf32>) -> tensor<24x8xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%er : tensor<24x8xf32>) -> tensor<24x8xf32>
  %y0 = linalg.fill ins(%zero : f32) outs(%ey : tensor<24x8x4xf32>) -> tensor<24x8x4xf32>
  %e6 = tensor.empty() : tensor<2x3x1x4x8x8xf32>
  %s06 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<2x3x1x4x8x8xf32>) -> tensor<2x3x1x4x8x8xf32>
  %s6 = linalg.generic {indexing_maps = [#q6, #k6, #s6],
                        iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q4, %k4 : tensor<2x3x1x4x8x4xf32>, tensor<2x3x1x4x8x4xf32>) outs(%s06 : tensor<2x3x1x4x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x3x1x4x8x8xf32>
  %s = tensor.collapse_shape %s6 [[0, 1, 2, 3], [4], [5]] : tensor<2x3x1x4x8x8xf32> into tensor<24x8x8xf32>
  %m = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<24x8x8xf32>) outs(%m0 : tensor<24x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<24x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %m : tensor<24x8x8xf32>, tensor<24x8xf32>) outs(%es : tensor<24x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<24x8x8xf32>
  %l = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<24x8x8xf32>) outs(%l0 : tensor<24x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<24x8xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %l : tensor<24x8x8xf32>, tensor<24x8xf32>) outs(%es : tensor<24x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<24x8x8xf32>
  %y = linalg.generic {indexing_maps = [#p, #v, #y],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<24x8x8xf32>, tensor<24x8x4xf32>) outs(%y0 : tensor<24x8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<24x8x4xf32>
  return %y : tensor<24x8x4xf32>
}
