// RUN: sparse-opt %s --split-input-file --bsr-flatten | FileCheck %s

// D1r, S3r, R2: a projection to heads with momentum: the product, the gradient, which
// JAX leaves transposed, its norm and the update are those of a matrix; only the
// activations are reshaped.

// CHECK-LABEL: func.func @query(
// CHECK-SAME:    %[[W:[^:]*]]: tensor<12x16xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w">, bsr.name = "w", bsr.origin = {name = "w", offsets = array<i64: 0, 0, 0>, shape = array<i64: 12, 2, 8>, sizes = array<i64: 12, 2, 8>}, bsr.result = 0 : i64},
// CHECK-SAME:    %[[M:[^:]*]]: tensor<12x16xf32> {bsr.mark = {{.*}}, bsr.name = "m", bsr.origin = {name = "m", offsets = array<i64: 0, 0, 0>, shape = array<i64: 12, 2, 8>, sizes = array<i64: 12, 2, 8>}, bsr.result = 1 : i64},
// CHECK-SAME:    %[[X:[^:]*]]: tensor<3x5x12xf32>, %[[DY:[^:]*]]: tensor<3x5x2x8xf32>)
// CHECK-SAME:    -> (tensor<12x16xf32>, tensor<12x16xf32>, tensor<3x5x2x8xf32>, tensor<f32>)
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[W]] : tensor<3x5x12xf32>, tensor<12x16xf32>) outs(%{{.*}} : tensor<3x5x16xf32>)
// CHECK:         %[[Y4:.*]] = tensor.expand_shape %[[Y]] {{\[\[}}0], [1], [2, 3]] output_shape [3, 5, 2, 8]
// CHECK:         %[[DY2:.*]] = tensor.collapse_shape %[[DY]] {{\[\[}}0], [1], [2, 3]]
// CHECK:         %[[G:.*]] = linalg.generic {{.*}} ins(%[[DY2]], %[[X]] : tensor<3x5x16xf32>, tensor<3x5x12xf32>) outs(%{{.*}} : tensor<16x12xf32>)
// CHECK:         %[[NORM:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "reduction"]} ins(%[[G]] : tensor<16x12xf32>)
// CHECK:         %[[NEXT_M:.*]] = linalg.generic {{.*}} ins(%[[M]], %{{.*}} : tensor<12x16xf32>, tensor<12x16xf32>)
// CHECK:         %[[NEXT_W:.*]] = linalg.generic {{.*}} ins(%[[W]], %[[NEXT_M]] : tensor<12x16xf32>, tensor<12x16xf32>)
// CHECK:         return %[[NEXT_W]], %[[NEXT_M]], %[[Y4]], %[[NORM]]
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [row, col, col], weight = "w">
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @query(
    %w: tensor<12x2x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
    %m: tensor<12x2x8xf32> {bsr.name = "m", bsr.result = 1 : i64, bsr.mark = #mark},
    %x: tensor<3x5x12xf32>, %dy: tensor<3x5x2x8xf32>)
    -> (tensor<12x2x8xf32>, tensor<12x2x8xf32>, tensor<3x5x2x8xf32>, tensor<f32>) {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant dense<0.0> : tensor<f32>
  %ey = tensor.empty() : tensor<3x5x2x8xf32>
  %cy = linalg.fill ins(%zero : f32) outs(%ey : tensor<3x5x2x8xf32>) -> tensor<3x5x2x8xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(b, t, h, d, e) -> (b, t, e)>, affine_map<(b, t, h, d, e) -> (e, h, d)>,
                       affine_map<(b, t, h, d, e) -> (b, t, h, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<3x5x12xf32>, tensor<12x2x8xf32>) outs(%cy : tensor<3x5x2x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<3x5x2x8xf32>
  %eg = tensor.empty() : tensor<2x8x12xf32>
  %cg = linalg.fill ins(%zero : f32) outs(%eg : tensor<2x8x12xf32>) -> tensor<2x8x12xf32>
  %g = linalg.generic {
      indexing_maps = [affine_map<(h, d, e, b, t) -> (b, t, h, d)>, affine_map<(h, d, e, b, t) -> (b, t, e)>,
                       affine_map<(h, d, e, b, t) -> (h, d, e)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%dy, %x : tensor<3x5x2x8xf32>, tensor<3x5x12xf32>) outs(%cg : tensor<2x8x12xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x8x12xf32>
  %e = tensor.empty() : tensor<12x2x8xf32>
  %t = linalg.transpose ins(%g : tensor<2x8x12xf32>) outs(%e : tensor<12x2x8xf32>) permutation = [2, 0, 1]
  %norm = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1, d2) -> ()>],
                          iterator_types = ["reduction", "reduction", "reduction"]}
      ins(%g : tensor<2x8x12xf32>) outs(%none : tensor<f32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %0, %out : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %next_m = linalg.add ins(%m, %t : tensor<12x2x8xf32>, tensor<12x2x8xf32>) outs(%e : tensor<12x2x8xf32>) -> tensor<12x2x8xf32>
  %next_w = linalg.sub ins(%w, %next_m : tensor<12x2x8xf32>, tensor<12x2x8xf32>) outs(%e : tensor<12x2x8xf32>) -> tensor<12x2x8xf32>
  return %next_w, %next_m, %y, %norm : tensor<12x2x8xf32>, tensor<12x2x8xf32>, tensor<3x5x2x8xf32>, tensor<f32>
}

// -----

// An output projection sums over heads, in whatever order; a cast and a mask in front of it are those
// of matrices, and the carried mask is still unchanged.

// CHECK-LABEL: func.func @output(
// CHECK-SAME:    %[[W:[^:]*]]: tensor<16x12xf32> {{{.*}}bsr.origin = {name = "w", offsets = array<i64: 0, 0, 0>, shape = array<i64: 2, 8, 12>, sizes = array<i64: 2, 8, 12>}},
// CHECK-SAME:    %[[MASK:[^:]*]]: tensor<16x12xi1> {bsr.mask = #bsr.mask<weight = "w">, bsr.name = "mask", bsr.origin = {name = "mask", offsets = array<i64: 0, 0, 0>, shape = array<i64: 2, 8, 12>, sizes = array<i64: 2, 8, 12>}, bsr.result = 0 : i64},
// CHECK-SAME:    %[[X:[^:]*]]: tensor<5x2x8xbf16>)
// CHECK:         %[[V:.*]] = linalg.generic {{.*}} ins(%[[W]], %[[MASK]] : tensor<16x12xf32>, tensor<16x12xi1>)
// CHECK:         %[[X2:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0], [1, 2]]
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X2]], %[[V]] : tensor<5x16xbf16>, tensor<16x12xbf16>)
// CHECK:         return %[[MASK]], %[[Y]]
#id = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @output(
    %w: tensor<2x8x12xf32> {bsr.name = "w",
        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [row, row, col], weight = "w">},
    %mask: tensor<2x8x12xi1> {bsr.name = "mask", bsr.mask = #bsr.mask<weight = "w">, bsr.result = 0 : i64},
    %x: tensor<5x2x8xbf16>) -> (tensor<2x8x12xi1>, tensor<5x12xf32>) {
  %zero = arith.constant dense<0.0> : tensor<5x12xf32>
  %e = tensor.empty() : tensor<2x8x12xbf16>
  %v = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %mask : tensor<2x8x12xf32>, tensor<2x8x12xi1>) outs(%e : tensor<2x8x12xbf16>) {
  ^bb0(%a: f32, %keep: i1, %out: bf16):
    %c = arith.constant 0.0 : f32
    %0 = arith.select %keep, %a, %c : f32
    %1 = arith.truncf %0 : f32 to bf16
    linalg.yield %1 : bf16
  } -> tensor<2x8x12xbf16>
  %y = linalg.generic {
      indexing_maps = [affine_map<(t, e, d, h) -> (t, h, d)>, affine_map<(t, e, d, h) -> (h, d, e)>,
                       affine_map<(t, e, d, h) -> (t, e)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %v : tensor<5x2x8xbf16>, tensor<2x8x12xbf16>) outs(%zero : tensor<5x12xf32>) {
  ^bb0(%a: bf16, %b: bf16, %out: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : bf16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %out, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<5x12xf32>
  return %mask, %y : tensor<2x8x12xi1>, tensor<5x12xf32>
}

// -----

// A matrix is one as it is, and a stack is for bsr-unstack.

// CHECK-LABEL: func.func @others(
// CHECK-SAME:    tensor<8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, weight = "w">, bsr.name = "w"},
// CHECK-SAME:    tensor<2x8x8xf32> {bsr.mark = #bsr.mark<block = 4x4, density = 5.000000e-01, dims = [stack, row, col], weight = "s">, bsr.name = "s"})
func.func @others(
    %w: tensor<8x8xf32> {bsr.name = "w", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [row, col], weight = "w">},
    %s: tensor<2x8x8xf32> {bsr.name = "s", bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "s">}) {
  return
}

// -----

// PyTorch's einsum is a batch product of one batch.

// CHECK-LABEL: func.func @einsum(
// CHECK-SAME:    %[[W:.*]]: tensor<8x12xf32>
// CHECK-NOT:     batch_matmul
// CHECK:         linalg.matmul ins(%{{.*}}, %[[W]] : tensor<5x8xf32>, tensor<8x12xf32>)
func.func @einsum(
    %w: tensor<8x3x4xf32> {bsr.name = "w",
        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [row, col, col], weight = "w">},
    %x: tensor<1x5x8xf32>) -> tensor<1x5x12xf32> {
  %zero = arith.constant dense<0.0> : tensor<1x5x12xf32>
  %matrix = tensor.collapse_shape %w [[0], [1, 2]] : tensor<8x3x4xf32> into tensor<8x12xf32>
  %batch = tensor.expand_shape %matrix [[0, 1], [2]] output_shape [1, 8, 12] : tensor<8x12xf32> into tensor<1x8x12xf32>
  %y = linalg.batch_matmul ins(%x, %batch : tensor<1x5x8xf32>, tensor<1x8x12xf32>)
      outs(%zero : tensor<1x5x12xf32>) -> tensor<1x5x12xf32>
  return %y : tensor<1x5x12xf32>
}

// -----

// Sums in any order follow the dimensions of the weight, here three of rows. What
// the program reshapes otherwise stays as it is.

// CHECK-LABEL: func.func @cycle(
// CHECK-SAME:    %[[W:[^:]*]]: tensor<24x8xf32> {{[^%]*}}%[[X:[^:]*]]: tensor<5x2x4x3xf32>, %[[V:[^:]*]]: tensor<2x8xf32>)
// CHECK:         %[[X2:.*]] = tensor.collapse_shape %[[X]] {{\[\[}}0], [1, 2, 3]]
// CHECK:         linalg.generic {{.*}} ins(%[[X2]], %[[W]] : tensor<5x24xf32>, tensor<24x8xf32>)
// CHECK:         %[[V3:.*]] = tensor.expand_shape %[[V]] {{\[\[}}0], [1, 2]]
// CHECK:         %[[E:.*]] = linalg.generic {{.*}} ins(%[[V3]] : tensor<2x4x2xf32>)
// CHECK:         tensor.collapse_shape %[[E]] {{\[\[}}0], [1, 2]]
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [row, row, row, col], weight = "w">
#id = affine_map<(a, b, c) -> (a, b, c)>
func.func @cycle(%w: tensor<2x4x3x8xf32> {bsr.name = "w", bsr.mark = #mark}, %x: tensor<5x2x4x3xf32>,
                 %v: tensor<2x8xf32>) -> (tensor<5x8xf32>, tensor<2x8xf32>) {
  %zero = arith.constant dense<0.0> : tensor<5x8xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(t, n, c, a, b) -> (t, a, b, c)>, affine_map<(t, n, c, a, b) -> (a, b, c, n)>,
                       affine_map<(t, n, c, a, b) -> (t, n)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction", "reduction"]}
      ins(%x, %w : tensor<5x2x4x3xf32>, tensor<2x4x3x8xf32>) outs(%zero : tensor<5x8xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<5x8xf32>
  %v3 = tensor.expand_shape %v [[0], [1, 2]] output_shape [2, 4, 2] : tensor<2x8xf32> into tensor<2x4x2xf32>
  %e = tensor.empty() : tensor<2x4x2xf32>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v3 : tensor<2x4x2xf32>) outs(%e : tensor<2x4x2xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<2x4x2xf32>
  %z2 = tensor.collapse_shape %z [[0], [1, 2]] : tensor<2x4x2xf32> into tensor<2x8xf32>
  return %y, %z2 : tensor<5x8xf32>, tensor<2x8xf32>
}

// -----

// Heads in front of the tokens are moved behind them, in what is multiplied with
// the weight and in the product's result.

// CHECK-LABEL: func.func @heads(
// CHECK-SAME:    %[[W:[^:]*]]: tensor<8x12xf32> {{[^%]*}}%[[X:[^:]*]]: tensor<2x5x4xf32>, %[[DY:[^:]*]]: tensor<5x12xf32>)
// CHECK-DAG:     %[[XT:.*]] = linalg.transpose ins(%[[X]] {{.*}} permutation = [1, 0, 2]
// CHECK-DAG:     %[[X2:.*]] = tensor.collapse_shape %[[XT]] {{\[\[}}0], [1, 2]]
// CHECK-DAG:     %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X2]], %[[W]] : tensor<5x8xf32>, tensor<8x12xf32>)
// CHECK-DAG:     %[[DX2:.*]] = linalg.generic {{.*}} ins(%[[DY]], %[[W]] : tensor<5x12xf32>, tensor<8x12xf32>) outs(%{{.*}} : tensor<5x8xf32>)
// CHECK-DAG:     %[[DX3:.*]] = tensor.expand_shape %[[DX2]] {{\[\[}}0], [1, 2]]
// CHECK-DAG:     %[[DX:.*]] = linalg.transpose ins(%[[DX3]] {{.*}} permutation = [1, 0, 2]
// CHECK:         return %[[Y]], %[[DX]]
func.func @heads(
    %w: tensor<2x4x12xf32> {bsr.name = "w",
        bsr.mark = #bsr.mark<block = 4x4, density = 0.5, dims = [row, row, col], weight = "w">},
    %x: tensor<2x5x4xf32>, %dy: tensor<5x12xf32>) -> (tensor<5x12xf32>, tensor<2x5x4xf32>) {
  %zero_y = arith.constant dense<0.0> : tensor<5x12xf32>
  %zero_x = arith.constant dense<0.0> : tensor<2x5x4xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(t, e, h, d) -> (h, t, d)>, affine_map<(t, e, h, d) -> (h, d, e)>,
                       affine_map<(t, e, h, d) -> (t, e)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x5x4xf32>, tensor<2x4x12xf32>) outs(%zero_y : tensor<5x12xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<5x12xf32>
  %dx = linalg.generic {
      indexing_maps = [affine_map<(h, t, d, e) -> (t, e)>, affine_map<(h, t, d, e) -> (h, d, e)>,
                       affine_map<(h, t, d, e) -> (h, t, d)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%dy, %w : tensor<5x12xf32>, tensor<2x4x12xf32>) outs(%zero_x : tensor<2x5x4xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x5x4xf32>
  return %y, %dx : tensor<5x12xf32>, tensor<2x5x4xf32>
}
