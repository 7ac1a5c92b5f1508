// RUN: sparse-opt %s --split-input-file --bsr-lower-reductions --bsr-lower-transfers --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[X:[a-z0-9]*]]: memref<2x3xbf16> {bsr.name = "x"}, %[[CONTEXT:.*]]: !llvm.ptr)
// CHECK: %[[FIELD:.*]] = llvm.getelementptr %[[CONTEXT]][8]
// CHECK: %[[COMMUNICATOR:.*]] = llvm.load %[[FIELD]]
// CHECK-DAG: %[[BYTES:.*]] = llvm.mlir.constant(12 : i64)
// CHECK-DAG: %[[TO:.*]] = llvm.mlir.constant(1 : i32)
// CHECK: %[[PLACE:.*]] = llvm.getelementptr %[[COMMUNICATOR]][
// CHECK: %[[SEND:.*]] = llvm.load %[[PLACE]]
// CHECK: llvm.call %[[SEND]](%[[COMMUNICATOR]], %{{.*}}, %[[BYTES]], %[[TO]])
// A bool takes a byte.
// CHECK-DAG: %[[ONE:.*]] = llvm.mlir.constant(5 : i64)
// CHECK-DAG: %[[FROM:.*]] = llvm.mlir.constant(2 : i32)
// CHECK: llvm.call %{{.*}}(%[[COMMUNICATOR]], %{{.*}}, %[[ONE]], %[[FROM]])
func.func @step(%x: memref<2x3xbf16> {bsr.name = "x"}) attributes {bsr.communicates} {
  bsr.send %x to 1 : memref<2x3xbf16>
  %m = memref.alloc() : memref<5xi1>
  bsr.receive from 2 into %m : memref<5xi1>
  return
}

// -----

func.func @early(%x: tensor<4xf32> {bsr.name = "x"}) attributes {bsr.communicates} {
  // expected-error @below {{expected a buffer, but got a tensor: bufferize it first}}
  bsr.send %x to 1 : tensor<4xf32>
  return
}

// -----

func.func @helper(%x: memref<4xf32>) {
  // expected-error @below {{expected a step that has its context from bsr-lower-reductions around it, but got none}}
  bsr.send %x to 1 : memref<4xf32>
  return
}

// -----

func.func @nothing() {
  // expected-error @below {{expected a buffer or a result, but got none}}
  bsr.receive from 0
  return
}

// -----

func.func @both(%m: memref<4xf32>) {
  // expected-error @below {{expected a buffer or a result, but got both}}
  %x = bsr.receive from 0 into %m : memref<4xf32> -> tensor<4xf32>
  return
}

// -----

func.func @strided(%m: memref<4xf32, strided<[2]>>) {
  // expected-error @below {{expected a row-major buffer, but got 'memref<4xf32, strided<[2]>>'}}
  bsr.send %m to 1 : memref<4xf32, strided<[2]>>
  return
}
