// RUN: sparse-opt %s --bsr-from-sparse-tensor=density=0.25 | FileCheck %s

#bsr = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 2 : dense, j floordiv 4 : compressed, i mod 2 : dense, j mod 4 : dense), posWidth = 64}>
#csr = #sparse_tensor.encoding<{map = (i, j) -> (i : dense, j : compressed)}>
#csc = #sparse_tensor.encoding<{map = (i, j) -> (j : dense, i : compressed)}>

// Blocks and elements become patterns, named as their values; what is compressed
// along columns stays what it is. Conversions to dense tensors go away.
// CHECK-LABEL: func @f
// CHECK-SAME:    %[[V:[^:]*]]: tensor<2x2x4xf32> {bsr.name = "w", bsr.pattern = 3 : i64}
// CHECK-SAME:    %[[U:[^:]*]]: tensor<16x1x1xf32>, %{{[^:]*}}: tensor<8x8xf32, #{{.*}}>,
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x8, block = 2x4, slots = 2> {bsr.density = 2.500000e-01 : f64, bsr.name = "w", bsr.role = "pattern"},
// CHECK-SAME:    %[[Q:[^:]*]]: !bsr.pattern<8x8, block = 1x1, slots = 16>)
// CHECK-DAG:     %[[W:.*]] = bsr.to_dense %[[P]], %[[V]]
// CHECK-DAG:     %[[C:.*]] = bsr.to_dense %[[Q]], %[[U]]
// CHECK:         linalg.matmul ins(%[[W]], %[[C]]
// CHECK-NOT:     sparse_tensor.convert
// CHECK:         return
func.func @f(%w: tensor<8x8xf32, #bsr> {bsr.name = "w"}, %c: tensor<8x8xf32, #csr>, %d: tensor<8x8xf32, #csc>)
    -> tensor<8x8xf32> {
  %z = tensor.empty() : tensor<8x8xf32>
  %e = sparse_tensor.convert %c : tensor<8x8xf32, #csr> to tensor<8x8xf32>
  %y = linalg.matmul ins(%w, %e : tensor<8x8xf32, #bsr>, tensor<8x8xf32>) outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}
