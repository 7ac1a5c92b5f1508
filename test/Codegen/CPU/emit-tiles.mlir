// RUN: sparse-opt %s --bsr-plan-clusters --bsr-emit --canonicalize | FileCheck %s

// Products of bf16 by tiles, for a processor that multiplies them.

!small = !bsr.pattern<32x64, block = 16x16, slots = 5>
!large = !bsr.pattern<64x128, block = 32x32, slots = 5>
module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32, bf16_tiles = amx>} {
// Values of two blocks lie side by side, transposed: one that is missing is zeros. Each step puts rows of two features
// side by side, and one tile of values is multiplied with four of these.
// CHECK-LABEL: func private @forward
// CHECK-SAME:    %{{[^:]*}}: memref<5xi32>, %{{[^:]*}}: memref<5xi32>, %{{[^:]*}}: memref<5xi32>, %[[W:[^:]*]]: memref<5x16x16xbf16>, %[[X:[^:]*]]: memref<32x256xbf16>, %[[Y:[^:]*]]: memref<64x256xbf16>, %[[PACKED:[^:]*]]: memref<5x16x32xbf16>
// CHECK:         scf.forall
// CHECK:           vector.interleave %{{.*}} : vector<16xbf16> -> vector<32xbf16>
// CHECK:           vector.store %{{.*}}, %[[PACKED]]{{.*}} vector<16xbf16>
// CHECK:           arith.select
// CHECK:         scf.forall
// CHECK-DAG:       %[[PAIRS:.*]] = memref.alloca() {{.*}} : memref<4x16x32xbf16>
// CHECK-DAG:       %[[SUMS:.*]] = memref.alloca() {{.*}} : memref<16x64xf32>
// CHECK-COUNT-4:   amx.tile_zero : !amx.tile<16x16xf32>
// CHECK:           scf.for {{.*}} step %c2 iter_args(
// CHECK:             %[[ROW:.*]] = vector.load %[[X]]{{.*}} vector<64xbf16>
// CHECK:             %[[NEXT:.*]] = vector.load %[[X]]{{.*}} vector<64xbf16>
// CHECK:             vector.shuffle %[[ROW]], %[[NEXT]] [0, 64, 1, 65, 2, 66, 3, 67, 8, 72
// CHECK:             vector.store %{{.*}}, %[[PAIRS]]
// CHECK:             %[[VALUES:.*]] = amx.tile_load %[[PACKED]]
// CHECK:             %[[TILE:.*]] = amx.tile_load %[[PAIRS]]
// CHECK:             amx.tile_mulf %[[VALUES]], %[[TILE]]
// CHECK-COUNT-3:     amx.tile_mulf %[[VALUES]], %{{.*}}
// What is left of the blocks of a line.
// CHECK:           scf.for {{.*}} iter_args(
// CHECK:             vector.store %cst{{.*}}, %[[PAIRS]]
// CHECK-COUNT-4:     amx.tile_mulf
// CHECK-COUNT-4:   amx.tile_store %[[SUMS]]
// CHECK:           %[[SUM:.*]] = vector.load %[[SUMS]]{{.*}} vector<64xf32>
// CHECK:           %[[ROUNDED:.*]] = arith.truncf %[[SUM]] to_nearest_even
// CHECK:           %[[TOKENS:.*]] = vector.shuffle %[[ROUNDED]], %[[ROUNDED]] [0, 1, 2, 3, 16, 17, 18, 19, 4, 5
// CHECK:           vector.store %[[TOKENS]], %[[Y]]
bsr.cluster private @forward(%p: !small, %w: tensor<5x16x16xbf16>, %x: tensor<32x256xbf16>) -> tensor<64x256xbf16> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !small, tensor<5x16x16xbf16>, tensor<32x256xbf16> -> tensor<64x256xbf16>
  bsr.yield %y : tensor<64x256xbf16>
}

// Rows of larger blocks are rows of tiles. What is left of the tokens is no tile.
// CHECK-LABEL: func private @backward
// CHECK-SAME:    %[[W:[^:]*]]: memref<5x32x32xbf16>
// CHECK-DAG:       %[[PAIRS:.*]] = memref.alloca() {{.*}} : memref<2x16x32xbf16>
// CHECK:           vector.load %{{.*}} vector<32xbf16>
// CHECK-COUNT-2:   amx.tile_load %[[PAIRS]]
// CHECK:           amx.tile_load %[[W]]
// CHECK-COUNT-2:   amx.tile_mulf
// CHECK:           amx.tile_load %[[W]]
// CHECK-COUNT-2:   amx.tile_mulf
// CHECK-NOT:       amx.tile_mulf
// CHECK:           arith.mulf {{.*}} : vector<32xf32>
bsr.cluster private @backward(%p: !large, %w: tensor<5x32x32xbf16>, %y: tensor<128x100xbf16>) -> tensor<64x100xbf16> {
  %x = bsr.spmm %p, %w, %y transpose feature_dim = 0 : !large, tensor<5x32x32xbf16>, tensor<128x100xbf16> -> tensor<64x100xbf16>
  bsr.yield %x : tensor<64x100xbf16>
}

// Pairs of tokens of the fewer features are transposed, for all blocks of a line; the others are read as they lie. Four
// blocks are taken together, then those that are left.
// CHECK-LABEL: func private @gradient
// CHECK-SAME:    %[[X:[^:]*]]: memref<32x256xbf16>, %[[DY:[^:]*]]: memref<64x256xbf16>
// CHECK:           %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<8x1x16x32xbf16>
// CHECK:           vector.load %[[X]]{{.*}} vector<32xbf16>
// CHECK:           vector.store %{{.*}}, %[[STRIP]]
// CHECK:           scf.if
// CHECK:             %[[PAIRS:.*]] = amx.tile_load %[[STRIP]]
// CHECK:             %[[ROWS:.*]] = amx.tile_load %[[DY]]
// CHECK:             amx.tile_mulf %[[ROWS]], %[[PAIRS]]
// CHECK-COUNT-3:     amx.tile_mulf %{{.*}}, %[[PAIRS]]
// CHECK:           scf.if
// CHECK:             amx.tile_mulf
// CHECK-NOT:         amx.tile_mulf
// CHECK:           return
bsr.cluster private @gradient(%p: !small, %x: tensor<32x256xbf16>, %y: tensor<64x256xbf16>) -> tensor<5x16x16xbf16> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !small, tensor<32x256xbf16>, tensor<64x256xbf16> -> tensor<5x16x16xbf16>
  bsr.yield %g : tensor<5x16x16xbf16>
}

// A schedule says what else to do, and few tokens are not worth packed values.
// CHECK-LABEL: func private @scheduled
// CHECK-NOT:     amx
// CHECK:         return
bsr.cluster private @scheduled(%p: !small, %w: tensor<5x16x16xbf16>, %x: tensor<32x256xbf16>) -> tensor<64x256xbf16> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.schedule = {walk = "gather"}} : !small, tensor<5x16x16xbf16>, tensor<32x256xbf16> -> tensor<64x256xbf16>
  bsr.yield %y : tensor<64x256xbf16>
}
// CHECK-LABEL: func private @few
// CHECK-NOT:     amx
// CHECK:         return
bsr.cluster private @few(%p: !small, %w: tensor<5x16x16xbf16>, %x: tensor<32x64xbf16>) -> tensor<64x64xbf16> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !small, tensor<5x16x16xbf16>, tensor<32x64xbf16> -> tensor<64x64xbf16>
  bsr.yield %y : tensor<64x64xbf16>
}
func.func @step(%p: !small, %q: !large, %w: tensor<5x16x16xbf16>, %v: tensor<5x32x32xbf16>, %x: tensor<32x256xbf16>, %z: tensor<128x100xbf16>, %y: tensor<64x256xbf16>, %s: tensor<32x64xbf16>)
    -> (tensor<64x256xbf16>, tensor<64x100xbf16>, tensor<5x16x16xbf16>, tensor<64x256xbf16>, tensor<64x64xbf16>) {
  %e0 = tensor.empty() : tensor<64x256xbf16>
  %a = bsr.launch @forward ins(%p, %w, %x : !small, tensor<5x16x16xbf16>, tensor<32x256xbf16>) outs(%e0 : tensor<64x256xbf16>) -> tensor<64x256xbf16>
  %e1 = tensor.empty() : tensor<64x100xbf16>
  %b = bsr.launch @backward ins(%q, %v, %z : !large, tensor<5x32x32xbf16>, tensor<128x100xbf16>) outs(%e1 : tensor<64x100xbf16>) -> tensor<64x100xbf16>
  %e2 = tensor.empty() : tensor<5x16x16xbf16>
  %c = bsr.launch @gradient ins(%p, %x, %y : !small, tensor<32x256xbf16>, tensor<64x256xbf16>) outs(%e2 : tensor<5x16x16xbf16>) -> tensor<5x16x16xbf16>
  %e3 = tensor.empty() : tensor<64x256xbf16>
  %d = bsr.launch @scheduled ins(%p, %w, %x : !small, tensor<5x16x16xbf16>, tensor<32x256xbf16>) outs(%e3 : tensor<64x256xbf16>) -> tensor<64x256xbf16>
  %e4 = tensor.empty() : tensor<64x64xbf16>
  %f = bsr.launch @few ins(%p, %w, %s : !small, tensor<5x16x16xbf16>, tensor<32x64xbf16>) outs(%e4 : tensor<64x64xbf16>) -> tensor<64x64xbf16>
  return %a, %b, %c, %d, %f : tensor<64x256xbf16>, tensor<64x100xbf16>, tensor<5x16x16xbf16>, tensor<64x256xbf16>, tensor<64x64xbf16>
}
}
