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

// A bucket: its parts lie in one room, which the step makes once.
// CHECK-LABEL: func.func @bucket(
// CHECK-SAME: %{{.*}}: !llvm.ptr)
// CHECK: %[[COMMUNICATOR:.*]] = llvm.load
// CHECK: %[[SOME:.*]] = llvm.icmp "ne" %[[COMMUNICATOR]]
// CHECK: %[[TWO:.*]] = llvm.mlir.constant(2 : i64)
// CHECK: %[[PARTS:.*]] = llvm.alloca %[[TWO]] x !llvm.struct<(ptr, i64)>
// CHECK: %[[TICKET:.*]] = scf.if %[[SOME]] -> (i64) {
// CHECK-DAG: llvm.mlir.constant(6 : i64)
// CHECK-DAG: llvm.mlir.constant(5 : i64)
// CHECK-DAG: llvm.getelementptr %[[PARTS]][0, 0]
// CHECK-DAG: llvm.getelementptr %[[PARTS]][0, 1]
// CHECK-DAG: llvm.getelementptr %[[PARTS]][1, 0]
// CHECK-DAG: llvm.getelementptr %[[PARTS]][1, 1]
// CHECK: llvm.getelementptr %[[COMMUNICATOR]][8]
// CHECK: %[[CALL:.*]] = llvm.call %{{.*}}(%[[COMMUNICATOR]], %[[PARTS]], %{{.*}}, %{{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i64, i32) -> i64
// CHECK: scf.yield %[[CALL]]
// CHECK: scf.if %[[SOME]] {
// CHECK: llvm.getelementptr %[[COMMUNICATOR]][16]
// CHECK: llvm.call %{{.*}}(%[[COMMUNICATOR]], %[[TICKET]]) : !llvm.ptr, (!llvm.ptr, i64) -> ()
func.func @bucket(%g: memref<2x3xf64> {bsr.name = "g"}, %h: memref<5xf64> {bsr.name = "h"}) attributes {bsr.communicates} {
  %ticket = bsr.start_reduce %g, %h : memref<2x3xf64>, memref<5xf64>
  bsr.wait_reduce %ticket, %g, %h : memref<2x3xf64>, memref<5xf64>
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

// -----

func.func @empty() {
  // expected-error @below {{expected one buffer at least, but got none}}
  %0 = "bsr.start_reduce"() : () -> i64
  return
}

// -----

func.func @mixed(%a: memref<4xf32>, %b: memref<4xf16>) {
  // expected-error @below {{expected buffers of one element type, but got 'f32' and 'f16'}}
  %0 = bsr.start_reduce %a, %b : memref<4xf32>, memref<4xf16>
  bsr.wait_reduce %0, %a, %b : memref<4xf32>, memref<4xf16>
  return
}

// -----

func.func @integers_in_bucket(%a: memref<4xi32>) {
  // expected-error @below {{expected elements of type f16, bf16, f32 or f64, but got 'i32'}}
  %0 = bsr.start_reduce %a : memref<4xi32>
  bsr.wait_reduce %0, %a : memref<4xi32>
  return
}

// -----

func.func @never_waited_for(%a: memref<4xf32>) {
  // expected-error @below {{expected one bsr.wait_reduce of its ticket, but got 0}}
  %0 = bsr.start_reduce %a : memref<4xf32>
  return
}

// -----

func.func @no_ticket(%a: memref<4xf32>, %0: i64) {
  // expected-error @below {{expected the ticket of a bsr.start_reduce, but got another number}}
  bsr.wait_reduce %0, %a : memref<4xf32>
  return
}

// -----

func.func @other_buffers(%a: memref<4xf32>, %b: memref<4xf32>) {
  %0 = bsr.start_reduce %a : memref<4xf32>
  // expected-error @below {{expected the buffers that were started, but got others}}
  bsr.wait_reduce %0, %b : memref<4xf32>
  return
}
