// RUN: sparse-opt %s --bsr-find-attention | FileCheck %s

// Masks are evaluated with the roundings of their types: 17 * 0.7 is 11.9 in f32, and more in f64. Two blocks of 16 beside
// the diagonal are live then, of the second one a corner.

#q = affine_map<(t, i, j, d) -> (t, i, d)>
#k = affine_map<(t, i, j, d) -> (t, j, d)>
#s = affine_map<(t, i, j, d) -> (t, i, j)>
#p = affine_map<(t, i, e, j) -> (t, i, j)>
#v = affine_map<(t, i, e, j) -> (t, j, e)>
#y = affine_map<(t, i, e, j) -> (t, i, e)>
#id = affine_map<(t, i, j) -> (t, i, j)>
#row = affine_map<(t, i, j) -> (t, i)>
#at = affine_map<(i, j) -> (i, j)>
#mask = affine_map<(t, i, j) -> (i, j)>

// CHECK-LABEL: func @band
// CHECK:       bsr.constant_pattern row_ptr = [0, 3, 7, 12, 16, 19] col_idx = [0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4, 1, 2, 3, 4, 2, 3, 4]
// CHECK:       bsr.attention
func.func @band(%q: tensor<2x80x4xf32>, %k: tensor<2x80x4xf32>, %v: tensor<2x80x4xf32>)
    -> tensor<2x80x4xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<2x80x80xf32>
  %er = tensor.empty() : tensor<2x80xf32>
  %ey = tensor.empty() : tensor<2x80x4xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<2x80x80xf32>) -> tensor<2x80x80xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<2x80xf32>) -> tensor<2x80xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%er : tensor<2x80xf32>) -> tensor<2x80xf32>
  %y0 = linalg.fill ins(%zero : f32) outs(%ey : tensor<2x80x4xf32>) -> tensor<2x80x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x80x4xf32>, tensor<2x80x4xf32>) outs(%s0 : tensor<2x80x80xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x80x80xf32>
  %e = tensor.empty() : tensor<80x80xi1>
  %mask = linalg.generic {indexing_maps = [#at], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<80x80xi1>) {
  ^bb0(%o: i1):
    %step = arith.constant 0.7 : f32
    %most = arith.constant 11.9 : f32
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %d = arith.subi %i, %j : index
    %n = arith.index_cast %d : index to i32
    %0 = arith.sitofp %n : i32 to f32
    %1 = math.absf %0 : f32
    %2 = arith.mulf %1, %step : f32
    %3 = arith.cmpf ole, %2, %most : f32
    linalg.yield %3 : i1
  } -> tensor<80x80xi1>
  %z = linalg.generic {indexing_maps = [#id, #mask, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s, %mask : tensor<2x80x80xf32>, tensor<80x80xi1>) outs(%es : tensor<2x80x80xf32>) {
  ^bb0(%a: f32, %b: i1, %o: f32):
    %0 = arith.select %b, %a, %low : f32
    linalg.yield %0 : f32
  } -> tensor<2x80x80xf32>
  %m = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : tensor<2x80x80xf32>) outs(%m0 : tensor<2x80xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x80xf32>
  %x = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %m : tensor<2x80x80xf32>, tensor<2x80xf32>) outs(%es : tensor<2x80x80xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x80x80xf32>
  %l = linalg.generic {indexing_maps = [#id, #row],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x80x80xf32>) outs(%l0 : tensor<2x80xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x80xf32>
  %p = linalg.generic {indexing_maps = [#id, #row, #id],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %l : tensor<2x80x80xf32>, tensor<2x80xf32>) outs(%es : tensor<2x80x80xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x80x80xf32>
  %y = linalg.generic {indexing_maps = [#p, #v, #y],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<2x80x80xf32>, tensor<2x80x4xf32>) outs(%y0 : tensor<2x80x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x80x4xf32>
  return %y : tensor<2x80x4xf32>
}
