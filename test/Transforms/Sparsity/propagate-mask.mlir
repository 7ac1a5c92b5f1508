// RUN: sparse-opt %s --split-input-file --bsr-propagate=require-sparse --canonicalize | FileCheck %s --implicit-check-not=bsr.to_dense --implicit-check-not=bsr.sample

// M1: a mask is a matrix of ones on the pattern. What is computed from it (casts,
// comparisons, transposes) has one value on the pattern and one off it, and its
// product with a weight is the weight.

// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[W:[^:]*]]: tensor<2x4x4xf32>, %[[X:[^:]*]]: tensor<5x8xf32>)
// CHECK-NEXT:    %[[Y:.*]] = bsr.spmm %[[P]], %[[W]], %[[X]] feature_dim = 1
// CHECK-NEXT:    return %[[Y]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
func.func @forward(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<5x8xf32>) -> tensor<5x12xf32> {
  %ones = arith.constant dense<true> : tensor<2x4x4xi1>
  %zero = arith.constant dense<0.0> : tensor<5x12xf32>
  %e = tensor.empty() : tensor<12x8xf32>
  %et = tensor.empty() : tensor<8x12xf32>
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %mask = bsr.to_dense %p, %ones transpose : !p, tensor<2x4x4xi1> -> tensor<12x8xi1>
  %pruned = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%mask : tensor<12x8xi1>) outs(%e : tensor<12x8xf32>) {
  ^bb0(%a: i1, %o: f32):
    %one = arith.constant 1.0 : f32
    %0 = arith.uitofp %a : i1 to f32
    %1 = arith.subf %one, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<12x8xf32>
  %masked = linalg.generic {indexing_maps = [#id, #swap, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d, %pruned : tensor<8x12xf32>, tensor<12x8xf32>) outs(%et : tensor<8x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %c0 = arith.constant 0.0 : f32
    %c1 = arith.constant 0.5 : f32
    %0 = arith.cmpf ogt, %b, %c1 : f32
    %1 = arith.select %0, %c0, %a : f32
    linalg.yield %1 : f32
  } -> tensor<8x12xf32>
  %y = linalg.matmul ins(%x, %masked : tensor<5x8xf32>, tensor<8x12xf32>) outs(%zero : tensor<5x12xf32>) -> tensor<5x12xf32>
  return %y : tensor<5x12xf32>
}

// -----

// A masked gradient is the sampled product.

// CHECK-LABEL: func.func @gradient(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[X:[^:]*]]: tensor<5x8xf32>, %[[DY:[^:]*]]: tensor<5x12xf32>)
// CHECK-NEXT:    %[[G:.*]] = bsr.sddmm %[[P]], %[[X]], %[[DY]] feature_dim = 1
// CHECK-NEXT:    return %[[G]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#x = affine_map<(i, j, k) -> (k, i)>
#dy = affine_map<(i, j, k) -> (k, j)>
#g = affine_map<(i, j, k) -> (i, j)>
func.func @gradient(%p: !p, %x: tensor<5x8xf32>, %dy: tensor<5x12xf32>) -> tensor<2x4x4xf32> {
  %ones = arith.constant dense<1.0> : tensor<2x4x4xf32>
  %zero = arith.constant dense<0.0> : tensor<8x12xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %mask = bsr.to_dense %p, %ones : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %product = linalg.matmul indexing_maps = [#x, #dy, #g] ins(%x, %dy : tensor<5x8xf32>, tensor<5x12xf32>)
                           outs(%zero : tensor<8x12xf32>) -> tensor<8x12xf32>
  %masked = linalg.mul ins(%product, %mask : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %values = bsr.sample %p, %masked : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %values : tensor<2x4x4xf32>
}

// -----

// The number of entries that a mask keeps.

// CHECK-LABEL: func.func @count(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern
// CHECK:         bsr.live %[[P]]
// CHECK:         linalg.generic {{.*}} iterator_types = ["reduction", "reduction", "reduction"]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @count(%p: !p) -> tensor<f32> {
  %ones = arith.constant dense<1.0> : tensor<2x4x4xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %mask = bsr.to_dense %p, %ones : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %n = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>],
                       iterator_types = ["reduction", "reduction"]}
      ins(%mask : tensor<8x12xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  return %n : tensor<f32>
}
