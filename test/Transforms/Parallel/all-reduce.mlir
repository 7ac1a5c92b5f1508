// RUN: sparse-opt %s --split-input-file --bsr-lower-reductions --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[G:[a-z0-9]*]]: memref<2x3xbf16> {bsr.name = "g"}, %[[CONTEXT:.*]]: !llvm.ptr)
// CHECK: %[[FIELD:.*]] = llvm.getelementptr %[[CONTEXT]][8]
// CHECK: %[[COMMUNICATOR:.*]] = llvm.load %[[FIELD]]
// CHECK: %[[SOME:.*]] = llvm.icmp "ne" %[[COMMUNICATOR]]
// CHECK: scf.if %[[SOME]] {
// CHECK-DAG: %[[COUNT:.*]] = llvm.mlir.constant(6 : i64)
// CHECK-DAG: %[[TYPE:.*]] = llvm.mlir.constant(1 : i32)
// CHECK: llvm.call %{{.*}}(%[[COMMUNICATOR]], %{{.*}}, %[[COUNT]], %[[TYPE]])
func.func @step(%g: memref<2x3xbf16> {bsr.name = "g"}) attributes {bsr.communicates} {
  bsr.all_reduce %g : memref<2x3xbf16>
  return
}

// -----

// CHECK-LABEL: func.func @alone(%{{.*}}: memref<4xf32> {bsr.name = "g"}) {
func.func @alone(%g: memref<4xf32> {bsr.name = "g"}) {
  return
}

// -----

func.func @early(%g: tensor<4xf32> {bsr.name = "g"}) -> tensor<4xf32> attributes {bsr.communicates} {
  // expected-error @below {{expected a buffer, but got 'tensor<4xf32>': bufferize it first}}
  %0 = bsr.all_reduce %g : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @helper(%g: memref<4xf32>) {
  // expected-error @below {{expected a step with bsr.communicates around it, but got none}}
  bsr.all_reduce %g : memref<4xf32>
  return
}

// -----

func.func @integers(%g: tensor<4xi32>) {
  // expected-error @below {{expected elements of type f16, bf16, f32 or f64, but got 'i32'}}
  %0 = bsr.all_reduce %g : tensor<4xi32> -> tensor<4xi32>
  return
}

// -----

func.func @no_result(%g: tensor<4xf32>) {
  // expected-error @below {{expected a result of type 'tensor<4xf32>', but got none}}
  bsr.all_reduce %g : tensor<4xf32>
  return
}

// -----

func.func @other_result(%g: tensor<4xf32>) {
  // expected-error @below {{expected a result of type 'tensor<4xf32>', but got 'tensor<2x2xf32>'}}
  %0 = bsr.all_reduce %g : tensor<4xf32> -> tensor<2x2xf32>
  return
}

// -----

func.func @result_of_buffer(%g: memref<4xf32>) {
  // expected-error @below {{expected no result of a buffer, but got 'tensor<4xf32>'}}
  %0 = bsr.all_reduce %g : memref<4xf32> -> tensor<4xf32>
  return
}

// -----

func.func @strided(%g: memref<4xf32, strided<[2]>>) {
  // expected-error @below {{expected a row-major buffer, but got 'memref<4xf32, strided<[2]>>'}}
  bsr.all_reduce %g : memref<4xf32, strided<[2]>>
  return
}
