// RUN: sparse-opt %s --bsr-lower-copies | FileCheck %s

// CHECK-LABEL: func @contiguous
// CHECK-COUNT-2: memref.copy
func.func @contiguous(%x: memref<4x4xf32>, %y: memref<4x4xf32>,
                      %tail: memref<2x4xf32, strided<[4, 1], offset: 8>>, %z: memref<2x4xf32>) {
  memref.copy %x, %y : memref<4x4xf32> to memref<4x4xf32>
  memref.copy %tail, %z : memref<2x4xf32, strided<[4, 1], offset: 8>> to memref<2x4xf32>
  return
}

// CHECK-LABEL: func @strided
// CHECK-NOT:     memref.copy
// CHECK-COUNT-2: linalg.generic
func.func @strided(%x: memref<4x4xf32, strided<[8, 1]>>, %y: memref<4x4xf32>) {
  memref.copy %x, %y : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
  memref.copy %y, %x : memref<4x4xf32> to memref<4x4xf32, strided<[8, 1]>>
  return
}
