// RUN: sparse-opt %s --bsr-find-attention | FileCheck %s
// RUN: sparse-opt %s --bsr-find-attention --mlir-debug-counter=bsr-narrow-attention-count=0 | FileCheck %s --check-prefix=SKIPPED

// SKIPPED: bsr.attention{{.*}} -> (tensor<2x8x4xf32>, tensor<2x2x8xf32>)

// What tensor cores multiply becomes attention on GPUs. The kernel rounds what is rounded by all who read it; what
// widens that and rounds it again goes away.

#q = affine_map<(t, i, j, d) -> (t, i, d)>
#k = affine_map<(t, i, j, d) -> (t, j, d)>
#s = affine_map<(t, i, j, d) -> (t, i, j)>
#p = affine_map<(t, i, e, j) -> (t, i, j)>
#v = affine_map<(t, i, e, j) -> (t, j, e)>
#y = affine_map<(t, i, e, j) -> (t, i, e)>
#id = affine_map<(t, i, j) -> (t, i, j)>
#row = affine_map<(t, i, j) -> (t, i)>
#two = affine_map<(t, i) -> (t, i)>

// CHECK-LABEL: func @found
// CHECK-SAME:    (%[[Q:.*]]: tensor<2x8x4xbf16>, %[[K:.*]]: tensor<2x8x4xbf16>, %[[V:.*]]: tensor<2x8x4xbf16>)
// CHECK-NEXT:    %[[Y:.*]], %{{.*}} = bsr.attention(%[[Q]], %[[K]], %[[V]]) scale = 1.000000e+00 {{.*}} -> (tensor<2x8x4xbf16>, tensor<2x2x8xf32>)
// CHECK-NEXT:    %[[ROWS:.*]] = tensor.collapse_shape %[[Y]]
// CHECK-NEXT:    return %[[Y]], %[[ROWS]]
module attributes {bsr.target = #bsr.gpu} {
func.func @found(%q: tensor<2x8x4xbf16>, %k: tensor<2x8x4xbf16>, %v: tensor<2x8x4xbf16>)
    -> (tensor<2x8x4xbf16>, tensor<2x32xbf16>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<2x8x8xf32>
  %ep = tensor.empty() : tensor<2x8x8xbf16>
  %er = tensor.empty() : tensor<2x8xf32>
  %ey = tensor.empty() : tensor<2x8x4xf32>
  %eh = tensor.empty() : tensor<2x8x4xbf16>
  %ec = tensor.empty() : tensor<2x32xbf16>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
  %y0 = linalg.fill ins(%zero : f32) outs(%ey : tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x8x4xbf16>, tensor<2x8x4xbf16>) outs(%s0 : tensor<2x8x8xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<2x8x8xf32>
  %m = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<2x8x8xf32>) outs(%m0 : tensor<2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %x = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %m : tensor<2x8x8xf32>, tensor<2x8xf32>) outs(%es : tensor<2x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x8x8xf32>
  %l = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x8x8xf32>) outs(%l0 : tensor<2x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x8xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %l : tensor<2x8x8xf32>, tensor<2x8xf32>) outs(%es : tensor<2x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x8x8xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p : tensor<2x8x8xf32>) outs(%ep : tensor<2x8x8xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x8x8xbf16>
  %y = linalg.generic {indexing_maps = [#p, #v, #y],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%h, %v : tensor<2x8x8xbf16>, tensor<2x8x4xbf16>) outs(%y0 : tensor<2x8x4xf32>) {
  ^bb0(%a: bf16, %b: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<2x8x4xf32>
  %yh = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y : tensor<2x8x4xf32>) outs(%eh : tensor<2x8x4xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x8x4xbf16>
  %wide = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%yh : tensor<2x8x4xbf16>) outs(%ey : tensor<2x8x4xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<2x8x4xf32>
  %rows = tensor.collapse_shape %wide [[0], [1, 2]] : tensor<2x8x4xf32> into tensor<2x32xf32>
  %again = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<2x32xf32>) outs(%ec : tensor<2x32xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<2x32xbf16>
  return %yh, %again : tensor<2x8x4xbf16>, tensor<2x32xbf16>
}
}
