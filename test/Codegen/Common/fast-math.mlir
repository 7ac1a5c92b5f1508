// RUN: sparse-opt %s --bsr-fast-math | FileCheck %s

// CHECK-LABEL: func @flags
func.func @flags(%x: vector<4xf32>, %y: vector<4xf32>, %i: i32) -> (f32, i32) {
  // A value may be computed in several kernels, with the same bits in each.
  // CHECK: arith.mulf %{{.*}}, %{{.*}} : vector<4xf32>
  %0 = arith.mulf %x, %y : vector<4xf32>
  // CHECK: arith.addf %{{.*}}, %{{.*}} : vector<4xf32>
  %1 = arith.addf %0, %y : vector<4xf32>
  // A reciprocal of 0 or of a subnormal is infinite.
  // CHECK: arith.divf %{{.*}}, %{{.*}} : vector<4xf32>
  %2 = arith.divf %1, %y : vector<4xf32>
  // CHECK: arith.minimumf %{{.*}}, %{{.*}} fastmath<nsz>
  %3 = arith.minimumf %2, %y : vector<4xf32>
  // CHECK: math.sqrt %{{.*}} : vector<4xf32>
  %4 = math.sqrt %3 : vector<4xf32>
  // CHECK: vector.reduction <add>, %{{.*}} fastmath<reassoc,contract>
  %5 = vector.reduction <add>, %4 : vector<4xf32> into f32
  // What is there stays.
  // CHECK: arith.mulf %{{.*}}, %{{.*}} fastmath<ninf>
  %6 = arith.mulf %5, %5 fastmath<ninf> : f32
  // CHECK: arith.addi %{{.*}}, %{{.*}} : i32
  %7 = arith.addi %i, %i : i32
  return %6, %7 : f32, i32
}

// Products that a loop adds up, and nothing else reads.
// CHECK-LABEL: func @sums
func.func @sums(%x: memref<8xf32>, %y: f32, %zero: f32) -> (f32, f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %sum:2 = scf.for %i = %c0 to %c8 step %c1 iter_args(%a = %zero, %b = %zero) -> (f32, f32) {
    %0 = memref.load %x[%i] : memref<8xf32>
    // CHECK: arith.mulf %{{.*}}, %{{.*}} fastmath<contract> : f32
    %1 = arith.mulf %0, %0 : f32
    // CHECK: %[[FIRST:.*]] = arith.addf %{{.*}}, %{{.*}} fastmath<contract> : f32
    %2 = arith.addf %a, %1 : f32
    // CHECK: %[[BOTH:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
    %3 = arith.mulf %0, %y : f32
    // CHECK: arith.addf %[[BOTH]], %[[FIRST]] fastmath<contract> : f32
    %4 = arith.addf %3, %2 : f32
    // What is no sum of the loop.
    // CHECK: %[[TERM:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
    %5 = arith.mulf %y, %y : f32
    // CHECK: arith.addf %[[TERM]], %[[BOTH]] : f32
    %6 = arith.addf %5, %3 : f32
    // CHECK: arith.addf %{{.*}}, %{{.*}} fastmath<contract> : f32
    %7 = arith.addf %b, %6 : f32
    scf.yield %4, %7 : f32, f32
  }
  return %sum#0, %sum#1 : f32, f32
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
