// RUN: sparse-opt %s --bsr-find-attention=min-keys=8 | FileCheck %s --check-prefixes=CHECK,TAKEN
// RUN: sparse-opt %s --bsr-find-attention=min-keys=8 --mlir-debug-counter=bsr-share-keys-count=0 | FileCheck %s --check-prefixes=CHECK,SKIPPED

// Keys that both heads share are read as they were before they were repeated,
// unless that decision is skipped.

// CHECK-LABEL: func @shared
// CHECK-SAME:    %[[Q:[^:]*]]: tensor<2x8x4xf32>, %[[KEYS:[^:]*]]: tensor<8x4xf32>
// TAKEN:         bsr.attention(%{{[^,]*}}, %{{[^,]*}}, %{{[^)]*}}){{.*}} : (tensor<1x2x8x4xf32>, tensor<1x8x4xf32>, tensor<1x2x8x4xf32>)
// SKIPPED:       bsr.attention(%[[Q]], %{{[^,]*}}, %{{[^)]*}}){{.*}} : (tensor<2x8x4xf32>, tensor<2x8x4xf32>, tensor<2x8x4xf32>)

#one = affine_map<(t, j, d) -> (j, d)>
#all = affine_map<(t, j, d) -> (t, j, d)>
#q = affine_map<(t, i, j, d) -> (t, i, d)>
#k = affine_map<(t, i, j, d) -> (t, j, d)>
#s = affine_map<(t, i, j, d) -> (t, i, j)>
#p = affine_map<(t, i, e, j) -> (t, i, j)>
#v = affine_map<(t, i, e, j) -> (t, j, e)>
#y = affine_map<(t, i, e, j) -> (t, i, e)>
#id = affine_map<(t, i, j) -> (t, i, j)>
#row = affine_map<(t, i, j) -> (t, i)>

func.func @shared(%q: tensor<2x8x4xf32>, %keys: tensor<8x4xf32>, %v: tensor<2x8x4xf32>)
    -> tensor<2x8x4xf32> {
  %ek = tensor.empty() : tensor<2x8x4xf32>
  %k = linalg.generic {indexing_maps = [#one, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%keys : tensor<8x4xf32>) outs(%ek : tensor<2x8x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<2x8x4xf32>
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %es = tensor.empty() : tensor<2x8x8xf32>
  %er = tensor.empty() : tensor<2x8xf32>
  %ey = tensor.empty() : tensor<2x8x4xf32>
  %s0 = linalg.fill ins(%zero : f32) outs(%es : tensor<2x8x8xf32>) -> tensor<2x8x8xf32>
  %m0 = linalg.fill ins(%low : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
  %l0 = linalg.fill ins(%zero : f32) outs(%er : tensor<2x8xf32>) -> tensor<2x8xf32>
  %y0 = linalg.fill ins(%zero : f32) outs(%ey : tensor<2x8x4xf32>) -> tensor<2x8x4xf32>
  %s = linalg.generic {indexing_maps = [#q, #k, #s],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<2x8x4xf32>, tensor<2x8x4xf32>) outs(%s0 : tensor<2x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
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
  %y = linalg.generic {indexing_maps = [#p, #v, #y],
                       iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%p, %v : tensor<2x8x8xf32>, tensor<2x8x4xf32>) outs(%y0 : tensor<2x8x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x8x4xf32>
  return %y : tensor<2x8x4xf32>
}
