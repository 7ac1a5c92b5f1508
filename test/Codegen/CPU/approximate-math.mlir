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

// What has no polynomial that is exact enough is left for the C library.
// CHECK-LABEL: func @left
// CHECK:         math.atan
// CHECK:         math.cbrt
func.func @left(%x: vector<16xf32>) -> vector<16xf32> {
  %0 = math.atan %x : vector<16xf32>
  %1 = math.cbrt %0 : vector<16xf32>
  return %1 : vector<16xf32>
}

// The library's sine is called where a lane is far from zero.
// CHECK-LABEL: func @sin
// CHECK:         arith.extf %{{.*}} : vector<16xf32> to vector<16xf64>
// CHECK:         %[[NEAR:.*]] = vector.reduction <and>
// CHECK:         scf.if %[[NEAR]]
// CHECK:         } else {
// CHECK-NEXT:      %[[FAR:.*]] = math.sin
// CHECK-NEXT:      arith.select %{{.*}}, %{{.*}}, %[[FAR]]
func.func @sin(%x: vector<16xf32>) -> vector<16xf32> {
  %0 = math.sin %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: func @cos
// CHECK-NOT:     vector
// CHECK:         math.cos
func.func @cos(%x: f32) -> f32 {
  %0 = math.cos %x : f32
  return %0 : f32
}

// A power with an integer that is a value.
// CHECK-LABEL: func @fpowi
// CHECK:         math.powf %{{.*}} : vector<16xf64>
// CHECK:         math.copysign
func.func @fpowi(%x: vector<16xf32>, %n: vector<16xi32>) -> vector<16xf32> {
  %0 = math.fpowi %x, %n : vector<16xf32>, vector<16xi32>
  return %0 : vector<16xf32>
}

// CHECK-LABEL: func @isinf
// CHECK:         arith.cmpf oeq
func.func @isinf(%x: vector<16xf16>) -> vector<16xi1> {
  %0 = math.isinf %x : vector<16xf16>
  return %0 : vector<16xi1>
}

// CHECK-LABEL: func @f64
// CHECK:         math.exp
// CHECK-NOT:     math.log1p
// CHECK:         math.log
func.func @f64(%x: f64) -> f64 {
  %0 = math.exp %x : f64
  %1 = math.log1p %0 : f64
  return %1 : f64
}
