// Products with sparse weights in small blocks on tensor cores, and those of f32, which multiply element by element.
//
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-panel --bsr-emit --bsr-verify-kernels --canonicalize --cse | FileCheck %s

!pattern = !bsr.pattern<64x320, block = 8x8, slots = 60>

// Two block columns are one line of 16 outputs: 20 lines, two groups of 16. Of a block of 16 outputs, two parts.
// CHECK-LABEL: func private @packed_plan(
// CHECK-SAME:    %[[CHUNKS:[a-z0-9]+]]: memref<2xi32>, %{{[a-z0-9]+}}: memref<2x{{[0-9]+}}xi32>, %{{[a-z0-9]+}}: memref<2x{{[0-9]+}}xi32>,
// CHECK:         gpu.launch
// CHECK:           memref.store %{{.*}}, %[[CHUNKS]]
// CHECK-LABEL: func private @packed(
// CHECK:         gpu.launch
// What is missing is zeros: copies have a size.
// CHECK:           nvvm.cp.async.shared.global %{{.*}}, %{{.*}}, 16, cache = cg, %{{.*}} :
// CHECK:           scf.for {{.*}} iter_args
// Two blocks a step.
// CHECK:             math.ctpop
// CHECK:             scf.for {{.*}} iter_args
// CHECK-COUNT-8:       nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK:               nvvm.ldmatrix {{.*}} layout = #nvvm.mma_layout<col>
// CHECK-COUNT-16:      nvvm.mma.sync
module attributes {bsr.target = #bsr.gpu<tile_outputs = 256, tile_tokens = 128>} {
  bsr.cluster private @packed(%p: !pattern, %w: tensor<60x8x8xbf16>, %x: tensor<64x256xbf16>) -> tensor<320x256xbf16> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<60x8x8xbf16>, tensor<64x256xbf16> -> tensor<320x256xbf16>
    bsr.yield %y : tensor<320x256xbf16>
  }
  func.func @step(%p: !pattern, %w: tensor<60x8x8xbf16>, %x: tensor<64x256xbf16>) -> tensor<320x256xbf16> {
    %init = tensor.empty() : tensor<320x256xbf16>
    %y = bsr.launch @packed ins(%p, %w, %x : !pattern, tensor<60x8x8xbf16>, tensor<64x256xbf16>)
        outs(%init : tensor<320x256xbf16>) -> tensor<320x256xbf16>
    return %y : tensor<320x256xbf16>
  }
}

// -----

!pattern = !bsr.pattern<96x64, block = 4x8, slots = 20>

// Columns of two blocks are 16 rows of the left operand; of 8 columns of the right one, 4 are rows of the block.
// CHECK-LABEL: func private @gradient(
// CHECK:         gpu.launch
// CHECK-NOT:     mma_layout<col>}
// CHECK:           nvvm.mma.sync
// CHECK:           memref.load %{{.*}} : memref<20xi32>
// CHECK:           memref.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : memref<20x4x8xf32>
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @gradient(%p: !pattern, %a: tensor<96x72xbf16>, %b: tensor<64x72xbf16>) -> tensor<20x4x8xf32> {
    %g = bsr.sddmm %p, %a, %b feature_dim = 0 : !pattern, tensor<96x72xbf16>, tensor<64x72xbf16> -> tensor<20x4x8xf32>
    bsr.yield %g : tensor<20x4x8xf32>
  }
  func.func @step(%p: !pattern, %a: tensor<96x72xbf16>, %b: tensor<64x72xbf16>) -> tensor<20x4x8xf32> {
    %init = tensor.empty() : tensor<20x4x8xf32>
    %g = bsr.launch @gradient ins(%p, %a, %b : !pattern, tensor<96x72xbf16>, tensor<64x72xbf16>)
        outs(%init : tensor<20x4x8xf32>) -> tensor<20x4x8xf32>
    return %g : tensor<20x4x8xf32>
  }
}

// -----

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 30>

// f32: a lane has 8 outputs, half of a line, and 8 tokens.
// CHECK-LABEL: func private @single(
// CHECK:         gpu.launch
// CHECK:           nvvm.cp.async.shared.global
// CHECK:           scf.for {{.*}} iter_args
// CHECK:             nvvm.cp.async.wait.group
// CHECK-NEXT:        gpu.barrier
// CHECK:             llvm.load %{{.*}} : !llvm.ptr<3> -> vector<4xf32>
// CHECK-COUNT-64:    math.fma
// CHECK-NOT:       nvvm.mma.sync
// CHECK:           vector.store %{{.*}}, %{{.*}} {alignment = 16 : i64} : memref<1x320x50x4xf32>, vector<4xf32>
module attributes {bsr.target = #bsr.gpu<tile_outputs = 256, tile_tokens = 128>} {
  bsr.cluster private @single(%p: !pattern, %w: tensor<30x16x16xf32>, %x: tensor<64x200xf32>) -> tensor<320x200xf32> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<30x16x16xf32>, tensor<64x200xf32> -> tensor<320x200xf32>
    bsr.yield %y : tensor<320x200xf32>
  }
  func.func @step(%p: !pattern, %w: tensor<30x16x16xf32>, %x: tensor<64x200xf32>) -> tensor<320x200xf32> {
    %init = tensor.empty() : tensor<320x200xf32>
    %y = bsr.launch @single ins(%p, %w, %x : !pattern, tensor<30x16x16xf32>, tensor<64x200xf32>)
        outs(%init : tensor<320x200xf32>) -> tensor<320x200xf32>
    return %y : tensor<320x200xf32>
  }
}

// -----

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 30>

// 4 lanes have the same rows and columns, and other tokens.
// CHECK-LABEL: func private @single_gradient(
// CHECK:         gpu.launch
// CHECK:           nvvm.cp.async.shared.global
// CHECK:           math.fma
// CHECK:           gpu.shuffle xor
// CHECK:           arith.addf
// CHECK:           memref.store %{{.*}}, %{{.*}}[%{{.*}}, %{{.*}}, %{{.*}}] : memref<30x16x16xf32>
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @single_gradient(%p: !pattern, %a: tensor<64x72xf32>, %b: tensor<320x72xf32>) -> tensor<30x16x16xf32> {
    %g = bsr.sddmm %p, %a, %b feature_dim = 0 : !pattern, tensor<64x72xf32>, tensor<320x72xf32> -> tensor<30x16x16xf32>
    bsr.yield %g : tensor<30x16x16xf32>
  }
  func.func @step(%p: !pattern, %a: tensor<64x72xf32>, %b: tensor<320x72xf32>) -> tensor<30x16x16xf32> {
    %init = tensor.empty() : tensor<30x16x16xf32>
    %g = bsr.launch @single_gradient ins(%p, %a, %b : !pattern, tensor<64x72xf32>, tensor<320x72xf32>)
        outs(%init : tensor<30x16x16xf32>) -> tensor<30x16x16xf32>
    return %g : tensor<30x16x16xf32>
  }
}

// -----

!pattern = !bsr.pattern<64x320, block = 16x16, slots = 30>

// f64 stays with the plain kernels, in f64.
// CHECK-LABEL: func private @double(
// CHECK-NOT:     gpu.launch
// CHECK:         scf.forall
// CHECK:           memref.store %{{.*}} : memref<320x200xf64>
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @double(%p: !pattern, %w: tensor<30x16x16xf64>, %x: tensor<64x200xf64>) -> tensor<320x200xf64> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<30x16x16xf64>, tensor<64x200xf64> -> tensor<320x200xf64>
    bsr.yield %y : tensor<320x200xf64>
  }
  func.func @step(%p: !pattern, %w: tensor<30x16x16xf64>, %x: tensor<64x200xf64>) -> tensor<320x200xf64> {
    %init = tensor.empty() : tensor<320x200xf64>
    %y = bsr.launch @double ins(%p, %w, %x : !pattern, tensor<30x16x16xf64>, tensor<64x200xf64>)
        outs(%init : tensor<320x200xf64>) -> tensor<320x200xf64>
    return %y : tensor<320x200xf64>
  }
}

// -----

!pattern = !bsr.pattern<65536x64, block = 1x1, slots = 90>

// A plan of so many positions no thread block can make.
// CHECK-LABEL: func private @long(
// CHECK-NOT:     gpu.launch
// CHECK:         scf.forall
module attributes {bsr.target = #bsr.gpu} {
  bsr.cluster private @long(%p: !pattern, %w: tensor<90x1x1xf32>, %x: tensor<65536x32xf32>) -> tensor<64x32xf32> {
    %y = bsr.spmm %p, %w, %x feature_dim = 0
        : !pattern, tensor<90x1x1xf32>, tensor<65536x32xf32> -> tensor<64x32xf32>
    bsr.yield %y : tensor<64x32xf32>
  }
  func.func @step(%p: !pattern, %w: tensor<90x1x1xf32>, %x: tensor<65536x32xf32>) -> tensor<64x32xf32> {
    %init = tensor.empty() : tensor<64x32xf32>
    %y = bsr.launch @long ins(%p, %w, %x : !pattern, tensor<90x1x1xf32>, tensor<65536x32xf32>)
        outs(%init : tensor<64x32xf32>) -> tensor<64x32xf32>
    return %y : tensor<64x32xf32>
  }
}
