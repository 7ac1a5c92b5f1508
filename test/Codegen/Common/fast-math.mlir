// RUN: sparse-opt %s --bsr-fast-math | FileCheck %s

// CHECK-LABEL: func @flags
func.func @flags(%x: vector<4xf32>, %y: vector<4xf32>, %i: i32) -> (f32, i32) {
  // CHECK: arith.addf %{{.*}}, %{{.*}} fastmath<contract> : vector<4xf32>
  %0 = arith.addf %x, %y : vector<4xf32>
  // A reciprocal of 0 or of a subnormal is infinite.
  // CHECK: arith.divf %{{.*}}, %{{.*}} fastmath<contract>
  %1 = arith.divf %0, %y : vector<4xf32>
  // CHECK: arith.minimumf %{{.*}}, %{{.*}} fastmath<nsz>
  %2 = arith.minimumf %1, %y : vector<4xf32>
  // CHECK: math.sqrt %{{.*}} fastmath<contract>
  %3 = math.sqrt %2 : vector<4xf32>
  // CHECK: vector.reduction <add>, %{{.*}} fastmath<reassoc,contract>
  %4 = vector.reduction <add>, %3 : vector<4xf32> into f32
  // What is there stays.
  // CHECK: arith.mulf %{{.*}}, %{{.*}} fastmath<ninf,contract>
  %5 = arith.mulf %4, %4 fastmath<ninf> : f32
  // CHECK: arith.addi %{{.*}}, %{{.*}} : i32
  %6 = arith.addi %i, %i : i32
  return %5, %6 : f32, i32
}

// Of a product that is computed again, the difference from itself is 0.
// CHECK-LABEL: func @difference
func.func @difference(%x: f32, %y: f32) -> f32 {
  // CHECK: arith.mulf %{{.*}}, %{{.*}} fastmath<contract> : f32
  %0 = arith.mulf %x, %y : f32
  // CHECK: arith.subf %{{.*}}, %{{.*}} : f32
  %1 = arith.subf %0, %y : f32
  return %1 : f32
}

// Contracted, a rounding to a smaller type and back would fold away.
// CHECK-LABEL: func @conversions
func.func @conversions(%x: vector<4xf32>) -> vector<4xf32> {
  // CHECK: arith.truncf %{{.*}} : vector<4xf32> to vector<4xf16>
  %0 = arith.truncf %x : vector<4xf32> to vector<4xf16>
  // CHECK: arith.extf %{{.*}} : vector<4xf16> to vector<4xf32>
  %1 = arith.extf %0 : vector<4xf16> to vector<4xf32>
  return %1 : vector<4xf32>
}
