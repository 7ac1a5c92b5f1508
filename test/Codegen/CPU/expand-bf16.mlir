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

// From and to f64 by way of f32, with one rounding to nearest.
// CHECK-LABEL: func @f64
// CHECK:         arith.extf %{{.*}} : vector<4xf32> to vector<4xf64>
// CHECK:         arith.truncf %{{.*}} : vector<4xf64> to vector<4xf32>
// CHECK:         arith.cmpf one
// CHECK:         return %{{.*}} : vector<4xi16>
func.func @f64(%x: vector<4xbf16>) -> vector<4xbf16> {
  %0 = arith.extf %x : vector<4xbf16> to vector<4xf64>
  %1 = arith.addf %0, %0 : vector<4xf64>
  %2 = arith.truncf %1 : vector<4xf64> to vector<4xbf16>
  return %2 : vector<4xbf16>
}

// CHECK-LABEL: func @fma
// CHECK:         math.fma %{{.*}} : f32
// CHECK:         return %{{.*}} : i16
func.func @fma(%x: bf16) -> bf16 {
  %0 = math.fma %x, %x, %x : bf16
  return %0 : bf16
}

// An instruction that multiplies pairs of bf16 gets them back.
// CHECK-LABEL: func @dot
// CHECK-SAME:    %[[SUM:.*]]: vector<4xf32>, %[[A:.*]]: vector<8xi16>, %{{.*}}: vector<8xi16>
// CHECK:         %[[BACK:.*]] = llvm.bitcast %[[A]] : vector<8xi16> to vector<8xbf16>
// CHECK:         x86vector.avx512.dot %[[SUM]], %[[BACK]], %{{.*}} : vector<8xbf16> -> vector<4xf32>
func.func @dot(%sum: vector<4xf32>, %a: vector<8xbf16>, %b: vector<8xbf16>) -> vector<4xf32> {
  %y = x86vector.avx512.dot %sum, %a, %b : vector<8xbf16> -> vector<4xf32>
  return %y : vector<4xf32>
}
