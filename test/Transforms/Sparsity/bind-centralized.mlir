// RUN: sparse-opt %s --bsr-mark="match=w block=1x2 density=0.5" --bsr-bind --mlir-print-local-scope | FileCheck %s --implicit-check-not=bsr.sample

// The mean that is taken off a gradient is no derivative of a penalty: what is
// left is not masked, of one row neither, where the mean is one number.

#same = affine_map<(i, j) -> (i, j)>
#none = affine_map<(i, j) -> ()>
#left = affine_map<(i, j, k) -> (k, i)>
#right = affine_map<(i, j, k) -> (k, j)>
#out = affine_map<(i, j, k) -> (i, j)>

// CHECK:       %[[GRADIENT:.*]] = linalg.generic {{.*}}"reduction"]} ins(%{{.*}}, %{{.*}} : tensor<4x1xf32>, tensor<4x8xf32>)
// CHECK:       %[[BLOCKS:.*]] = bsr.sample %{{.*}}, %[[GRADIENT]]
// CHECK-NEXT:  %[[MASKED:.*]] = bsr.to_dense %{{.*}}, %[[BLOCKS]]
// CHECK:       %[[SUM:.*]] = linalg.generic {{.*}}ins(%[[MASKED]] : tensor<1x8xf32>)
// CHECK:       %[[LEFT:.*]] = linalg.generic {{.*}}ins(%[[MASKED]], %[[SUM]] : tensor<1x8xf32>, tensor<f32>)
// CHECK:       linalg.generic {{.*}}ins(%[[LEFT]] : tensor<1x8xf32>)
// CHECK:       %[[NEXT:.*]] = linalg.generic {{.*}}ins(%{{.*}}, %[[LEFT]], %{{.*}} :
// CHECK:       bsr.sample %{{.*}}, %[[NEXT]]
func.func @step(%w: tensor<1x8xf32> {bsr.name = "w", bsr.result = 0 : i64}, %x: tensor<4x1xf32> {bsr.name = "x"},
                %y: tensor<4x8xf32> {bsr.name = "y"}) -> (tensor<1x8xf32>, tensor<f32> {bsr.name = "norm"}) {
  %zeros = arith.constant dense<0.0> : tensor<1x8xf32>
  %wide = arith.constant dense<0.0> : tensor<4x8xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %z = linalg.matmul ins(%x, %w : tensor<4x1xf32>, tensor<1x8xf32>) outs(%wide : tensor<4x8xf32>) -> tensor<4x8xf32>
  %d = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%z, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%wide : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.subf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %g = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %d : tensor<4x1xf32>, tensor<4x8xf32>) outs(%zeros : tensor<1x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1x8xf32>
  %sum = linalg.generic {indexing_maps = [#same, #none], iterator_types = ["reduction", "reduction"]}
      ins(%g : tensor<1x8xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.addf %o, %p : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %left = linalg.generic {indexing_maps = [#same, #none, #same], iterator_types = ["parallel", "parallel"]}
      ins(%g, %sum : tensor<1x8xf32>, tensor<f32>) outs(%zeros : tensor<1x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %c = arith.constant 0.125 : f32
    %0 = arith.mulf %q, %c : f32
    %1 = arith.subf %p, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1x8xf32>
  %norm = linalg.generic {indexing_maps = [#same, #none], iterator_types = ["reduction", "reduction"]}
      ins(%left : tensor<1x8xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.mulf %p, %p : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %next = linalg.generic {indexing_maps = [#same, #same, #none, #same], iterator_types = ["parallel", "parallel"]}
      ins(%w, %left, %norm : tensor<1x8xf32>, tensor<1x8xf32>, tensor<f32>) outs(%zeros : tensor<1x8xf32>) {
  ^bb0(%p: f32, %q: f32, %n: f32, %o: f32):
    %0 = arith.divf %q, %n : f32
    %1 = arith.subf %p, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<1x8xf32>
  return %next, %norm : tensor<1x8xf32>, tensor<f32>
}
