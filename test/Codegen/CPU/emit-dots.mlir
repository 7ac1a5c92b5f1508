// RUN: sparse-opt %s --bsr-plan-clusters --bsr-emit --canonicalize | FileCheck %s

// Products of bf16 by pairs, for a processor that multiplies them.

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 5>
module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32, bf16_dots = native>} {
// Values of two features are packed side by side for each output, rows of two features
// interleaved in registers; the sums of a k-block are in the order of what is interleaved.
// CHECK-LABEL: func private @forward
// CHECK-SAME:    %{{[^:]*}}: memref<5xi32>, %{{[^:]*}}: memref<5xi32>, %{{[^:]*}}: memref<5xi32>, %[[W:[^:]*]]: memref<5x16x16xbf16>, %[[X:[^:]*]]: memref<32x64xbf16>, %[[Y:[^:]*]]: memref<64x64xbf16>
// CHECK-DAG:     %[[PACKED:.*]] = memref.alloca() {{.*}} : memref<6x256xbf16>
// CHECK-DAG:     %[[SUMS:.*]] = memref.alloca() {{.*}} : memref<16x64xf32>
// CHECK:         %[[PAIRS:.*]] = vector.interleave %{{.*}} : vector<16xbf16> -> vector<32xbf16>
// CHECK:         vector.store %[[PAIRS]], %[[PACKED]]
// CHECK:         %[[ROW:.*]] = vector.load %[[X]]{{.*}} vector<64xbf16>
// CHECK:         %[[NEXT:.*]] = vector.load %[[X]]{{.*}} vector<64xbf16>
// CHECK:         %[[ZIP:.*]] = vector.shuffle %[[ROW]], %[[NEXT]] [0, 64, 1, 65, 2, 66, 3, 67, 8, 72
// CHECK:         vector.shuffle %[[ROW]], %[[NEXT]] [4, 68, 5, 69, 6, 70, 7, 71, 12, 76
// CHECK:         %[[PAIR:.*]] = vector.load %[[PACKED]]{{.*}} vector<2xbf16>
// CHECK:         vector.bitcast %[[PAIR]] : vector<2xbf16> to vector<1xi32>
// CHECK:         x86vector.avx512.dot %{{.*}}, %[[ZIP]], %{{.*}} : vector<32xbf16> -> vector<16xf32>
// CHECK:         %[[ORDERED:.*]] = vector.shuffle %[[SUM:.*]], %[[SUM]] [0, 1, 2, 3, 16, 17, 18, 19, 4, 5
// CHECK:         %[[ROUNDED:.*]] = arith.truncf %[[ORDERED]]
// CHECK:         vector.store %[[ROUNDED]], %[[Y]]
bsr.cluster private @forward(%p: !pattern, %w: tensor<5x16x16xbf16>, %x: tensor<32x64xbf16>) -> tensor<64x64xbf16> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<5x16x16xbf16>, tensor<32x64xbf16> -> tensor<64x64xbf16>
  bsr.yield %y : tensor<64x64xbf16>
}

// What is summed are the columns of a block: pairs lie side by side as they are, and a line has no k-blocks.
// CHECK-LABEL: func private @backward
// CHECK-SAME:    %[[W:[^:]*]]: memref<5x16x16xbf16>
// CHECK-NOT:     memref.alloca
// CHECK:         vector.load %[[W]]{{.*}} vector<2xbf16>
// CHECK:         x86vector.avx512.dot
// CHECK:         return
bsr.cluster private @backward(%p: !pattern, %w: tensor<5x16x16xbf16>, %y: tensor<64x64xbf16>) -> tensor<32x64xbf16> {
  %x = bsr.spmm %p, %w, %y transpose feature_dim = 0 : !pattern, tensor<5x16x16xbf16>, tensor<64x64xbf16> -> tensor<32x64xbf16>
  bsr.yield %x : tensor<32x64xbf16>
}

// Tokens are summed, and lie side by side.
// CHECK-LABEL: func private @gradient
// CHECK-NOT:     memref.alloca
// CHECK:         %[[A:.*]] = vector.load %{{.*}} vector<32xbf16>
// CHECK-NOT:     vector.shuffle
// CHECK:         x86vector.avx512.dot %{{.*}}, %{{.*}}, %{{.*}} : vector<32xbf16> -> vector<16xf32>
// CHECK:         return
bsr.cluster private @gradient(%p: !pattern, %x: tensor<32x64xbf16>, %y: tensor<64x64xbf16>) -> tensor<5x16x16xbf16> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !pattern, tensor<32x64xbf16>, tensor<64x64xbf16> -> tensor<5x16x16xbf16>
  bsr.yield %g : tensor<5x16x16xbf16>
}
func.func @step(%p: !pattern, %w: tensor<5x16x16xbf16>, %x: tensor<32x64xbf16>, %y: tensor<64x64xbf16>)
    -> (tensor<64x64xbf16>, tensor<32x64xbf16>, tensor<5x16x16xbf16>) {
  %e0 = tensor.empty() : tensor<64x64xbf16>
  %a = bsr.launch @forward ins(%p, %w, %x : !pattern, tensor<5x16x16xbf16>, tensor<32x64xbf16>) outs(%e0 : tensor<64x64xbf16>) -> tensor<64x64xbf16>
  %e1 = tensor.empty() : tensor<32x64xbf16>
  %b = bsr.launch @backward ins(%p, %w, %y : !pattern, tensor<5x16x16xbf16>, tensor<64x64xbf16>) outs(%e1 : tensor<32x64xbf16>) -> tensor<32x64xbf16>
  %e2 = tensor.empty() : tensor<5x16x16xbf16>
  %c = bsr.launch @gradient ins(%p, %x, %y : !pattern, tensor<32x64xbf16>, tensor<64x64xbf16>) outs(%e2 : tensor<5x16x16xbf16>) -> tensor<5x16x16xbf16>
  return %a, %b, %c : tensor<64x64xbf16>, tensor<32x64xbf16>, tensor<5x16x16xbf16>
}
}
