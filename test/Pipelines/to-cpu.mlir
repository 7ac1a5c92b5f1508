// RUN: sparse-opt %s --bsr-mark="match=w block=4x4 density=0.5" --bsr-to-cpu=require-sparse --canonicalize \
// RUN:   | FileCheck %s --implicit-check-not=bsr. --implicit-check-not=memref --implicit-check-not='tensor<' \
// RUN:     --implicit-check-not=malloc --implicit-check-not=memcpy --implicit-check-not=unrealized
// RUN: not sparse-opt %s --bsr-mark="match=b block=1x1 density=0.5" --bsr-to-cpu=require-sparse 2>&1 \
// RUN:   | FileCheck %s --check-prefix=DENSE
// RUN: sparse-opt %s --bsr-mark="match=b block=1x1 density=0.5" --bsr-to-cpu -o /dev/null

// Every product is sparse, and what is left is calls of kernels: of one optimizer
// kernel per structure, which writes parameters and moments where they lie.
// CHECK-DAG:   \22products\22:{\22dense\22:0,\22sddmm\22:2,\22spmm\22:2,\22spmm_transposed\22:1}
// CHECK-DAG:   \22left_dense\22:0
// CHECK:       llvm.func internal @step(%[[BUFFERS:.*]]: !llvm.ptr, %{{[^:]*}}: !llvm.ptr)
// CHECK-NOT:     llvm.store
// CHECK:         llvm.call @[[MOMENTUM:[a-z0-9_]*]](%[[M:[0-9]+]], %{{[^,]*}}, %[[W1:[0-9]+]], %{{[^,]*}}, %[[M]], %[[W1]])
// CHECK-DAG:     llvm.call @{{.*}}(%[[W2:[0-9]+]], %{{[^,]*}}, %{{[^,]*}}, %[[W2]])
// CHECK-DAG:     llvm.call @{{.*}}(%[[B:[0-9]+]], %{{.*}}, %{{[^,]*}}, %[[B]])
// CHECK:         llvm.return
// CHECK:       llvm.func internal @[[MOMENTUM]](
// CHECK:         omp.parallel

// A matrix that is added to a dense one stays dense.
// DENSE-NOT:   warning
// DENSE:       error: expected only stored blocks of "b", but got 'linalg.generic', which reads the whole matrix

#id = affine_map<(i, j) -> (i, j)>
#none = affine_map<(i, j) -> ()>

func.func @step(
    %w1: tensor<8x8xf32> {bsr.name = "w1", bsr.result = 0 : i64, bsr.role = "param"},
    %w2: tensor<8x8xf32> {bsr.name = "w2", bsr.result = 1 : i64, bsr.role = "param"},
    %m: tensor<8x8xf32> {bsr.name = "m", bsr.result = 2 : i64, bsr.role = "state"},
    %bias: tensor<16x8xf32> {bsr.name = "b", bsr.result = 3 : i64, bsr.role = "param"},
    %x: tensor<16x8xf32> {bsr.name = "x", bsr.role = "batch"},
    %lr: tensor<f32> {bsr.name = "lr", bsr.role = "lr"})
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<16x8xf32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %beta = arith.constant 0.9 : f32
  %e = tensor.empty() : tensor<16x8xf32>
  %c = linalg.fill ins(%zero : f32) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
  %ew = tensor.empty() : tensor<8x8xf32>
  %cw = linalg.fill ins(%zero : f32) outs(%ew : tensor<8x8xf32>) -> tensor<8x8xf32>
  %et = tensor.empty() : tensor<8x16xf32>

  // y = tanh(x w1 + b) w2, loss = sum y^2
  %xw = linalg.matmul ins(%x, %w1 : tensor<16x8xf32>, tensor<8x8xf32>) outs(%c : tensor<16x8xf32>) -> tensor<16x8xf32>
  %z = linalg.add ins(%xw, %bias : tensor<16x8xf32>, tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
  %h = linalg.tanh ins(%z : tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) -> tensor<16x8xf32>
  %y = linalg.matmul ins(%h, %w2 : tensor<16x8xf32>, tensor<8x8xf32>) outs(%c : tensor<16x8xf32>) -> tensor<16x8xf32>
  %e0 = tensor.empty() : tensor<f32>
  %c0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<f32>) -> tensor<f32>
  %loss = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction", "reduction"]}
      ins(%y : tensor<16x8xf32>) outs(%c0 : tensor<f32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.addf %s, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>

  // The gradients (of half the loss).
  %ht = linalg.transpose ins(%h : tensor<16x8xf32>) outs(%et : tensor<8x16xf32>) permutation = [1, 0]
  %g2 = linalg.matmul ins(%ht, %y : tensor<8x16xf32>, tensor<16x8xf32>) outs(%cw : tensor<8x8xf32>) -> tensor<8x8xf32>
  %w2t = linalg.transpose ins(%w2 : tensor<8x8xf32>) outs(%ew : tensor<8x8xf32>) permutation = [1, 0]
  %dh = linalg.matmul ins(%y, %w2t : tensor<16x8xf32>, tensor<8x8xf32>) outs(%c : tensor<16x8xf32>) -> tensor<16x8xf32>
  %dz = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dh, %h : tensor<16x8xf32>, tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %b, %b : f32
    %1 = arith.subf %one, %0 : f32
    %2 = arith.mulf %a, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<16x8xf32>
  %xt = linalg.transpose ins(%x : tensor<16x8xf32>) outs(%et : tensor<8x16xf32>) permutation = [1, 0]
  %g1 = linalg.matmul ins(%xt, %dz : tensor<8x16xf32>, tensor<16x8xf32>) outs(%cw : tensor<8x8xf32>) -> tensor<8x8xf32>

  // The first layer has momentum.
  %m1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m, %g1 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%ew : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %beta : f32
    %1 = arith.addf %0, %b : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  %next1 = linalg.generic {indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w1, %m1, %lr : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>) outs(%ew : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %rate: f32, %o: f32):
    %0 = arith.mulf %b, %rate : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  %next2 = linalg.generic {indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w2, %g2, %lr : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>) outs(%ew : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %rate: f32, %o: f32):
    %0 = arith.mulf %b, %rate : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  %nextb = linalg.generic {indexing_maps = [#id, #id, #none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%bias, %dz, %lr : tensor<16x8xf32>, tensor<16x8xf32>, tensor<f32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%a: f32, %g: f32, %rate: f32, %o: f32):
    %0 = arith.mulf %g, %rate : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<16x8xf32>
  return %next1, %next2, %m1, %nextb, %loss
      : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<16x8xf32>, tensor<f32>
}
