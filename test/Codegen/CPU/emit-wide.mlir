// RUN: sparse-opt %s --bsr-plan-clusters --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

// Products for a processor with 32 registers of 512 bits.

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 5>
!low = !bsr.pattern<32x64, block = 8x8, slots = 20>
#rows = affine_map<(d0, d1, d2) -> (d0, d2)>
#columns = affine_map<(d0, d1, d2) -> (d2, d0)>
#vectors = affine_map<(d0, d1, d2) -> (d2, d1)>
#result = affine_map<(d0, d1, d2) -> (d0, d1)>
module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32, l1_bytes = 49152, l2_bytes = 2097152>} {
// A dense product streams its vectors from the second-level cache: a work item packs those of all of its columns, with all
// summands; then each tile of rows sweeps over the columns, and its sums are in registers from the first summand to the last.
// CHECK-LABEL: func private @streamed
// CHECK-SAME:    %[[A:[^:]*]]: memref<768x1024xf32>, %[[B:[^:]*]]: memref<1024x2048xf32>, %[[C:[^:]*]]: memref<768x2048xf32>)
// CHECK:         scf.forall (%[[ITEM:.*]]) in (32) {
// CHECK:           %[[VECTORS:.*]] = memref.alloca() {{.*}} : memref<1x1024x64xf32>
// CHECK:           scf.for %{{.*}} = %[[ITEM]] to
// CHECK:             scf.for %{{.*}} to %c1024 step
// CHECK:               vector.load %[[B]]{{.*}} vector<64xf32>
// CHECK:               vector.store %{{.*}}, %[[VECTORS]]
// CHECK:           scf.for %{{.*}} = %c0 to %c128 step
// CHECK:             scf.for %{{.*}} = %[[ITEM]] to
// CHECK-NOT:           vector.load %[[C]]
// CHECK:               scf.for %{{.*}} = %c0 to %c1024 step %c4 iter_args
// CHECK:                 vector.load %[[VECTORS]]{{.*}} vector<64xf32>
// CHECK-COUNT-6:         memref.load %[[A]]
// CHECK-NOT:             scf.for
// CHECK:               vector.store %{{.*}}, %[[C]]
bsr.cluster private @streamed(%a: tensor<768x1024xf32>, %b: tensor<1024x2048xf32>) -> tensor<768x2048xf32> {
  %zero = arith.constant dense<0.0> : tensor<768x2048xf32>
  %c = linalg.generic {indexing_maps = [#rows, #vectors, #result], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<768x1024xf32>, tensor<1024x2048xf32>) outs(%zero : tensor<768x2048xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<768x2048xf32>
  bsr.yield %c : tensor<768x2048xf32>
}
// Rows whose summands lie apart are packed once for all work items, a tile's six side by side.
// CHECK-LABEL: func private @packed_once
// CHECK-SAME:    %[[A:[^:]*]]: memref<1024x768xf32>, %[[B:[^:]*]]: memref<1024x2048xf32>, %[[C:[^:]*]]: memref<768x2048xf32>, %[[ROWS:[^:]*]]: memref<786432xf32>)
// CHECK:         scf.forall
// CHECK:           vector.load %[[A]]{{.*}} vector<6xf32>
// CHECK:           vector.store %{{.*}}, %[[ROWS]]
// CHECK:         scf.forall (%[[ITEM:.*]]) in (32) {
// CHECK-NOT:       %[[A]][
// CHECK:           scf.for %{{.*}} = %c0 to %c128 step
// CHECK:             scf.for %{{.*}} = %[[ITEM]] to
// CHECK:               scf.for %{{.*}} = %c0 to %c1024 step %c4 iter_args
// CHECK-COUNT-6:         memref.load %[[ROWS]]
bsr.cluster private @packed_once(%a: tensor<1024x768xf32>, %b: tensor<1024x2048xf32>) -> tensor<768x2048xf32> {
  %zero = arith.constant dense<0.0> : tensor<768x2048xf32>
  %c = linalg.generic {indexing_maps = [#columns, #vectors, #result], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<1024x768xf32>, tensor<1024x2048xf32>) outs(%zero : tensor<768x2048xf32>) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %p = arith.mulf %l, %r : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<768x2048xf32>
  bsr.yield %c : tensor<768x2048xf32>
}
// A strip is four vectors of four features times four tokens. What is streamed is loaded four tokens at a time and copied
// to all groups: five rows and four vectors, twenty sums, whose lanes are added up four at a time. Each tile prefetches its
// share of the next strip.
// CHECK-LABEL: func private @grouped
// CHECK-SAME:    %[[X:[^:]*]]: memref<32x256xf32>, %[[Y:[^:]*]]: memref<64x256xf32>, %[[G:[^:]*]]: memref<5x16x16xf32>)
// CHECK:         %[[FLAT:.*]] = memref.collapse_shape %[[G]]
// CHECK:         %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<4096xf32>
// CHECK-COUNT-4:   vector.load %[[Y]]{{.*}} vector<16xf32>
// CHECK-COUNT-8:   vector.shuffle
// CHECK-COUNT-4:   vector.store %{{.*}}, %[[STRIP]]{{.*}} vector<16xf32>
// CHECK:         memref.prefetch %[[X]]
// CHECK:         memref.prefetch %[[Y]]
// CHECK-COUNT-4: vector.load %[[STRIP]]{{.*}} vector<16xf32>
// CHECK:         %[[ROW:.*]] = vector.load %[[X]]{{.*}} vector<4xf32>
// CHECK:         vector.shuffle %[[ROW]], %[[ROW]] [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
// CHECK-NOT:     vector.load %[[STRIP]]
// CHECK-COUNT-4: vector.load %[[X]]{{.*}} vector<4xf32>
// CHECK-COUNT-4: vector.load %[[STRIP]]{{.*}} vector<16xf32>
// CHECK:         vector.store %{{.*}}, %[[FLAT]]{{.*}} vector<16xf32>
bsr.cluster private @grouped(%p: !pattern, %x: tensor<32x256xf32>, %y: tensor<64x256xf32>) -> tensor<5x16x16xf32> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !pattern, tensor<32x256xf32>, tensor<64x256xf32> -> tensor<5x16x16xf32>
  bsr.yield %g : tensor<5x16x16xf32>
}
// Of eight features, two groups have eight tokens each.
// CHECK-LABEL: func private @pairs
// CHECK-SAME:    %[[X:[^:]*]]: memref<32x256xf32>, %[[Y:[^:]*]]: memref<64x256xf32>
// CHECK:         %[[STRIP:.*]] = memref.alloca() {{.*}} : memref<2048xf32>
// CHECK-COUNT-4: vector.load %[[STRIP]]{{.*}} vector<16xf32>
// CHECK:         %[[ROW:.*]] = vector.load %[[X]]{{.*}} vector<8xf32>
// CHECK:         vector.shuffle %[[ROW]], %[[ROW]] [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]
bsr.cluster private @pairs(%p: !low, %x: tensor<32x256xf32>, %y: tensor<64x256xf32>) -> tensor<20x8x8xf32> {
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !low, tensor<32x256xf32>, tensor<64x256xf32> -> tensor<20x8x8xf32>
  bsr.yield %g : tensor<20x8x8xf32>
}
func.func @step(%a: tensor<768x1024xf32>, %t: tensor<1024x768xf32>, %b: tensor<1024x2048xf32>, %p: !pattern, %q: !low, %x: tensor<32x256xf32>, %y: tensor<64x256xf32>)
    -> (tensor<768x2048xf32>, tensor<768x2048xf32>, tensor<5x16x16xf32>, tensor<20x8x8xf32>) {
  %e0 = tensor.empty() : tensor<768x2048xf32>
  %c = bsr.launch @streamed ins(%a, %b : tensor<768x1024xf32>, tensor<1024x2048xf32>) outs(%e0 : tensor<768x2048xf32>) -> tensor<768x2048xf32>
  %e1 = tensor.empty() : tensor<768x2048xf32>
  %d = bsr.launch @packed_once ins(%t, %b : tensor<1024x768xf32>, tensor<1024x2048xf32>) outs(%e1 : tensor<768x2048xf32>) -> tensor<768x2048xf32>
  %e2 = tensor.empty() : tensor<5x16x16xf32>
  %g = bsr.launch @grouped ins(%p, %x, %y : !pattern, tensor<32x256xf32>, tensor<64x256xf32>) outs(%e2 : tensor<5x16x16xf32>) -> tensor<5x16x16xf32>
  %e3 = tensor.empty() : tensor<20x8x8xf32>
  %h = bsr.launch @pairs ins(%q, %x, %y : !low, tensor<32x256xf32>, tensor<64x256xf32>) outs(%e3 : tensor<20x8x8xf32>) -> tensor<20x8x8xf32>
  return %c, %d, %g, %h : tensor<768x2048xf32>, tensor<768x2048xf32>, tensor<5x16x16xf32>, tensor<20x8x8xf32>
}
}
