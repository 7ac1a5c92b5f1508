// RUN: sparse-opt %s --bsr-expand-sines | FileCheck %s

// What it computes, test/Integration/gpu.test compares.

// CHECK-LABEL: func @single(
// CHECK-SAME:    %[[X:.*]]: f32)
// CHECK:         arith.extf %[[X]] : f32 to f64
// CHECK-COUNT-3: arith.muli
// CHECK:         arith.sitofp %{{.*}} : i64 to f64
// CHECK-COUNT-20: math.fma
// CHECK-NOT:     math.sin
// CHECK:         %[[Y:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK:         return %[[Y]]
func.func @single(%x: f32) -> f32 {
  %0 = math.sin %x : f32
  return %0 : f32
}

// CHECK-LABEL: func @lanes(
// CHECK-COUNT-2: arith.truncf %{{.*}} : f64 to f32
// CHECK-NOT:     math.cos
// CHECK:         vector.from_elements %{{.*}}, %{{.*}} : vector<2xf32>
func.func @lanes(%x: vector<2xf32>) -> vector<2xf32> {
  %0 = math.cos %x : vector<2xf32>
  return %0 : vector<2xf32>
}

// CHECK-LABEL: func @double(
// CHECK:         math.sin %{{.*}} : f64
func.func @double(%x: f64) -> f64 {
  %0 = math.sin %x : f64
  return %0 : f64
}
