// RUN: sparse-opt %s --bsr-expand-i1 | FileCheck %s

// CHECK: memref.global constant @mask : memref<4xi8> = dense<[1, 0, 1, 1]>
memref.global constant @mask : memref<4xi1> = dense<[true, false, true, true]>

// What is in memory has bytes, what is computed with has bits.
// CHECK-LABEL: func @vectors
// CHECK-SAME:    %[[X:.*]]: memref<4x16xi8>, %[[Y:.*]]: memref<16xi8>
// CHECK:         %[[BYTES:.*]] = vector.load %[[X]]{{.*}} : memref<4x16xi8>, vector<16xi8>
// CHECK:         %[[A:.*]] = arith.cmpi ne, %[[BYTES]], %{{.*}} : vector<16xi8>
// CHECK:         %[[B:.*]] = arith.andi %[[A]], %{{.*}} : vector<16xi1>
// CHECK:         %[[WIDE:.*]] = arith.extui %[[B]] : vector<16xi1> to vector<16xi8>
// CHECK:         vector.store %[[WIDE]], %[[Y]]{{.*}} : memref<16xi8>, vector<16xi8>
func.func @vectors(%x: memref<4x16xi1>, %y: memref<16xi1>) {
  %i = arith.constant 0 : index
  %t = arith.constant dense<true> : vector<16xi1>
  %a = vector.load %x[%i, %i] : memref<4x16xi1>, vector<16xi1>
  %b = arith.andi %a, %t : vector<16xi1>
  vector.store %b, %y[%i] : memref<16xi1>, vector<16xi1>
  return
}

// A part of an arena, a constant, and numbers.
// CHECK-LABEL: func @scalars
// CHECK:         memref.view {{.*}} : memref<64xi8> to memref<4xi8>
// CHECK:         %[[FROM:.*]] = memref.get_global @mask : memref<4xi8>
// CHECK:         memref.copy %[[FROM]], %{{.*}} : memref<4xi8> to memref<4xi8>
// CHECK:         %[[BYTE:.*]] = memref.load {{.*}} : memref<4xi8>
// CHECK:         %[[BIT:.*]] = arith.cmpi ne, %[[BYTE]], %{{.*}} : i8
// CHECK:         arith.select %[[BIT]]
// CHECK:         %[[WIDE:.*]] = arith.extui %{{.*}} : i1 to i8
// CHECK:         memref.store %[[WIDE]]
func.func @scalars(%arena: memref<64xi8>, %n: f32) -> f32 {
  %i = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %x = memref.view %arena[%i][] : memref<64xi8> to memref<4xi1>
  %from = memref.get_global @mask : memref<4xi1>
  memref.copy %from, %x : memref<4xi1> to memref<4xi1>
  %a = memref.load %x[%i] : memref<4xi1>
  %r = arith.select %a, %n, %zero : f32
  %less = arith.cmpf olt, %n, %zero : f32
  memref.store %less, %x[%i] : memref<4xi1>
  return %r : f32
}
