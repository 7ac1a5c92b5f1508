// RUN: sparse-opt %s --bsr-embed-manifest --split-input-file --verify-diagnostics | FileCheck %s

// What makes plans comes first, and says where in the arena they lie, 16 bytes at 64, a branch is what computes scores, and a launch has what
// it is launched on: buffers, parts of the arena, numbers, maps of matrices.
// CHECK:      llvm.mlir.global external constant @bsr_step_manifest
// CHECK-SAME: \22chip\22:\22sm_90a\22
// CHECK-SAME: \22kernels\22:{\22functions\22:3,\22launches\22:4}
// CHECK-SAME: \22launches\22:[{\22arguments\22:[{\22buffer\22:0},{\22arena\22:64}],\22block\22:[32,1,1],\22grid\22:[4,1,1],\22kernel\22:\22plan\22,\22when\22:\22pattern\22},
// CHECK-SAME: {\22arguments\22:[{\22buffer\22:1},{\22number\22:4}],\22block\22:[32,1,1],\22cluster\22:[2,1,1],\22grid\22:[4,1,1],\22kernel\22:\22add\22,\22shared\22:1024,\22when\22:\22step\22},
// CHECK-SAME: {\22arguments\22:[{\22buffer\22:1}],\22block\22:[32,1,1],\22grid\22:[4,1,1],\22kernel\22:\22score\22,\22when\22:\22scores\22},
// CHECK-SAME: {\22arguments\22:[{\22arena\22:128,\22map\22:{\22box\22:[8,32],\22shape\22:[64,32],\22swizzle\22:64,\22type\22:\22bf16\22}}],\22block\22:[32,1,1],\22grid\22:[4,1,1],\22kernel\22:\22add\22,\22when\22:\22step\22}],
// CHECK-SAME: \22plan_bytes\22:128,
module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %y: memref<4xf32> {bsr.name = "y"}, %scores: i1 {bsr.name = "scores"},
                  %arena: memref<8192xi8> {bsr.kind = "arena", bsr.name = "arena"}) attributes {bsr.arena_bytes = 8192 : i64} {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c32 = arith.constant 32 : index
    %c8 = arith.constant 8 : index
    %c128 = arith.constant 128 : index
    %shared = arith.constant 1024 : i32
    gpu.launch_func @kernels::@add clusters in (%c2, %c1, %c1) blocks in (%c4, %c1, %c1) threads in (%c32, %c1, %c1)
        dynamic_shared_memory_size %shared args(%y : memref<4xf32>, %c4 : index)
    scf.if %scores {
      gpu.launch_func @kernels::@score blocks in (%c4, %c1, %c1) threads in (%c32, %c1, %c1) args(%y : memref<4xf32>)
    }
    %m = memref.view %arena[%c128][] : memref<8192xi8> to memref<64x32xbf16>
    %u = memref.cast %m : memref<64x32xbf16> to memref<*xbf16>
    %d = nvgpu.tma.create.descriptor %u box[%c8, %c32] : memref<*xbf16> -> <tensor = memref<8x32xbf16, 3>, swizzle = swizzle_64b, l2promo = none, oob = zero, interleave = none>
    %p = builtin.unrealized_conversion_cast %d : !nvgpu.tensormap.descriptor<tensor = memref<8x32xbf16, 3>, swizzle = swizzle_64b, l2promo = none, oob = zero, interleave = none> to !llvm.ptr
    gpu.launch_func @kernels::@add blocks in (%c4, %c1, %c1) threads in (%c32, %c1, %c1) args(%p : !llvm.ptr)
    return
  }
  func.func @step_plans(%x: memref<4xf32>, %y: memref<4xf32>, %arena: memref<8192xi8>) {
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %c32 = arith.constant 32 : index
    %c64 = arith.constant 64 : index
    %plan = memref.view %arena[%c64][] : memref<8192xi8> to memref<4xi32>
    gpu.launch_func @kernels::@plan blocks in (%c4, %c1, %c1) threads in (%c32, %c1, %c1) args(%x : memref<4xf32>, %plan : memref<4xi32>)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = "">]
}

// -----

module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"}) attributes {bsr.arena_bytes = 64 : i64} {
    %c1 = arith.constant 1 : index
    %more = arith.addi %c1, %c1 : index
    // expected-error @+1 {{expected extents and numbers of a launch that are known when the step is compiled, from 0 to 2^31 - 1, but got a value of 'index'}}
    gpu.launch_func @kernels::@add blocks in (%more, %c1, %c1) threads in (%c1, %c1, %c1) args(%x : memref<4xf32>)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = "">]
}

// -----

module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  memref.global "private" constant @four : memref<4xf32> = dense<4.0>
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"}) attributes {bsr.arena_bytes = 64 : i64} {
    %c1 = arith.constant 1 : index
    %four = memref.get_global @four : memref<4xf32>
    // expected-error @+1 {{expected arguments of the step or parts of its arena as what a kernel works on, but got 'memref.get_global'}}
    gpu.launch_func @kernels::@add blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%four : memref<4xf32>)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = "">]
}

// -----

module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"}) attributes {bsr.arena_bytes = 64 : i64} {
    %c1 = arith.constant 1 : index
    %one = arith.constant 1.0 : f32
    // expected-error @+1 {{expected memory, maps and indices as arguments of a kernel, but got 'f32'}}
    gpu.launch_func @kernels::@add blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%one : f32)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = "">]
}

// -----

module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"}) attributes {bsr.arena_bytes = 64 : i64} {
    %c0 = arith.constant 0 : index
    // expected-error @+1 {{expected a step for a GPU to launch kernels and nothing else, but got 'memref.load'}}
    %first = memref.load %x[%c0] : memref<4xf32>
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = "">]
}

// -----

module attributes {bsr.target = #bsr.gpu, gpu.container_module} {
  func.func @step(%x: memref<4xf32> {bsr.name = "x"}, %arena: memref<64xi8> {bsr.kind = "arena", bsr.name = "arena"}) attributes {bsr.arena_bytes = 64 : i64} {
    %c1 = arith.constant 1 : index
    %u = memref.cast %x : memref<4xf32> to memref<?xf32>
    %m = memref.cast %u : memref<?xf32> to memref<*xf32>
    // expected-error @+1 {{expected the map of a matrix of known extents, but got one of 'memref<*xf32>'}}
    %d = nvgpu.tma.create.descriptor %m box[%c1] : memref<*xf32> -> <tensor = memref<4xf32, 3>, swizzle = none, l2promo = none, oob = zero, interleave = none>
    %p = builtin.unrealized_conversion_cast %d : !nvgpu.tensormap.descriptor<tensor = memref<4xf32, 3>, swizzle = none, l2promo = none, oob = zero, interleave = none> to !llvm.ptr
    gpu.launch_func @kernels::@add blocks in (%c1, %c1, %c1) threads in (%c1, %c1, %c1) args(%p : !llvm.ptr)
    return
  }
  gpu.binary @kernels [#gpu.object<#nvvm.target, assembly = "">]
}
