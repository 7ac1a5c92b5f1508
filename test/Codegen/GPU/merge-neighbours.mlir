// RUN: sparse-opt %s --split-input-file --bsr-outline-launches --inline --bsr-merge-launches --canonicalize | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-outline-launches --inline --bsr-merge-launches --mlir-disable-threading --mlir-debug-counter=bsr-merge-launches-count=0 | FileCheck %s --check-prefix=SKIPPED
// SKIPPED-NOT: _and_
// RUN: sparse-opt %s --split-input-file --bsr-outline-launches --inline --bsr-merge-launches --mlir-disable-threading --remarks-filter=bsr-merge-launches -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: [Passed] KernelsJoined | Category:bsr-merge-launches | Function=step | Kernel=parts, Launches=3

// Neighbours of other kernels, as many threads and other data are one launch: here parts of the rows of one buffer. Equal ones
// share the kernel; each thread block does what one of the others does.

// CHECK-LABEL: func @step(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<4x32xf32>, %[[Y:[a-z0-9]+]]: memref<4x32xf32>, %[[Z:[a-z0-9]+]]: memref<4x32xf32>, %[[ALL:[a-z0-9]+]]: memref<4x96xf32>)
// CHECK:         gpu.launch_func @kernels::@parts_and_2 blocks in (%c1, %c3, %c1) threads in (%c128, %c1, %c1) args(%[[X]] : {{.*}}, %{{.*}} : {{.*}}, %[[Y]] : {{.*}}, %{{.*}} : {{.*}}, %[[Z]] : {{.*}}, %{{.*}} : {{.*}}) {bsr.kind = "elementwise"}
// CHECK-NEXT:    return
// CHECK-LABEL: func @again(
// CHECK:         gpu.launch_func @kernels::@parts_and_2
// CHECK-NEXT:    return
// CHECK:         gpu.func @parts_and_2(%[[A:.*]]: memref<4x32xf32>, %[[PA:.*]]: memref<4x32xf32, strided<[96, 1]>>, %[[B:.*]]: memref<4x32xf32>, %[[PB:.*]]: memref<4x32xf32, strided<[96, 1], offset: 32>>, %[[C:.*]]: memref<4x32xf32>, %[[PC:.*]]: memref<4x32xf32, strided<[96, 1], offset: 64>>) kernel attributes {{{.*}}known_grid_size = array<i32: 1, 3, 1>
// CHECK:           %[[NUMBER:.*]] = gpu.block_id y
// CHECK:           %[[IS0:.*]] = arith.cmpi eq, %[[NUMBER]], %c0
// CHECK:           scf.if %[[IS0]] {
// CHECK:             memref.load %[[A]]
// CHECK:             memref.store %{{.*}}, %[[PA]]
// CHECK:           %[[IS1:.*]] = arith.cmpi eq, %[[NUMBER]], %c1
// CHECK:           scf.if %[[IS1]] {
// CHECK:             memref.load %[[B]]
// CHECK:             memref.store %{{.*}}, %[[PB]]
// CHECK:           %[[IS2:.*]] = arith.cmpi eq, %[[NUMBER]], %c2
// CHECK:           scf.if %[[IS2]] {
// CHECK:             memref.load %[[C]]
// CHECK:             memref.store %{{.*}}, %[[PC]]
// CHECK-NOT:     gpu.func
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  func.func private @parts(%x: memref<4x32xf32>, %y: memref<4x32xf32>, %z: memref<4x32xf32>, %all: memref<4x96xf32>) attributes {bsr.kind = "elementwise"} {
    %a = memref.reinterpret_cast %all to offset: [0], sizes: [4, 32], strides: [96, 1] : memref<4x96xf32> to memref<4x32xf32, strided<[96, 1]>>
    %b = memref.reinterpret_cast %all to offset: [32], sizes: [4, 32], strides: [96, 1] : memref<4x96xf32> to memref<4x32xf32, strided<[96, 1], offset: 32>>
    %c = memref.reinterpret_cast %all to offset: [64], sizes: [4, 32], strides: [96, 1] : memref<4x96xf32> to memref<4x32xf32, strided<[96, 1], offset: 64>>
    scf.forall (%i, %j) in (4, 32) {
      %0 = memref.load %x[%i, %j] : memref<4x32xf32>
      memref.store %0, %a[%i, %j] : memref<4x32xf32, strided<[96, 1]>>
    }
    scf.forall (%i, %j) in (4, 32) {
      %0 = memref.load %y[%i, %j] : memref<4x32xf32>
      memref.store %0, %b[%i, %j] : memref<4x32xf32, strided<[96, 1], offset: 32>>
    }
    scf.forall (%i, %j) in (4, 32) {
      %0 = memref.load %z[%i, %j] : memref<4x32xf32>
      memref.store %0, %c[%i, %j] : memref<4x32xf32, strided<[96, 1], offset: 64>>
    }
    return
  }
  func.func @step(%x: memref<4x32xf32>, %y: memref<4x32xf32>, %z: memref<4x32xf32>, %all: memref<4x96xf32>) {
    call @parts(%x, %y, %z, %all) : (memref<4x32xf32>, memref<4x32xf32>, memref<4x32xf32>, memref<4x96xf32>) -> ()
    return
  }
  func.func @again(%x: memref<4x32xf32>, %all: memref<4x96xf32>) {
    call @parts(%x, %x, %x, %all) : (memref<4x32xf32>, memref<4x32xf32>, memref<4x32xf32>, memref<4x96xf32>) -> ()
    return
  }
}

// -----

// Not parts that overlap, or of which one is read where another is written, and not kernels of other kinds.

// CHECK-LABEL: func @apart(
// CHECK-COUNT-6: gpu.launch_func
// CHECK-NOT:     gpu.launch_func
// CHECK:         return
// CHECK-NOT:     _and_
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  func.func private @overlap(%x: memref<4x32xf32>, %all: memref<4x96xf32>) attributes {bsr.kind = "elementwise"} {
    %a = memref.reinterpret_cast %all to offset: [0], sizes: [4, 32], strides: [96, 1] : memref<4x96xf32> to memref<4x32xf32, strided<[96, 1]>>
    %b = memref.reinterpret_cast %all to offset: [31], sizes: [4, 32], strides: [96, 1] : memref<4x96xf32> to memref<4x32xf32, strided<[96, 1], offset: 31>>
    scf.forall (%i, %j) in (4, 32) {
      %0 = memref.load %x[%i, %j] : memref<4x32xf32>
      memref.store %0, %a[%i, %j] : memref<4x32xf32, strided<[96, 1]>>
    }
    scf.forall (%i, %j) in (4, 32) {
      %0 = memref.load %x[%i, %j] : memref<4x32xf32>
      memref.store %0, %b[%i, %j] : memref<4x32xf32, strided<[96, 1], offset: 31>>
    }
    return
  }
  func.func private @reads(%x: memref<4x32xf32>, %y: memref<4x32xf32>) attributes {bsr.kind = "elementwise"} {
    scf.forall (%i, %j) in (4, 32) {
      %0 = memref.load %y[%i, %j] : memref<4x32xf32>
      memref.store %0, %x[%i, %j] : memref<4x32xf32>
    }
    scf.forall (%i, %j) in (4, 32) {
      %0 = memref.load %x[%i, %j] : memref<4x32xf32>
      %1 = arith.negf %0 : f32
      memref.store %1, %y[%i, %j] : memref<4x32xf32>
    }
    return
  }
  func.func private @sums(%x: memref<4x32xf32>, %y: memref<4x32xf32>) attributes {bsr.kind = "reduction"} {
    %c = arith.constant 1.0 : f32
    scf.forall (%i, %j) in (4, 32) {
      memref.store %c, %x[%i, %j] : memref<4x32xf32>
    }
    scf.forall (%i, %j) in (4, 32) {
      %1 = arith.negf %c : f32
      memref.store %1, %y[%i, %j] : memref<4x32xf32>
    }
    return
  }
  func.func @apart(%x: memref<4x32xf32>, %y: memref<4x32xf32>, %all: memref<4x96xf32>) {
    call @overlap(%x, %all) : (memref<4x32xf32>, memref<4x96xf32>) -> ()
    call @reads(%x, %y) : (memref<4x32xf32>, memref<4x32xf32>) -> ()
    call @sums(%x, %y) : (memref<4x32xf32>, memref<4x32xf32>) -> ()
    return
  }
}
