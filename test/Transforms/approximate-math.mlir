// RUN: sparse-opt %s --bsr-approximate-math | FileCheck %s

// CHECK-LABEL: func @f32
// CHECK-NOT:     math.{{exp|tanh|log|erf|rsqrt}}
// CHECK:         return
func.func @f32(%x: vector<16xf32>, %y: f32) -> (vector<16xf32>, f32) {
  %0 = math.exp %x : vector<16xf32>
  %1 = math.tanh %0 : vector<16xf32>
  %2 = math.log %1 : vector<16xf32>
  %3 = math.erf %2 : vector<16xf32>
  %4 = math.rsqrt %y : f32
  return %3, %4 : vector<16xf32>, f32
}

// CHECK-LABEL: func @bf16
// CHECK:         arith.extf %{{.*}} : vector<16xbf16> to vector<16xf32>
// CHECK-NOT:     math.tanh
func.func @bf16(%x: vector<16xbf16>) -> vector<16xbf16> {
  %0 = math.tanh %x : vector<16xbf16>
  return %0 : vector<16xbf16>
}

// CHECK-LABEL: func @f64
// CHECK:         math.exp
func.func @f64(%x: f64) -> f64 {
  %0 = math.exp %x : f64
  return %0 : f64
}
