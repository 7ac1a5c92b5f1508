// RUN: sparse-opt %s --bsr-expand-bf16 | FileCheck %s

// CHECK-LABEL: func @truncf
// CHECK-NOT:     arith.truncf
// CHECK:         arith.trunci %{{.*}} : vector<16xi32> to vector<16xi16>
// CHECK:         return %{{.*}} : vector<16xi16>
func.func @truncf(%x: vector<16xf32>) -> vector<16xbf16> {
  %y = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  return %y : vector<16xbf16>
}

// CHECK-LABEL: func @f16
// CHECK:         arith.extf
func.func @f16(%x: f16) -> f32 {
  %y = arith.extf %x : f16 to f32
  return %y : f32
}

// Buffers, constants and what moves them.
// CHECK-LABEL: func @move
// CHECK-SAME:    %{{.*}}: memref<4xi16>, %{{.*}}: i1) -> vector<4xi16>
// CHECK-DAG:     arith.constant dense<[16256, -16384, 0, 16256]> : vector<4xi16>
// CHECK-DAG:     arith.constant dense<16320> : vector<4xi16>
// CHECK:         arith.select %{{.*}} : vector<4xi16>
// CHECK-NOT:     bf16
func.func @move(%x: memref<4xbf16>, %c: i1) -> vector<4xbf16> {
  %i = arith.constant 0 : index
  %a = arith.constant dense<[1.0, -2.0, 0.0, 1.0]> : vector<4xbf16>
  %b = arith.constant 1.5 : bf16
  %v = vector.broadcast %b : bf16 to vector<4xbf16>
  %y = arith.select %c, %a, %v : vector<4xbf16>
  vector.store %y, %x[%i] : memref<4xbf16>, vector<4xbf16>
  return %y : vector<4xbf16>
}
