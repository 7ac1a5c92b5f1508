// RUN: sparse-opt %s --bsr-mark="match=^w$ block=2x2 density=0.5" --bsr-bind --mlir-print-local-scope | FileCheck %s

// Of a matrix that is added to activations the gradient is a sum of theirs. What a
// factored optimizer keeps of it, sums of rows, is returned beside others' values and
// goes back to the matrix alone: it is of the masked gradient.

#xyz = affine_map<(i, j, k) -> (i, j, k)>
#yz = affine_map<(i, j, k) -> (j, k)>
#ij = affine_map<(i, j) -> (i, j)>
#i = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @factored
// CHECK:         %[[GRADIENT:.*]] = linalg.generic {{.*}}iterator_types = ["reduction", "parallel", "parallel"]
// CHECK:         %[[BLOCKS:.*]] = bsr.sample %{{.*}}, %[[GRADIENT]] :
// CHECK:         %[[MASKED:.*]] = bsr.to_dense %{{.*}}, %[[BLOCKS]] :
// CHECK:         %[[SQUARES:.*]] = arith.mulf %[[MASKED]], %[[MASKED]]
// CHECK:         linalg.generic {{.*}}ins(%[[SQUARES]] :
func.func @factored(%w: tensor<4x8xf32> {bsr.name = "w", bsr.result = 0 : i64}, %rows: tensor<4xf32> {bsr.name = "rows", bsr.result = 1 : i64},
                    %x: tensor<2x4x8xf32> {bsr.name = "x"}) -> (tensor<4x8xf32>, tensor<4xf32>, tensor<2x4x8xf32> {bsr.name = "y"}) {
  %empty = tensor.empty() : tensor<2x4x8xf32>
  %sum = linalg.generic {indexing_maps = [#xyz, #yz, #xyz], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %w : tensor<2x4x8xf32>, tensor<4x8xf32>) outs(%empty : tensor<2x4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x4x8xf32>
  %y = math.tanh %sum : tensor<2x4x8xf32>
  %zeros = arith.constant dense<0.0> : tensor<4x8xf32>
  %g = linalg.generic {indexing_maps = [#xyz, #yz], iterator_types = ["reduction", "parallel", "parallel"]}
      ins(%y : tensor<2x4x8xf32>) outs(%zeros : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %squares = arith.mulf %g, %g : tensor<4x8xf32>
  %next_rows = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]}
      ins(%squares : tensor<4x8xf32>) outs(%rows : tensor<4xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4xf32>
  %scale = math.rsqrt %next_rows : tensor<4xf32>
  %step = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]}
      ins(%g, %scale : tensor<4x8xf32>, tensor<4xf32>) outs(%zeros : tensor<4x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %next = arith.subf %w, %step : tensor<4x8xf32>
  return %next, %next_rows, %y : tensor<4x8xf32>, tensor<4xf32>, tensor<2x4x8xf32>
}
