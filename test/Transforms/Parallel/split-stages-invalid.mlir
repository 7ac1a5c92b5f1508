// RUN: sparse-opt %s --split-input-file --pass-pipeline="builtin.module(func.func(bsr-split-stages{stages=2 stage=1}))" --verify-diagnostics

// The second product takes the first one's pattern.
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
func.func @borrowed(
    %w0: tensor<2x4x4xf32> {bsr.name = "w0", bsr.pattern = 2 : i64, bsr.result = 0 : i64, bsr.role = "param"},
    %w1: tensor<2x4x4xf32> {bsr.name = "w1", bsr.pattern = 3 : i64, bsr.result = 1 : i64, bsr.role = "param"},
    %p0: !p {bsr.name = "w0", bsr.role = "pattern"},
    %p1: !p {bsr.name = "w1", bsr.role = "pattern"},
    %x: tensor<16x8xf32> {bsr.name = "x", bsr.role = "batch"})
    -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %z = arith.constant dense<0.0> : tensor<f32>
  %h = bsr.spmm %p0, %w0, %x feature_dim = 1 : !p, tensor<2x4x4xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  // expected-error @below {{expected a stage to read patterns of its own weights, but got that of "w0" in stage 1}}
  %y = bsr.spmm %p0, %w1, %h feature_dim = 1 : !p, tensor<2x4x4xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %loss = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%y : tensor<16x8xf32>) outs(%z : tensor<f32>) {
  ^bb0(%e: f32, %sum: f32):
    %s = arith.addf %e, %sum : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %g1 = bsr.sddmm %p1, %h, %y feature_dim = 1 : !p, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x4x4xf32>
  %dh = bsr.spmm %p1, %w1, %y transpose feature_dim = 1 : !p, tensor<2x4x4xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  %g0 = bsr.sddmm %p0, %x, %dh feature_dim = 1 : !p, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<2x4x4xf32>
  %u0 = arith.subf %w0, %g0 : tensor<2x4x4xf32>
  %u1 = arith.subf %w1, %g1 : tensor<2x4x4xf32>
  return %u0, %u1, %loss : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<f32>
}

// -----

// The norm of the data's gradient scales an update of the second stage, and is no
// gradient of a parameter that would say where it is computed.
#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
#map4 = affine_map<(d0, d1) -> ()>
#map5 = affine_map<(d0, d1, d2) -> (d1, d2)>
#map6 = affine_map<(d0, d1, d2) -> (d2, d0)>
func.func @step(%arg0: tensor<4x4xf32> {bsr.name = "w0", bsr.result = 0 : i64, bsr.role = "param"}, %arg1: tensor<4x4xf32> {bsr.name = "w1", bsr.result = 1 : i64, bsr.role = "param"}, %arg2: tensor<8x4xf32> {bsr.name = "x", bsr.role = "batch"}, %arg3: tensor<8x4xf32> {bsr.name = "q", bsr.role = "batch"}) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %cst = arith.constant dense<0.000000e+00> : tensor<8x4xf32>
  %cst_0 = arith.constant dense<0.000000e+00> : tensor<4x4xf32>
  %cst_1 = arith.constant dense<0.000000e+00> : tensor<f32>
  %0 = linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%arg2, %arg0 : tensor<8x4xf32>, tensor<4x4xf32>) outs(%cst : tensor<8x4xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %12 = arith.mulf %in, %in_2 : f32
    %13 = arith.addf %out, %12 : f32
    linalg.yield %13 : f32
  } -> tensor<8x4xf32>
  %1 = linalg.generic {indexing_maps = [#map, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%0, %arg1 : tensor<8x4xf32>, tensor<4x4xf32>) outs(%cst : tensor<8x4xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %12 = arith.mulf %in, %in_2 : f32
    %13 = arith.addf %out, %12 : f32
    linalg.yield %13 : f32
  } -> tensor<8x4xf32>
  %2 = linalg.generic {indexing_maps = [#map3, #map4], iterator_types = ["reduction", "reduction"]} ins(%1 : tensor<8x4xf32>) outs(%cst_1 : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %12 = arith.addf %out, %in : f32
    linalg.yield %12 : f32
  } -> tensor<f32>
  %3 = arith.mulf %1, %arg3 : tensor<8x4xf32>
  %4 = linalg.generic {indexing_maps = [#map, #map5, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%3, %arg1 : tensor<8x4xf32>, tensor<4x4xf32>) outs(%cst : tensor<8x4xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %12 = arith.mulf %in, %in_2 : f32
    %13 = arith.addf %out, %12 : f32
    linalg.yield %13 : f32
  } -> tensor<8x4xf32>
  %5 = linalg.generic {indexing_maps = [#map6, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%0, %3 : tensor<8x4xf32>, tensor<8x4xf32>) outs(%cst_0 : tensor<4x4xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %12 = arith.mulf %in, %in_2 : f32
    %13 = arith.addf %out, %12 : f32
    linalg.yield %13 : f32
  } -> tensor<4x4xf32>
  %6 = linalg.generic {indexing_maps = [#map6, #map1, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%arg2, %4 : tensor<8x4xf32>, tensor<8x4xf32>) outs(%cst_0 : tensor<4x4xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %12 = arith.mulf %in, %in_2 : f32
    %13 = arith.addf %out, %12 : f32
    linalg.yield %13 : f32
  } -> tensor<4x4xf32>
  // expected-error @below {{expected what reads "w0" to be in a stage that has it, but got it in stage 1: it reads parameters of several stages}}
  %7 = linalg.generic {indexing_maps = [#map, #map5, #map2], iterator_types = ["parallel", "parallel", "reduction"]} ins(%4, %arg0 : tensor<8x4xf32>, tensor<4x4xf32>) outs(%cst : tensor<8x4xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %12 = arith.mulf %in, %in_2 : f32
    %13 = arith.addf %out, %12 : f32
    linalg.yield %13 : f32
  } -> tensor<8x4xf32>
  %8 = linalg.generic {indexing_maps = [#map3, #map4], iterator_types = ["reduction", "reduction"]} ins(%7 : tensor<8x4xf32>) outs(%cst_1 : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %12 = arith.addf %out, %in : f32
    linalg.yield %12 : f32
  } -> tensor<f32>
  %9 = arith.subf %arg0, %6 : tensor<4x4xf32>
  %10 = linalg.generic {indexing_maps = [#map3, #map4, #map3], iterator_types = ["parallel", "parallel"]} ins(%5, %8 : tensor<4x4xf32>, tensor<f32>) outs(%cst_0 : tensor<4x4xf32>) {
  ^bb0(%in: f32, %in_2: f32, %out: f32):
    %12 = arith.mulf %in, %in_2 : f32
    linalg.yield %12 : f32
  } -> tensor<4x4xf32>
  %11 = arith.subf %arg1, %10 : tensor<4x4xf32>
  return %9, %11, %2 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<f32>
}
