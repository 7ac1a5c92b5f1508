// RUN: sparse-opt %s --bsr-plan-clusters --bsr-emit --canonicalize --cse | FileCheck %s

// Products of bf16 by f32, for a processor with registers to spare.

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 5>
module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32>} {
// The first tile of a line splits the rows of a k-block in even and odd lanes, for the others, too; the sums are
// in this order until they are rounded.
// CHECK-LABEL: func private @forward
// CHECK-SAME:    memref<5x16x16xbf16>, %[[X:[^:]*]]: memref<32x64xbf16>, %[[Y:[^:]*]]: memref<64x64xbf16>
// CHECK-DAG:     %[[ROWS:.*]] = memref.alloca() {{.*}} : memref<{{.*}}x64xf32>
// CHECK:         %[[ROW:.*]] = vector.load %[[X]]{{.*}} vector<64xbf16>
// CHECK:         %[[PAIRS:.*]] = vector.bitcast %[[ROW]] : vector<64xbf16> to vector<32xi32>
// CHECK-DAG:     arith.shli %[[PAIRS]], %{{.*}} : vector<32xi32>
// CHECK-DAG:     arith.andi %[[PAIRS]], %{{.*}} : vector<32xi32>
// CHECK:         vector.store %{{.*}}, %[[ROWS]]{{.*}} vector<64xf32>
// CHECK:         vector.load %[[ROWS]]{{.*}} vector<64xf32>
// CHECK:         %[[EVEN:.*]] = arith.truncf %{{.*}} : vector<32xf32> to vector<32xbf16>
// CHECK:         %[[ODD:.*]] = arith.truncf %{{.*}} : vector<32xf32> to vector<32xbf16>
// CHECK:         %[[JOINED:.*]] = arith.ori %{{.*}} : vector<32xi32>
// CHECK:         %[[ROUNDED:.*]] = vector.bitcast %[[JOINED]] : vector<32xi32> to vector<64xbf16>
// CHECK:         vector.store %[[ROUNDED]], %[[Y]]
bsr.cluster private @forward(%p: !pattern, %w: tensor<5x16x16xbf16>, %x: tensor<32x64xbf16>) -> tensor<64x64xbf16> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<5x16x16xbf16>, tensor<32x64xbf16> -> tensor<64x64xbf16>
  bsr.yield %y : tensor<64x64xbf16>
}

// A strip has what is split of a line of blocks, for all tokens. Each vector of sums takes the even tokens of two,
// then the odd ones.
// CHECK-LABEL: func private @gradient
// CHECK:         %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<8x64xf32>
// CHECK:         vector.store %{{.*}}, %[[STRIP]]{{.*}} vector<32xf32>
// CHECK:         vector.load %[[STRIP]]{{.*}} vector<32xf32>
// CHECK:         arith.mulf %{{.*}} fastmath<contract> : vector<16xf32>
bsr.cluster private @gradient(%p: !pattern, %x: tensor<32x64xbf16>, %y: tensor<64x64xbf16>) -> tensor<5x16x16xbf16> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !pattern, tensor<32x64xbf16>, tensor<64x64xbf16> -> tensor<5x16x16xbf16>
  bsr.yield %g : tensor<5x16x16xbf16>
}

// Enough tokens: values are converted once, into memory of the kernel, in the order in which it takes blocks.
// CHECK-LABEL: func private @many
// CHECK-SAME:    %[[VALUES:[^:]*]]: memref<5x16x16xbf16>, %{{[^:]*}}: memref<32x512xbf16>, %{{[^:]*}}: memref<64x512xbf16>, %[[WIDE:[^:]*]]: memref<5x16x16xf32>
// CHECK:         %[[VALUE:.*]] = vector.load %[[VALUES]]{{.*}} vector<16xbf16>
// CHECK:         %[[CONVERTED:.*]] = arith.extf %[[VALUE]]
// CHECK:         vector.store %[[CONVERTED]], %[[WIDE]]
// CHECK-NOT:     %[[VALUES]][
// CHECK:         memref.load %[[WIDE]]
// CHECK:         return
bsr.cluster private @many(%p: !pattern, %w: tensor<5x16x16xbf16>, %x: tensor<32x512xbf16>) -> tensor<64x512xbf16> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<5x16x16xbf16>, tensor<32x512xbf16> -> tensor<64x512xbf16>
  bsr.yield %y : tensor<64x512xbf16>
}
func.func @step(%p: !pattern, %w: tensor<5x16x16xbf16>, %x: tensor<32x64xbf16>, %y: tensor<64x64xbf16>, %z: tensor<32x512xbf16>)
    -> (tensor<64x64xbf16>, tensor<5x16x16xbf16>, tensor<64x512xbf16>) {
  %e0 = tensor.empty() : tensor<64x64xbf16>
  %a = bsr.launch @forward ins(%p, %w, %x : !pattern, tensor<5x16x16xbf16>, tensor<32x64xbf16>) outs(%e0 : tensor<64x64xbf16>) -> tensor<64x64xbf16>
  %e1 = tensor.empty() : tensor<5x16x16xbf16>
  %b = bsr.launch @gradient ins(%p, %x, %y : !pattern, tensor<32x64xbf16>, tensor<64x64xbf16>) outs(%e1 : tensor<5x16x16xbf16>) -> tensor<5x16x16xbf16>
  %e2 = tensor.empty() : tensor<64x512xbf16>
  %c = bsr.launch @many ins(%p, %w, %z : !pattern, tensor<5x16x16xbf16>, tensor<32x512xbf16>) outs(%e2 : tensor<64x512xbf16>) -> tensor<64x512xbf16>
  return %a, %b, %c : tensor<64x64xbf16>, tensor<5x16x16xbf16>, tensor<64x512xbf16>
}
}
