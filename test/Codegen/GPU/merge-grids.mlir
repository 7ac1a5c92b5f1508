// RUN: sparse-opt %s --bsr-merge-launches --canonicalize | FileCheck %s

// Launches of other grids are apart.

// CHECK-LABEL: func @grids(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<256xf32>, %[[Y:[a-z0-9]+]]: memref<256xf32>, %[[Z:[a-z0-9]+]]: memref<256xf32>)
// CHECK:         gpu.launch_func @kernels::@clear blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1) args(%[[X]] :
// CHECK-NEXT:    gpu.launch_func @kernels::@clear_2 blocks in (%c2, %c2, %c1) threads in (%c128, %c1, %c1) args(%[[Y]] : memref<256xf32>, %[[Z]] :
// CHECK-NEXT:    return
module attributes {gpu.container_module, bsr.target = #bsr.gpu<chip = "sm_80">} {
  func.func @grids(%x: memref<256xf32>, %y: memref<256xf32>, %z: memref<256xf32>) {
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c128 = arith.constant 128 : index
    gpu.launch_func @kernels::@clear blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1)
        args(%x : memref<256xf32>) {bsr.kind = "elementwise"}
    gpu.launch_func @kernels::@clear blocks in (%c2, %c1, %c1) threads in (%c128, %c1, %c1)
        args(%y : memref<256xf32>) {bsr.kind = "elementwise"}
    gpu.launch_func @kernels::@clear blocks in (%c2, %c1, %c1) threads in (%c128, %c1, %c1)
        args(%z : memref<256xf32>) {bsr.kind = "elementwise"}
    return
  }
  gpu.module @kernels {
    gpu.func @clear(%x: memref<256xf32>) kernel {
      %block = gpu.block_id x
      %thread = gpu.thread_id x
      %c128 = arith.constant 128 : index
      %0 = arith.muli %block, %c128 : index
      %1 = arith.addi %0, %thread : index
      %zero = arith.constant 0.0 : f32
      memref.store %zero, %x[%1] : memref<256xf32>
      gpu.return
    }
  }
}
