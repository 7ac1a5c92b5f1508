// Dense products of f32 on arithmetic units; norms of blocks of products that are not stored.
//
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

#left = affine_map<(b, q, k, d) -> (b, d, q)>
#right = affine_map<(b, q, k, d) -> (b, k, d)>
#out = affine_map<(b, q, k, d) -> (b, q, k)>

// The left operand is a part of a larger buffer. Tiles of 128 by 256 sums; 4 stages of 32 rows of 128 numbers, and of 256 rows of 32.
// CHECK-LABEL: func private @slice(
// CHECK-SAME:    %[[A:.*]]: memref<4x192x512xf32>, %[[B:.*]]: memref<4x800x64xf32>, %[[C:.*]]: memref<4x512x800xf32>)
// CHECK:         %[[ROWS:.*]] = memref.reinterpret_cast %[[C]] to offset: [0], sizes: [4, 512, 200, 4]
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c16, %{{[^ ]+}} = %c4, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c256, {{[^)]+}}) dynamic_shared_memory_size %c196608_i32
// CHECK:           nvvm.cp.async.shared.global {{.*}}, 16, cache = cg
// CHECK:           scf.for {{.*}} iter_args
// CHECK:             nvvm.cp.async.wait.group 2
// CHECK-NEXT:        gpu.barrier
// 4 inner numbers at a time: 8 loads of the left operand, 16 of the right one, each of which is multiplied by 8 rows.
// CHECK:             scf.for {{.*}} to %c8_i32 step %c1_i32 iter_args
// CHECK-COUNT-8:       llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK-NOT:           llvm.load
// CHECK:               arith.xori
// CHECK:               llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK-COUNT-32:      math.fma
// CHECK:               llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<3> -> vector<4xf32>
// CHECK:           vector.store %{{.*}}, %[[ROWS]][{{.*}}] {alignment = 16 : i64} : memref<4x512x200x4xf32>, vector<4xf32>
module attributes {bsr.target = #bsr.gpu<tile_outputs = 128, tile_tokens = 256>} {
  bsr.cluster private @slice(%a: tensor<4x192x512xf32>, %b: tensor<4x800x64xf32>) -> tensor<4x512x800xf32> {
    %part = tensor.extract_slice %a[0, 64, 0] [4, 64, 512] [1, 1, 1] : tensor<4x192x512xf32> to tensor<4x64x512xf32>
    %zero = arith.constant dense<0.0> : tensor<4x512x800xf32>
    %c = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%part, %b : tensor<4x64x512xf32>, tensor<4x800x64xf32>) outs(%zero : tensor<4x512x800xf32>) {
    ^bb0(%x: f32, %y: f32, %sum: f32):
      %0 = arith.mulf %x, %y : f32
      %1 = arith.addf %sum, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<4x512x800xf32>
    bsr.yield %c : tensor<4x512x800xf32>
  }
  func.func @step(%a: tensor<4x192x512xf32>, %b: tensor<4x800x64xf32>) -> tensor<4x512x800xf32> {
    %init = tensor.empty() : tensor<4x512x800xf32>
    %c = bsr.launch @slice ins(%a, %b : tensor<4x192x512xf32>, tensor<4x800x64xf32>)
        outs(%init : tensor<4x512x800xf32>) -> tensor<4x512x800xf32>
    return %c : tensor<4x512x800xf32>
  }
}

// -----

#left = affine_map<(b, q, k, d) -> (b, q, d)>
#right = affine_map<(b, q, k, d) -> (b, d, k)>
#out = affine_map<(b, q, k, d) -> (b, q, k)>

// The model takes plain kernels where tiles would be computed for a few sums.
// CHECK-LABEL: func private @small(
// CHECK-NOT:     gpu.launch
// CHECK:         scf.forall
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @small(%a: tensor<16x2x24xf32>, %b: tensor<16x24x40xf32>) -> tensor<16x2x40xf32> {
    %zero = arith.constant dense<0.0> : tensor<16x2x40xf32>
    %c = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<16x2x24xf32>, tensor<16x24x40xf32>) outs(%zero : tensor<16x2x40xf32>) {
    ^bb0(%x: f32, %y: f32, %sum: f32):
      %0 = arith.mulf %x, %y : f32
      %1 = arith.addf %sum, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<16x2x40xf32>
    bsr.yield %c : tensor<16x2x40xf32>
  }
  func.func @step(%a: tensor<16x2x24xf32>, %b: tensor<16x24x40xf32>) -> tensor<16x2x40xf32> {
    %init = tensor.empty() : tensor<16x2x40xf32>
    %c = bsr.launch @small ins(%a, %b : tensor<16x2x24xf32>, tensor<16x24x40xf32>)
        outs(%init : tensor<16x2x40xf32>) -> tensor<16x2x40xf32>
    return %c : tensor<16x2x40xf32>
  }
}

// -----

#left = affine_map<(m, n, k) -> (k, m)>
#right = affine_map<(m, n, k) -> (n, k)>
#out = affine_map<(m, n, k) -> (m, n)>

// Rounded to tf32: inner numbers of the right operand lie side by side, which ldmatrix loads, those of the left one do not.
// CHECK-LABEL: func private @rounded(
// CHECK:         gpu.launch
// CHECK:             nvvm.cp.async.wait.group 2
// CHECK:             nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<row>
// CHECK:             nvvm.convert.float.to.tf32 %{{.*}} {rnd = #nvvm.fp_rnd_mode<rna>}
// CHECK:             llvm.load %{{.*}} : !llvm.ptr<3> -> f32
// CHECK-NEXT:        nvvm.convert.float.to.tf32 %{{.*}} {rnd = #nvvm.fp_rnd_mode<rna>}
// CHECK:             nvvm.mma.sync {{.*}} shape = #nvvm.shape<m = 16, n = 8, k = 8>
// CHECK-NOT:         math.fma
module attributes {bsr.target = #bsr.gpu<chip = "sm_80", tf32 = true>} {
  bsr.cluster private @rounded(%a: tensor<256x512xf32>, %b: tensor<512x256xf32>) -> tensor<512x512xf32> {
    %zero = arith.constant dense<0.0> : tensor<512x512xf32>
    %c = linalg.generic {indexing_maps = [#left, #right, #out], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<256x512xf32>, tensor<512x256xf32>) outs(%zero : tensor<512x512xf32>) {
    ^bb0(%x: f32, %y: f32, %sum: f32):
      %0 = arith.mulf %x, %y : f32
      %1 = arith.addf %sum, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<512x512xf32>
    bsr.yield %c : tensor<512x512xf32>
  }
  func.func @step(%a: tensor<256x512xf32>, %b: tensor<512x256xf32>) -> tensor<512x512xf32> {
    %init = tensor.empty() : tensor<512x512xf32>
    %c = bsr.launch @rounded ins(%a, %b : tensor<256x512xf32>, tensor<512x256xf32>)
        outs(%init : tensor<512x512xf32>) -> tensor<512x512xf32>
    return %c : tensor<512x512xf32>
  }
}

// -----

// Norms of blocks of 16x16, of a tile of 64 by 64 sums, which go through shared memory: 32 lanes have a block.
// CHECK-LABEL: func private @scores(
// CHECK-SAME:    %[[SCORES:[a-z0-9]+]]: memref<4x3xf32>)
// CHECK-NOT:     gpu.launch
// CHECK:         gpu.launch
// CHECK-NOT:     gpu.launch
// CHECK:           nvvm.cp.async.wait.group
// CHECK:           nvvm.mma.sync
// CHECK:           gpu.barrier
// CHECK-COUNT-8:   llvm.store %{{.*}} {alignment = 8 : i64} : vector<2xf32>, !llvm.ptr<3>
// CHECK:           gpu.barrier
// CHECK:           scf.for
// CHECK:             math.absf
// CHECK:             arith.maximumf
// CHECK-COUNT-5:     gpu.shuffle xor
// CHECK:             memref.store %{{.*}}, %[[SCORES]]
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @scores(%a: tensor<2x64x24xbf16>, %b: tensor<2x48x24xbf16>) -> tensor<4x3xf32> {
    %0 = bsr.block_scores linf %a, %b feature_dim = 1 : tensor<2x64x24xbf16>, tensor<2x48x24xbf16> -> tensor<4x3xf32>
    bsr.yield %0 : tensor<4x3xf32>
  }
  func.func @step(%a: tensor<2x64x24xbf16>, %b: tensor<2x48x24xbf16>) -> tensor<4x3xf32> {
    %e = tensor.empty() : tensor<4x3xf32>
    %y = bsr.launch @scores ins(%a, %b : tensor<2x64x24xbf16>, tensor<2x48x24xbf16>) outs(%e : tensor<4x3xf32>) -> tensor<4x3xf32>
    return %y : tensor<4x3xf32>
  }
}
