// RUN: sparse-opt %s --bsr-mark="match=w block=2x4 density=0.5" --bsr-bind --mlir-print-local-scope | FileCheck %s

// A matrix that is added to activations has their gradient, which also goes back
// through what they enter, here one layer that is not trained: that reads it as
// it is, and what is the matrix's alone is masked.

#same = affine_map<(i, j) -> (i, j)>
#none = affine_map<(i, j) -> ()>
#left = affine_map<(i, j, k) -> (i, k)>
#right = affine_map<(i, j, k) -> (j, k)>
#out = affine_map<(i, j, k) -> (i, j)>

// CHECK-LABEL: func.func @step
// CHECK-SAME:    %[[X:[a-z0-9]*]]: tensor<4x8xf32> {bsr.name = "x"}
// CHECK:         %[[ABOVE:.*]] = linalg.generic {{.*}}ins(%{{.*}}, %[[A:.*]] : tensor<4x8xf32>, tensor<8x8xf32>)
// CHECK:         linalg.generic {{.*}}ins(%[[ABOVE]], %[[X]] :
// CHECK:         %[[BACK:.*]] = linalg.generic {{.*}}ins(%{{.*}}, %[[A]] : tensor<4x8xf32>, tensor<8x8xf32>)
// CHECK:         %[[BACK_BLOCKS:.*]] = bsr.sample %{{.*}}, %[[BACK]] :
// CHECK:         %[[BACK_MASKED:.*]] = bsr.to_dense %{{.*}}, %[[BACK_BLOCKS]] :
// CHECK:         %[[BLOCKS:.*]] = bsr.sample %{{.*}}, %[[ABOVE]] :
// CHECK:         %[[MASKED:.*]] = bsr.to_dense %{{.*}}, %[[BLOCKS]] :
// CHECK:         linalg.generic {{.*}}ins(%[[MASKED]], %[[BACK_MASKED]] :
func.func @step(%w: tensor<4x8xf32> {bsr.name = "w", bsr.result = 0 : i64}, %x: tensor<4x8xf32> {bsr.name = "x"},
                %a: tensor<8x8xf32> {bsr.name = "a"}) -> (tensor<4x8xf32>, tensor<f32> {bsr.name = "norm"}) {
  %zeros = arith.constant dense<0.0> : tensor<4x8xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %h = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x, %w : tensor<4x8xf32>, tensor<4x8xf32>) outs(%zeros : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %above = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%h, %a : tensor<4x8xf32>, tensor<8x8xf32>) outs(%zeros : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x8xf32>
  %through = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%above, %x : tensor<4x8xf32>, tensor<4x8xf32>) outs(%zeros : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %c = arith.constant 0.0 : f32
    %0 = arith.cmpf ogt, %q, %c : f32
    %1 = arith.select %0, %p, %c : f32
    linalg.yield %1 : f32
  } -> tensor<4x8xf32>
  %back = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%through, %a : tensor<4x8xf32>, tensor<8x8xf32>) outs(%zeros : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x8xf32>
  %gradient = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%above, %back : tensor<4x8xf32>, tensor<4x8xf32>) outs(%zeros : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.addf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %norm = linalg.generic {indexing_maps = [#same, #none], iterator_types = ["reduction", "reduction"]}
      ins(%gradient : tensor<4x8xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = arith.mulf %p, %p : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %next = linalg.generic {indexing_maps = [#same, #same, #none, #same], iterator_types = ["parallel", "parallel"]}
      ins(%w, %gradient, %norm : tensor<4x8xf32>, tensor<4x8xf32>, tensor<f32>) outs(%zeros : tensor<4x8xf32>) {
  ^bb0(%p: f32, %q: f32, %n: f32, %o: f32):
    %0 = arith.divf %q, %n : f32
    %1 = arith.subf %p, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<4x8xf32>
  return %next, %norm : tensor<4x8xf32>, tensor<f32>
}
