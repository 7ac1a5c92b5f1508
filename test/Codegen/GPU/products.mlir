// Products of 16-bit numbers with blocks of 16, 32 or 64 run on tensor cores: a kernel makes a plan of the
// pattern, another one follows it.
//
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 30>

// 20 block columns are two groups of 16. A chunk has up to 4 slabs and 40 blocks; a group has at most 3 chunks.
// CHECK-LABEL: func private @product_plan(
// CHECK-SAME:    %[[PTR:.*]]: memref<21xi32>, %[[IDX:.*]]: memref<30xi32>, %[[SLOT:.*]]: memref<30xi32>,
// CHECK-SAME:    %[[CHUNKS:.*]]: memref<2xi32>, %[[SLABS:.*]]: memref<2x12xi32>, %[[WORDS:.*]]: memref<2x48xi32>,
// CHECK-SAME:    %[[SLOTS:.*]]: memref<2x120xi32>, %[[COSTS:.*]]: memref<2xi32>, %[[ITEMS:.*]]: memref<4x4xi32>,
// CHECK-SAME:    %[[GROUPS:.*]]: memref<2x4xi32>) attributes {bsr.kind = "plan"}
// Two integers for each of 4 positions along a line.
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c256, {{[^)]+}}) dynamic_shared_memory_size %c32_i32
// CHECK:           memref.store %{{.*}}, %[[CHUNKS]]
// CHECK:           memref.store %{{.*}}, %[[COSTS]]
// CHECK:           memref.store %{{.*}}, %[[WORDS]]
// CHECK:           memref.store %{{.*}}, %[[SLOTS]]
// CHECK:           gpu.terminator
// A warp decides which groups are cut.
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c32, {{[^)]+}}) dynamic_shared_memory_size %c128_i32
// CHECK:           memref.load %[[COSTS]]
// CHECK:           memref.store %{{.*}}, %[[ITEMS]]
// CHECK:           memref.store %{{.*}}, %[[GROUPS]]
// CHECK:           gpu.terminator
// The product has all of these arrays.
// CHECK-LABEL: func private @product(
// CHECK-SAME:    %{{.*}}: memref<30x16x16xbf16>, %{{.*}}: memref<64x200xbf16>, %{{.*}}: memref<2xi32>, {{.*}}, %{{.*}}: memref<4x4xi32>,
// CHECK-SAME:    %{{.*}}: memref<2x4xi32>, %{{.*}}: memref<320x200xbf16>, %[[SUMS:.*]]: memref<2x2x32x256x4xf32>)
// Groups, parts, and tiles of 128 tokens; four stages of 4 slabs of 16 x 136 elements and 40 blocks of 16 x 24.
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c4, %{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c256, {{[^)]+}}) dynamic_shared_memory_size %c192512_i32
// CHECK:           nvvm.cp.async.shared.global
// CHECK:           scf.for {{.*}} iter_args
// CHECK:             nvvm.cp.async.wait.group 2
// CHECK-NEXT:        gpu.barrier
// CHECK:             scf.for {{.*}} iter_args
// CHECK-COUNT-8:       nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// A block has inputs as rows: it is transposed on the way.
// CHECK:               nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK-COUNT-16:      nvvm.mma.sync
// The warp's other line.
// CHECK:             scf.for {{.*}} iter_args
// CHECK-COUNT-16:      nvvm.mma.sync
// CHECK-NOT:           nvvm.mma.sync
// A part leaves its sums.
// CHECK:           vector.store %{{.*}}, %[[SUMS]]{{.*}} {alignment = 16 : i64} : memref<2x2x32x256x4xf32>, vector<4xf32>
// CHECK:           vector.store %{{.*}}, %{{.*}} {alignment = 8 : i64} : memref<1x320x50x4xbf16>, vector<4xbf16>
// CHECK:           gpu.terminator
// What they are added to.
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c2, %{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1)
// CHECK-NOT:       nvvm
// CHECK:           arith.addf
// CHECK-NOT:       nvvm
// CHECK:           vector.store %{{.*}}, %{{.*}} {alignment = 8 : i64} : memref<1x320x50x4xbf16>, vector<4xbf16>
module attributes {bsr.target = #bsr.gpu<chip = "sm_90", tile_outputs = 256, tile_tokens = 128>} {
  bsr.cluster private @product(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<64x200xbf16>) -> tensor<320x200xbf16> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<30x16x16xbf16>, tensor<64x200xbf16> -> tensor<320x200xbf16>
    bsr.yield %y : tensor<320x200xbf16>
  }
  func.func @step(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<64x200xbf16>) -> tensor<320x200xbf16> {
    %init = tensor.empty() : tensor<320x200xbf16>
    %y = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<30x16x16xbf16>, tensor<64x200xbf16>)
        outs(%init : tensor<320x200xbf16>) -> tensor<320x200xbf16>
    return %y : tensor<320x200xbf16>
  }
}

// -----

!pattern = !bsr.pattern<128x192, block = 64x64, slots = 5>

// The other view, and blocks as they are.
// CHECK-LABEL: func private @transposed(
// CHECK-SAME:    %{{.*}}: memref<3xi32>, %{{.*}}: memref<5xi32>, %{{.*}}: memref<5xi32>, %{{.*}}: memref<5x64x64xf16>,
// CHECK:           nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<row>
// CHECK:           nvvm.mma.sync {{.*}}vector<2xf16>
// CHECK:           vector.store %{{.*}}, %{{.*}} {alignment = 8 : i64} : memref<6x128x16x2xf32>, vector<2xf32>
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  bsr.cluster private @transposed(%p: !pattern, %w: tensor<5x64x64xf16>, %dy: tensor<2x3x192x32xf16>) -> tensor<2x3x128x32xf32> {
    %dx = bsr.spmm %p, %w, %dy transpose feature_dim = 2
        : !pattern, tensor<5x64x64xf16>, tensor<2x3x192x32xf16> -> tensor<2x3x128x32xf32>
    bsr.yield %dx : tensor<2x3x128x32xf32>
  }
  func.func @step(%p: !pattern, %w: tensor<5x64x64xf16>, %dy: tensor<2x3x192x32xf16>) -> tensor<2x3x128x32xf32> {
    %init = tensor.empty() : tensor<2x3x128x32xf32>
    %dx = bsr.launch @transposed ins(%p, %w, %dy : !pattern, tensor<5x64x64xf16>, tensor<2x3x192x32xf16>)
        outs(%init : tensor<2x3x128x32xf32>) -> tensor<2x3x128x32xf32>
    return %dx : tensor<2x3x128x32xf32>
  }
}

// -----

!pattern = !bsr.pattern<96x1088, block = 32x32, slots = 20>

// 3 block rows of 34 blocks are 2 groups of 2, of which one is not full. A group has at most one window, of 34 positions
// and 40 blocks, whose 3 steps of 32 tokens are one thread block's.
// CHECK-LABEL: func private @gradient_plan(
// CHECK-SAME:    %[[PTR:.*]]: memref<4xi32>, %[[IDX:.*]]: memref<20xi32>, %[[SLOT:.*]]: memref<20xi32>,
// CHECK-SAME:    %[[COUNTS:.*]]: memref<2xi32>, %[[SIZES:.*]]: memref<2x2xi32>, %[[POSITIONS:.*]]: memref<2x34xi32>,
// CHECK-SAME:    %[[WORDS:.*]]: memref<2x40xi32>, %{{.*}}: memref<2x2xi32>, %{{.*}}: memref<2x2xi32>,
// CHECK-SAME:    %[[PLACES:.*]]: memref<3x34xi32>) attributes {bsr.kind = "plan"}
// Four words for each of 34 positions and 2 more.
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c256, {{[^)]+}}) dynamic_shared_memory_size %c576_i32
// CHECK:           memref.store %{{.*}}, %[[COUNTS]]
// CHECK:           memref.store %{{.*}}, %[[POSITIONS]]
// CHECK:           memref.store %{{.*}}, %[[WORDS]]
// CHECK:           memref.store %{{.*}}, %[[PLACES]]
// CHECK:           gpu.terminator
// CHECK-LABEL: func private @gradient(
// CHECK-SAME:    %[[A:.*]]: memref<96x72xbf16>, %[[B:.*]]: memref<1088x72xbf16>, {{.*}}, %[[PLACES:.*]]: memref<3x34xi32>,
// CHECK-SAME:    %[[W:.*]]: memref<20x32x32xf32>, %[[PARTS:.*]]: memref<2x1x40x8x32x4xf32>)
// Three stages of 64 rows and 34 x 32 columns.
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c256, {{[^)]+}}) dynamic_shared_memory_size %c221184_i32
// The windows of the thread block, and their steps.
// CHECK:           scf.for
// CHECK:             nvvm.cp.async.shared.global
// CHECK:             scf.for {{.*}} iter_args
// CHECK:               nvvm.cp.async.wait.group 1
// CHECK-NEXT:          gpu.barrier
// Five blocks of a warp, tokens side by side in both operands; rows of the first, and then of others where the line changes.
// CHECK-NOT:           mma_layout<col>}
// CHECK:               scf.if
// CHECK-COUNT-4:         nvvm.ldmatrix
// CHECK-COUNT-16:        nvvm.mma.sync
// CHECK:               scf.if
// CHECK:                 scf.if
// CHECK-COUNT-4:           nvvm.ldmatrix
// CHECK:                 else
// CHECK-COUNT-16:        nvvm.mma.sync
// CHECK-COUNT-48:        nvvm.mma.sync
// CHECK-NOT:           nvvm.mma.sync
// CHECK:             vector.store %{{.*}}, %[[PARTS]]{{.*}} {alignment = 16 : i64}
// What is there of a block, in order: 16 rows a thread block.
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c3, %{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1)
// CHECK:           memref.load %[[SLOT]]
// CHECK:           memref.load %[[PLACES]]
// CHECK:           scf.for
// CHECK:             arith.addf
// CHECK:           vector.store %{{.*}} {alignment = 8 : i64} : memref<20x32x16x2xf32>, vector<2xf32>
module attributes {bsr.target = #bsr.gpu<tile_outputs = 64>} {
  bsr.cluster private @gradient(%p: !pattern, %a: tensor<96x72xbf16>, %b: tensor<1088x72xbf16>) -> tensor<20x32x32xf32> {
    %g = bsr.sddmm %p, %a, %b feature_dim = 0 : !pattern, tensor<96x72xbf16>, tensor<1088x72xbf16> -> tensor<20x32x32xf32>
    bsr.yield %g : tensor<20x32x32xf32>
  }
  func.func @step(%p: !pattern, %a: tensor<96x72xbf16>, %b: tensor<1088x72xbf16>) -> tensor<20x32x32xf32> {
    %init = tensor.empty() : tensor<20x32x32xf32>
    %g = bsr.launch @gradient ins(%p, %a, %b : !pattern, tensor<96x72xbf16>, tensor<1088x72xbf16>)
        outs(%init : tensor<20x32x32xf32>) -> tensor<20x32x32xf32>
    return %g : tensor<20x32x32xf32>
  }
}

// -----

!pattern = !bsr.pattern<192x384, block = 64x64, slots = 12>

// Two thread blocks share a window of 2 block rows: 16 blocks of 64x64 at most. Both batches have 3 steps of 32 tokens.
// CHECK-LABEL: func private @shared_gradient_plan(
// CHECK-SAME:    %[[COPIES:[a-z0-9]+]]: memref<2x32xi32>, %[[FREE:[a-z0-9]+]]: memref<2x4xi32>)
// CHECK:         gpu.launch blocks({{[^)]+}}) in (%{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1)
// CHECK:           memref.store %{{.*}}, %[[FREE]]
// CHECK:           memref.store %{{.*}}, %[[COPIES]]
// CHECK:           gpu.terminator
// CHECK-LABEL: func private @shared_gradient(
// CHECK-SAME:    %[[PARTS:[a-z0-9]+]]: memref<12x2x8x32x32x4xf32>)
// CHECK-COUNT-2: nvgpu.tma.create.descriptor %{{.*}} box[%c64, %c32]
// Six clusters of 8 warps, and the warp that copies; a stage has 16 places for the rows of 2 lines and for columns.
// CHECK:         gpu.launch clusters({{[^)]+}}) in (%{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1)
// CHECK-SAME:      blocks({{[^)]+}}) in (%{{[^ ]+}} = %c12, %{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c288, {{[^)]+}}) dynamic_shared_memory_size %c197680_i32
// A stage is empty when all warps that multiply have arrived, of both thread blocks.
// CHECK:           nvvm.mbarrier.init %{{.*}}, %c1_i32
// CHECK:           nvvm.mbarrier.init %{{.*}}, %c16_i32
// Four blocks of a warpgroup, of which two whose columns lie side by side are one product.
// CHECK:           scf.for
// CHECK:             scf.for
// CHECK-COUNT-4:       nvvm.wgmma.mma_async {{.*}} <m = 64, n = 128, k = 16>
// CHECK-COUNT-8:       nvvm.wgmma.mma_async {{.*}} <m = 64, n = 64, k = 16>
// CHECK-NOT:           nvvm.wgmma.mma_async
// CHECK:               nvvm.mbarrier.arrive
// CHECK:             vector.store %{{.*}}, %[[PARTS]]{{.*}} {alignment = 16 : i64}
// CHECK-COUNT-2:       nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} multicast_mask
module attributes {bsr.target = #bsr.gpu<tile_outputs = 128, share_outputs = 2>} {
  bsr.cluster private @shared_gradient(%p: !pattern, %a: tensor<2x192x72xbf16>, %b: tensor<2x384x72xbf16>) -> tensor<12x64x64xbf16> {
    %g = bsr.sddmm %p, %a, %b feature_dim = 1 : !pattern, tensor<2x192x72xbf16>, tensor<2x384x72xbf16> -> tensor<12x64x64xbf16>
    bsr.yield %g : tensor<12x64x64xbf16>
  }
  func.func @step(%p: !pattern, %a: tensor<2x192x72xbf16>, %b: tensor<2x384x72xbf16>) -> tensor<12x64x64xbf16> {
    %init = tensor.empty() : tensor<12x64x64xbf16>
    %g = bsr.launch @shared_gradient ins(%p, %a, %b : !pattern, tensor<2x192x72xbf16>, tensor<2x384x72xbf16>)
        outs(%init : tensor<12x64x64xbf16>) -> tensor<12x64x64xbf16>
    return %g : tensor<12x64x64xbf16>
  }
}

// -----

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 30>

// Rows that do not begin at multiples of 16 bytes are plain kernels'.
// CHECK-LABEL: func private @ragged(
// CHECK-NOT:     gpu.launch
// CHECK:         scf.forall
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @ragged(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<64x20xbf16>) -> tensor<320x20xbf16> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<30x16x16xbf16>, tensor<64x20xbf16> -> tensor<320x20xbf16>
    bsr.yield %y : tensor<320x20xbf16>
  }
  func.func @step(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<64x20xbf16>) -> tensor<320x20xbf16> {
    %init = tensor.empty() : tensor<320x20xbf16>
    %y = bsr.launch @ragged ins(%p, %w, %x : !pattern, tensor<30x16x16xbf16>, tensor<64x20xbf16>)
        outs(%init : tensor<320x20xbf16>) -> tensor<320x20xbf16>
    return %y : tensor<320x20xbf16>
  }
}

// -----

!pattern = !bsr.pattern<256x320, block = 64x64, slots = 9>

// By warpgroups: the plan has the slots of 4 lines of a cluster, 2 of each thread block, by line.
// CHECK-LABEL: func private @shared_plan(
// CHECK:         gpu.launch blocks
// CHECK-LABEL: func private @shared(
// CHECK-SAME:    %[[PTR:.*]]: memref<6xi32>, %[[IDX:.*]]: memref<9xi32>, %[[SLOT:.*]]: memref<9xi32>,
// CHECK-SAME:    %[[W:.*]]: memref<9x64x64xbf16>, %[[X:.*]]: memref<256x520xbf16>,
// CHECK-SAME:    %[[CHUNKS:.*]]: memref<2xi32>, %[[SLABS:.*]]: memref<2x4xi32>, %[[SLOTS:.*]]: memref<2x16xi32>, %[[Y:.*]]: memref<320x520xbf16>)
// Boxes of 64 tokens of a slab, and half of the rows of a block of the weight.
// CHECK:         %[[XROWS:.*]] = memref.cast %[[X]]
// CHECK:         %[[XMAP:.*]] = nvgpu.tma.create.descriptor %[[XROWS]] box[%c64{{.*}}, %c64{{.*}}] : memref<*xbf16> -> <tensor = memref<64x64xbf16, 3>, swizzle = swizzle_128b,
// CHECK:         %[[XP:.*]] = builtin.unrealized_conversion_cast %[[XMAP]]
// CHECK:         %[[WMAP:.*]] = nvgpu.tma.create.descriptor %{{.*}} box[%c32{{.*}}, %c64{{.*}}] : memref<*xbf16> -> <tensor = memref<32x64xbf16, 3>, swizzle = swizzle_128b,
// CHECK:         %[[WP:.*]] = builtin.unrealized_conversion_cast %[[WMAP]]
// Of 3 tiles of 256 tokens, the fourth is computed for nothing.
// CHECK:         gpu.launch clusters({{[^)]+}}) in (%{{[^ ]+}} = %c2, %{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1)
// CHECK-SAME:      blocks({{[^)]+}}) in (%{{[^ ]+}} = %c4, %{{[^ ]+}} = %c4, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c288, {{[^)]+}}) dynamic_shared_memory_size %c197696_i32
// Four thread blocks, of 8 warps each, empty a stage together.
// CHECK:           nvvm.mbarrier.init %{{.*}}, %c1_i32
// CHECK:           nvvm.mbarrier.init %{{.*}}, %c32_i32
// CHECK:           nvvm.fence.mbarrier.init
// CHECK:           nvvm.cluster.arrive
// CHECK-NEXT:      nvvm.cluster.wait
// CHECK:             nvvm.mbarrier.try_wait
// CHECK:             nvvm.wgmma.fence.aligned
// Descriptors have the 18 bits of an address that lie in a thread block.
// CHECK:             arith.andi %{{.*}}, %c262143_i32
// CHECK-COUNT-4:     nvvm.wgmma.mma_async {{.*}} <m = 64, n = 256, k = 16>, D[<f32>, <one>], A[<bf16>, <one>, <col>], B[<bf16>, <one>, <row>]
// CHECK:             nvvm.wgmma.commit.group.sync.aligned
// CHECK-NEXT:        nvvm.wgmma.wait.group.sync.aligned 0
// CHECK:             nvvm.mbarrier.arrive %{{.*}} : !llvm.ptr<7>
// CHECK:           vector.store %{{.*}}, %{{.*}} {alignment = 8 : i64} : memref<1x320x130x4xbf16>, vector<4xbf16>
// Four boxes of a slab are two of each of two thread blocks.
// CHECK:             nvvm.mbarrier.arrive.expect_tx
// CHECK-COUNT-2:     nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[XP]], %{{.*}} multicast_mask =
// CHECK-COUNT-2:     nvvm.cp.async.bulk.tensor.shared.cluster.global %{{.*}}, %[[WP]], %{{.*}} multicast_mask =
// CHECK:           nvvm.cluster.wait
module attributes {bsr.target = #bsr.gpu<tile_outputs = 128, tile_tokens = 256, share_outputs = 2, share_tokens = 2>} {
  bsr.cluster private @shared(%p: !pattern, %w: tensor<9x64x64xbf16>, %x: tensor<256x520xbf16>) -> tensor<320x520xbf16> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<9x64x64xbf16>, tensor<256x520xbf16> -> tensor<320x520xbf16>
    bsr.yield %y : tensor<320x520xbf16>
  }
  func.func @step(%p: !pattern, %w: tensor<9x64x64xbf16>, %x: tensor<256x520xbf16>) -> tensor<320x520xbf16> {
    %init = tensor.empty() : tensor<320x520xbf16>
    %y = bsr.launch @shared ins(%p, %w, %x : !pattern, tensor<9x64x64xbf16>, tensor<256x520xbf16>)
        outs(%init : tensor<320x520xbf16>) -> tensor<320x520xbf16>
    return %y : tensor<320x520xbf16>
  }
}

// -----

!pattern = !bsr.pattern<64x640, block = 16x16, slots = 16>

// Warps multiply what a warp of its own copies, 64 tokens of a position or a block at a time; activations go to those of
// two thread blocks of 16 lines each that store a block there.
// CHECK-LABEL: func private @boxes(
// CHECK:         gpu.launch clusters({{[^)]+}}) in (%{{[^ ]+}} = %c2, %{{[^ ]+}} = %c1, %{{[^ ]+}} = %c1)
// CHECK-SAME:      threads({{[^)]+}}) in (%{{[^ ]+}} = %c384,
// Each of 8 warps of two thread blocks says when a stage is empty.
// CHECK:           nvvm.mbarrier.init %{{.*}}, %c1_i32
// CHECK:           nvvm.mbarrier.init %{{.*}}, %c16_i32
// CHECK:           nvvm.cluster.wait
// Those that copy leave registers to those that multiply.
// CHECK:             nvvm.setmaxregister increase 232
// CHECK:             nvvm.mbarrier.try_wait
// CHECK:             scf.for {{.*}} iter_args
// CHECK-COUNT-8:       nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK:               nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK-COUNT-16:      nvvm.mma.sync
// CHECK:             nvvm.mbarrier.arrive %{{.*}} : !llvm.ptr<7>
// CHECK:           vector.store
// CHECK:             nvvm.setmaxregister decrease 40
// The lines of one thread block are those of half of a warp's lanes.
// CHECK:             gpu.shuffle xor
// CHECK:             nvvm.mbarrier.arrive.expect_tx
// CHECK:             nvvm.cp.async.bulk.tensor.shared.cluster.global {{.*}} multicast_mask =
// CHECK:             nvvm.cp.async.bulk.tensor.shared.cluster.global
// CHECK-NOT:         multicast_mask
// CHECK:           nvvm.cluster.wait
module attributes {bsr.target = #bsr.gpu<tile_outputs = 256, tile_tokens = 128, share_outputs = 2>} {
  bsr.cluster private @boxes(%p: !pattern, %w: tensor<16x16x16xbf16>, %x: tensor<64x520xbf16>) -> tensor<640x520xbf16> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<16x16x16xbf16>, tensor<64x520xbf16> -> tensor<640x520xbf16>
    bsr.yield %y : tensor<640x520xbf16>
  }
  func.func @step(%p: !pattern, %w: tensor<16x16x16xbf16>, %x: tensor<64x520xbf16>) -> tensor<640x520xbf16> {
    %init = tensor.empty() : tensor<640x520xbf16>
    %y = bsr.launch @boxes ins(%p, %w, %x : !pattern, tensor<16x16x16xbf16>, tensor<64x520xbf16>)
        outs(%init : tensor<640x520xbf16>) -> tensor<640x520xbf16>
    return %y : tensor<640x520xbf16>
  }
}

// -----

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 80>

// Where all blocks may be stored, each slab is asked whether a line has a block there.
// CHECK-LABEL: func private @scanned(
// CHECK:           nvvm.cp.async.wait.group
// CHECK:             scf.if
// CHECK:               nvvm.ldmatrix
// CHECK-COUNT-16:      nvvm.mma.sync
// CHECK:             scf.if
// CHECK:               nvvm.ldmatrix
// CHECK-COUNT-16:      nvvm.mma.sync
module attributes {bsr.target = #bsr.gpu<chip = "sm_80", tile_outputs = 256, tile_tokens = 128>} {
  bsr.cluster private @scanned(%p: !pattern, %w: tensor<80x16x16xbf16>, %x: tensor<64x200xbf16>) -> tensor<320x200xbf16> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<80x16x16xbf16>, tensor<64x200xbf16> -> tensor<320x200xbf16>
    bsr.yield %y : tensor<320x200xbf16>
  }
  func.func @step(%p: !pattern, %w: tensor<80x16x16xbf16>, %x: tensor<64x200xbf16>) -> tensor<320x200xbf16> {
    %init = tensor.empty() : tensor<320x200xbf16>
    %y = bsr.launch @scanned ins(%p, %w, %x : !pattern, tensor<80x16x16xbf16>, tensor<64x200xbf16>)
        outs(%init : tensor<320x200xbf16>) -> tensor<320x200xbf16>
    return %y : tensor<320x200xbf16>
  }
}

// -----

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 30>

// f32 rounded to tf32: inputs are rows in both operands, whose words are loaded one by one.
// CHECK-LABEL: func private @rounded(
// CHECK:           nvvm.cp.async.shared.global
// CHECK:             llvm.load %{{.*}} : !llvm.ptr<3> -> f32
// CHECK-NEXT:        nvvm.convert.float.to.tf32 %{{.*}} {rnd = #nvvm.fp_rnd_mode<rna>}
// CHECK-NOT:         nvvm.ldmatrix
// CHECK:             nvvm.mma.sync {{.*}} shape = #nvvm.shape<m = 16, n = 8, k = 8>
module attributes {bsr.target = #bsr.gpu<tf32 = true>} {
  bsr.cluster private @rounded(%p: !pattern, %w: tensor<30x16x16xf32>, %x: tensor<64x200xf32>) -> tensor<320x200xf32> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<30x16x16xf32>, tensor<64x200xf32> -> tensor<320x200xf32>
    bsr.yield %y : tensor<320x200xf32>
  }
  func.func @step(%p: !pattern, %w: tensor<30x16x16xf32>, %x: tensor<64x200xf32>) -> tensor<320x200xf32> {
    %init = tensor.empty() : tensor<320x200xf32>
    %y = bsr.launch @rounded ins(%p, %w, %x : !pattern, tensor<30x16x16xf32>, tensor<64x200xf32>)
        outs(%init : tensor<320x200xf32>) -> tensor<320x200xf32>
    return %y : tensor<320x200xf32>
  }
}

// -----

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 30>

// Two heads are the features of one operand: its rows lie in memory as those of the buffer do.
// CHECK-LABEL: func private @heads(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<3x2x32x200xbf16>,
// CHECK:         gpu.launch
// CHECK:           builtin.unrealized_conversion_cast %[[X]] :
// CHECK:         nvvm.cp.async.shared.global
// CHECK:         nvvm.mma.sync
module attributes {bsr.target = #bsr.gpu<chip = "sm_90", tile_outputs = 256, tile_tokens = 128>} {
  bsr.cluster private @heads(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<3x2x32x200xbf16>) -> tensor<3x320x200xbf16> {
    %merged = tensor.collapse_shape %x [[0], [1, 2], [3]] : tensor<3x2x32x200xbf16> into tensor<3x64x200xbf16>
    %y = bsr.spmm %p, %w, %merged feature_dim = 1
        : !pattern, tensor<30x16x16xbf16>, tensor<3x64x200xbf16> -> tensor<3x320x200xbf16>
    bsr.yield %y : tensor<3x320x200xbf16>
  }
  func.func @step(%p: !pattern, %w: tensor<30x16x16xbf16>, %x: tensor<3x2x32x200xbf16>) -> tensor<3x320x200xbf16> {
    %init = tensor.empty() : tensor<3x320x200xbf16>
    %y = bsr.launch @heads ins(%p, %w, %x : !pattern, tensor<30x16x16xbf16>, tensor<3x2x32x200xbf16>)
        outs(%init : tensor<3x320x200xbf16>) -> tensor<3x320x200xbf16>
    return %y : tensor<3x320x200xbf16>
  }
}
