// RUN: sparse-opt %s --bsr-expand-powers | FileCheck %s

// What it computes, test/Integration/gpu.test compares.

// CHECK-LABEL: func @single(
// CHECK-SAME:    %[[X:.*]]: f32, %[[Y:.*]]: f32)
// CHECK-DAG:     arith.extf %[[X]] : f32 to f64
// CHECK-DAG:     arith.extf %[[Y]] : f32 to f64
// CHECK:         arith.bitcast %{{.*}} : f64 to i64
// CHECK:         arith.divf
// CHECK-COUNT-10: math.fma
// CHECK:         math.roundeven
// CHECK-COUNT-13: math.fma
// CHECK:         math.copysign
// CHECK-NOT:     math.powf
// CHECK:         %[[Z:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK:         return %[[Z]]
func.func @single(%x: f32, %y: f32) -> f32 {
  %0 = math.powf %x, %y : f32
  return %0 : f32
}

// CHECK-LABEL: func @double(
// CHECK-NOT:     math.powf
// CHECK-NOT:     arith.truncf
// CHECK:         return
func.func @double(%x: f64, %y: f64) -> f64 {
  %0 = math.powf %x, %y : f64
  return %0 : f64
}

// Each lane by itself.
// CHECK-LABEL: func @vector(
// CHECK-COUNT-2: arith.truncf %{{.*}} : f64 to f32
// CHECK-NOT:     math.powf
// CHECK:         vector.from_elements
func.func @vector(%x: vector<2xf32>, %y: vector<2xf32>) -> vector<2xf32> {
  %0 = math.powf %x, %y : vector<2xf32>
  return %0 : vector<2xf32>
}

// CHECK-LABEL: func @half(
// CHECK:         math.powf %{{.*}} : bf16
func.func @half(%x: bf16, %y: bf16) -> bf16 {
  %0 = math.powf %x, %y : bf16
  return %0 : bf16
}
