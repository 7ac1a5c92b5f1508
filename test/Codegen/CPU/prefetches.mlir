// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.cpu<vector_bits=512,num_registers=32,l1_bytes=4096,l2_bytes=16384>" \
// RUN:   --bsr-plan-clusters --bsr-emit --bsr-verify-kernels --canonicalize | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-emit --canonicalize | FileCheck %s --check-prefix=NARROW

!pattern = !bsr.pattern<64x64, block = 16x16, slots = 8>

#id = affine_map<(f, t) -> (f, t)>

// The tiles after the first one prefetch what the epilogue reads and writes:
// 6 of 16 rows of 4 lines, each as the blocks before the end of the line have it.
// CHECK-LABEL: func private @epilogue
// CHECK-SAME:    %[[R:[a-z0-9]+]]: memref<64x64xf32>, %[[Y:[a-z0-9]+]]: memref<64x64xf32>, %[[Z:[a-z0-9]+]]: memref<64x64xf32>)
// CHECK:                 arith.minui
// CHECK:                 memref.prefetch %[[R]][{{.*}}], read, locality<3>, data
// CHECK:                 memref.prefetch %[[Z]][{{.*}}], write, locality<3>, data
// NARROW-LABEL: func private @epilogue
// NARROW-NOT:     write, locality
// NARROW:         return
bsr.cluster private @epilogue(%p: !pattern, %w: tensor<8x16x16xf32>, %x: tensor<64x64xf32>, %r: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<8x16x16xf32>, tensor<64x64xf32> -> tensor<64x64xf32>
  %e = tensor.empty() : tensor<64x64xf32>
  %z = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %r : tensor<64x64xf32>, tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  bsr.yield %y, %z : tensor<64x64xf32>, tensor<64x64xf32>
}
func.func @step(%p: !pattern, %w: tensor<8x16x16xf32>, %x: tensor<64x64xf32>, %r: tensor<64x64xf32>, %oy: tensor<64x64xf32>, %oz: tensor<64x64xf32>) -> (tensor<64x64xf32>, tensor<64x64xf32>) {
  %y:2 = bsr.launch @epilogue ins(%p, %w, %x, %r : !pattern, tensor<8x16x16xf32>, tensor<64x64xf32>, tensor<64x64xf32>)
                              outs(%oy, %oz : tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>, tensor<64x64xf32>
  return %y#0, %y#1 : tensor<64x64xf32>, tensor<64x64xf32>
}

// -----

#id = affine_map<(f, t) -> (f, t)>
#token = affine_map<(f, t) -> (t)>
#one = affine_map<(t) -> (t)>

// A quotient that no row changes is computed before the loop over rows; each row
// prefetches the one that comes 1 KiB later, in the first nest that reads it.
// CHECK-LABEL: func private @chain
// CHECK-SAME:    (%[[X:[a-z0-9]+]]: memref<64x64xf32>
// CHECK:         scf.for
// CHECK:           memref.prefetch %[[X]]
// CHECK:           vector.load %[[X]]
// CHECK:         arith.divf
// CHECK:         scf.for
// CHECK-NOT:       prefetch
// CHECK-NOT:       arith.divf
// CHECK:           arith.mulf
// CHECK:         return
bsr.cluster private @chain(%x: tensor<64x64xf32>, %n: tensor<64xf32>) -> (tensor<64x64xf32>) {
  %c0 = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<64xf32>
  %zeros = linalg.fill ins(%c0 : f32) outs(%es : tensor<64xf32>) -> tensor<64xf32>
  %s = linalg.generic {indexing_maps = [#id, #token], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<64x64xf32>) outs(%zeros : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %q = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%s, %n : tensor<64xf32>, tensor<64xf32>) outs(%es : tensor<64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %e = tensor.empty() : tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [#id, #token, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %q : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  bsr.yield %y : tensor<64x64xf32>
}
func.func @step(%x: tensor<64x64xf32>, %n: tensor<64xf32>, %o: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %y = bsr.launch @chain ins(%x, %n : tensor<64x64xf32>, tensor<64xf32>) outs(%o : tensor<64x64xf32>) -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

// -----

// Rows that updates are added to are cleared as they lie in memory, before.
// CHECK-LABEL: func private @scatter
// CHECK:         scf.forall (%{{.*}}) in (512)
// CHECK:           vector.store
// CHECK:         scf.forall (%{{.*}}) in (2)
// CHECK:           arith.addf
bsr.cluster private @scatter(%i: tensor<8xi32>, %u: tensor<8x64xf32>) -> tensor<512x64xf32> {
  %y = bsr.scatter_add %i, %u feature_dim = 1 : tensor<8xi32>, tensor<8x64xf32> -> tensor<512x64xf32>
  bsr.yield %y : tensor<512x64xf32>
}
func.func @step(%i: tensor<8xi32>, %u: tensor<8x64xf32>, %o: tensor<512x64xf32>) -> tensor<512x64xf32> {
  %y = bsr.launch @scatter ins(%i, %u : tensor<8xi32>, tensor<8x64xf32>) outs(%o : tensor<512x64xf32>) -> tensor<512x64xf32>
  return %y : tensor<512x64xf32>
}
