// RUN: sparse-opt %s --bsr-lower-copies | FileCheck %s

// CHECK-LABEL: func @contiguous
// CHECK-NOT:     scf
// CHECK-COUNT-2: memref.copy
// CHECK-NEXT:    return
func.func @contiguous(%x: memref<4x4xf32>, %y: memref<4x4xf32>,
                      %tail: memref<2x4xf32, strided<[4, 1], offset: 8>>, %z: memref<2x4xf32>) {
  memref.copy %x, %y : memref<4x4xf32> to memref<4x4xf32>
  memref.copy %tail, %z : memref<2x4xf32, strided<[4, 1], offset: 8>> to memref<2x4xf32>
  return
}

// The two inner dimensions are contiguous in both.
// CHECK-LABEL: func @panels
// CHECK-SAME:    %[[X:.*]]: memref<2x3x4x5xf32>, %[[Y:.*]]: memref
// CHECK-NEXT:    scf.forall (%[[I:.*]], %[[J:.*]]) in (2, 3) {
// CHECK-NEXT:      %[[FROM:.*]] = memref.subview %[[X]][%[[I]], %[[J]], 0, 0] [1, 1, 4, 5] [1, 1, 1, 1]
// CHECK-NEXT:      %[[TO:.*]] = memref.subview %[[Y]][%[[I]], %[[J]], 0, 0] [1, 1, 4, 5] [1, 1, 1, 1]
// CHECK-NEXT:      memref.copy %[[FROM]], %[[TO]]
func.func @panels(%x: memref<2x3x4x5xf32>, %y: memref<2x3x4x5xf32, strided<[120, 40, 5, 1], offset: 20>>) {
  memref.copy %x, %y : memref<2x3x4x5xf32> to memref<2x3x4x5xf32, strided<[120, 40, 5, 1], offset: 20>>
  return
}

// One level of parallel loops is enough.
// CHECK-LABEL: func @nested
// CHECK:         scf.forall
// CHECK-NOT:     scf.forall
// CHECK:         linalg.generic
func.func @nested(%x: memref<4x4xf32, strided<[8, 1]>>, %y: memref<4x4xf32>) {
  scf.forall (%i) in (2) {
    memref.copy %x, %y : memref<4x4xf32, strided<[8, 1]>> to memref<4x4xf32>
  }
  return
}

// Nothing to copy at once.
// CHECK-LABEL: func @strided
// CHECK-NOT:     memref.copy
// CHECK:         linalg.generic
func.func @strided(%x: memref<4x4xf32, strided<[8, 2]>>, %y: memref<4x4xf32>) {
  memref.copy %x, %y : memref<4x4xf32, strided<[8, 2]>> to memref<4x4xf32>
  return
}

// A dimension of one entry may have any stride: neither the copy nor a part of
// it goes by it.
// CHECK-LABEL: func @unit(
// CHECK-SAME:    %[[X:.*]]: memref<4x1x8xf32>, %[[Y:.*]]: memref
// CHECK:         %[[FROM:.*]] = memref.subview %[[X]][0, 0, 0] [4, 1, 8] [1, 1, 1] : memref<4x1x8xf32> to memref<4x8xf32
// CHECK:         %[[TO:.*]] = memref.subview %[[Y]][0, 0, 0] [4, 1, 8] [1, 1, 1] : {{.*}} to memref<4x8xf32, strided<[8, 1]>>
// CHECK:         memref.copy %[[FROM]], %[[TO]]
// CHECK:         return
func.func @unit(%x: memref<4x1x8xf32>, %y: memref<4x1x8xf32, strided<[8, 16, 1]>>) {
  memref.copy %x, %y : memref<4x1x8xf32> to memref<4x1x8xf32, strided<[8, 16, 1]>>
  return
}

// CHECK-LABEL: func @unit_in_part(
// CHECK:         scf.forall (%[[I:.*]]) in (5) {
// CHECK:           memref.copy %{{.*}} : memref<1x4x8xf32, strided<[32, 8, 1], offset: ?>> to memref<1x4x8xf32, strided<[64, 8, 1], offset: ?>>
func.func @unit_in_part(%x: memref<5x4x1x8xf32>, %y: memref<5x4x1x8xf32, strided<[64, 8, 16, 1]>>) {
  memref.copy %x, %y : memref<5x4x1x8xf32> to memref<5x4x1x8xf32, strided<[64, 8, 16, 1]>>
  return
}
