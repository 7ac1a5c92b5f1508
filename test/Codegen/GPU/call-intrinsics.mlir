// RUN: sparse-opt %s --split-input-file --pass-pipeline='builtin.module(gpu.module(bsr-call-intrinsics))' --verify-diagnostics | FileCheck %s

// CHECK-LABEL: gpu.func @all(
gpu.module @kernels {
  gpu.func @all(%x: f32, %y: f64, %i: i32, %v: vector<4xf32>) {
    // CHECK: llvm.call_intrinsic "llvm.fabs.f32"(%{{.*}}) : (f32) -> f32
    // CHECK: llvm.call_intrinsic "llvm.ceil.f32"
    // CHECK: llvm.call_intrinsic "llvm.copysign.f64"(%{{.*}}, %{{.*}}) : (f64, f64) -> f64
    // CHECK: llvm.call_intrinsic "llvm.ctpop.i32"
    // CHECK: llvm.call_intrinsic "llvm.floor.f32"
    // CHECK: llvm.call_intrinsic "llvm.fma.f32"
    // CHECK: llvm.call_intrinsic "llvm.roundeven.f32"
    // CHECK: llvm.call_intrinsic "llvm.sqrt.f64"
    // CHECK: llvm.call_intrinsic "llvm.trunc.f32"
    // CHECK: llvm.call_intrinsic "llvm.sqrt.v4f32"(%{{.*}}) : (vector<4xf32>) -> vector<4xf32>
    %0 = math.absf %x : f32
    %1 = math.ceil %0 : f32
    %2 = math.copysign %y, %y : f64
    %3 = math.ctpop %i : i32
    %4 = math.floor %1 : f32
    %5 = math.fma %4, %x, %1 : f32
    %6 = math.roundeven %5 : f32
    %7 = math.sqrt %2 : f64
    %8 = math.trunc %6 : f32
    %9 = math.sqrt %v : vector<4xf32>
    gpu.return
  }
}

// -----

gpu.module @kernels {
  gpu.func @power(%x: f32) {
    // expected-error @below {{expected a function that a GPU computes, of a number or a vector, but got 'math.powf' of 'f32'}}
    %0 = math.powf %x, %x : f32
    gpu.return
  }
}

// -----

gpu.module @kernels {
  gpu.func @matrix(%x: vector<2x2xf32>) {
    // expected-error @below {{expected a function that a GPU computes, of a number or a vector, but got 'math.sqrt' of 'vector<2x2xf32>'}}
    %0 = math.sqrt %x : vector<2x2xf32>
    gpu.return
  }
}
