// RUN: sparse-opt %s --bsr-expand-bf16 | FileCheck %s

// CHECK-LABEL: func @truncf
// CHECK-NOT:     arith.truncf
// CHECK:         arith.trunci %{{.*}} : vector<16xi32> to vector<16xi16>
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
