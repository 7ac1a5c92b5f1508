// RUN: sparse-opt %s --split-input-file --bsr-outline-launches --canonicalize --verify-diagnostics | FileCheck %s

// A thread has one iteration, neighbours along the last dimension; the last block has threads without one. What stands
// outside of loops is one thread's.

// CHECK-LABEL: func private @kernel(
// CHECK-SAME:    %[[X:.*]]: memref<10x33xf32>, %[[Y:.*]]: memref<10x33xf32>, %[[S:.*]]: memref<f32>)
// CHECK-NOT:     memref.load
// CHECK:         gpu.launch_func @kernels::@kernel blocks in (%c3, %c1, %c1) threads in (%c128, %c1, %c1) args(%[[X]] : memref<10x33xf32>, %[[Y]] : memref<10x33xf32>)
// CHECK-NEXT:    gpu.launch_func @kernels::@kernel_0 blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1) args(%[[Y]] : memref<10x33xf32>, %[[S]] : memref<f32>)
// CHECK-NEXT:    return
// CHECK-LABEL: gpu.module @kernels [#nvvm.target<O = 3, chip = "sm_80", features = "+ptx70">]
// CHECK:         gpu.func @kernel(%[[X:.*]]: memref<10x33xf32>, %[[Y:.*]]: memref<10x33xf32>) kernel attributes {known_block_size = array<i32: 128, 1, 1>, known_grid_size = array<i32: 3, 1, 1>, nvvm.minctasm = 1 : i32}
// CHECK-DAG:       %[[BLOCK:.*]] = gpu.block_id x
// CHECK-DAG:       %[[THREAD:.*]] = gpu.thread_id x
// CHECK:           %[[FIRST:.*]] = arith.muli %[[BLOCK]], %c128
// CHECK:           %[[NUMBER:.*]] = arith.addi %[[FIRST]], %[[THREAD]]
// CHECK:           %[[INSIDE:.*]] = arith.cmpi ult, %[[NUMBER]], %c330
// CHECK:           scf.if %[[INSIDE]] {
// CHECK-DAG:         %[[J:.*]] = arith.remui %[[NUMBER]], %c33
// CHECK-DAG:         %[[I:.*]] = arith.divui %[[NUMBER]], %c33
// CHECK:             %[[V:.*]] = memref.load %[[X]][%[[I]], %[[J]]]
// CHECK:             memref.store %[[V]], %[[Y]][%[[I]], %[[J]]]
// CHECK:         gpu.func @kernel_0(
// CHECK:           %[[ONE:.*]] = arith.cmpi {{.*}}, %c1
// CHECK:           scf.if
// CHECK:             memref.load
// CHECK:             memref.store
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  func.func private @kernel(%x: memref<10x33xf32>, %y: memref<10x33xf32>, %s: memref<f32>) {
    %c3 = arith.constant 3 : index
    scf.forall (%i, %j) in (10, 33) {
      %0 = memref.load %x[%i, %j] : memref<10x33xf32>
      memref.store %0, %y[%i, %j] : memref<10x33xf32>
    }
    %1 = memref.load %y[%c3, %c3] : memref<10x33xf32>
    memref.store %1, %s[] : memref<f32>
    return
  }
  func.func @step(%x: memref<10x33xf32>, %y: memref<10x33xf32>, %s: memref<f32>) {
    call @kernel(%x, %y, %s) : (memref<10x33xf32>, memref<10x33xf32>, memref<f32>) -> ()
    return
  }
}

// -----

// Launches that a kernel has already keep their blocks, threads and shared memory. What threads share is aligned for vectors; of
// thread blocks that share much, ptxas is told that there are few.

// CHECK-LABEL: func private @reversed(
// CHECK-SAME:    %[[X:.*]]: memref<8x64xf32>, %[[Y:.*]]: memref<8x64xf32>, %[[S:.*]]: memref<f32>)
// CHECK-DAG:     %[[BYTES:.*]] = arith.constant 70000 : i32
// CHECK:         gpu.launch_func @kernels::@reversed blocks in (%c8, %c1, %c1) threads in (%c64, %c1, %c1) dynamic_shared_memory_size %[[BYTES]] args(%[[X]] : memref<8x64xf32>, %[[Y]] : memref<8x64xf32>)
// CHECK-NEXT:    gpu.launch_func @kernels::@reversed_0 blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1) args(%[[Y]] : memref<8x64xf32>, %[[S]] : memref<f32>)
// CHECK-NEXT:    return
// CHECK:         gpu.func @reversed(%[[X:.*]]: memref<8x64xf32>, %[[Y:.*]]: memref<8x64xf32>) workgroup(%[[OTHER:.*]] : memref<64xf32, #gpu.address_space<workgroup>> {llvm.align = 16 : i64}) kernel attributes {known_block_size = array<i32: 64, 1, 1>, known_grid_size = array<i32: 8, 1, 1>, nvvm.minctasm = 1 : i32}
// CHECK:           gpu.dynamic_shared_memory
// CHECK:           gpu.barrier
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  func.func private @reversed(%x: memref<8x64xf32>, %y: memref<8x64xf32>, %s: memref<f32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c8 = arith.constant 8 : index
    %c63 = arith.constant 63 : index
    %c64 = arith.constant 64 : index
    %bytes = arith.constant 70000 : i32
    gpu.launch blocks(%row, %by, %bz) in (%gx = %c8, %gy = %c1, %gz = %c1)
        threads(%t, %ty, %tz) in (%bx = %c64, %sy = %c1, %sz = %c1) dynamic_shared_memory_size %bytes
        workgroup(%other: memref<64xf32, #gpu.address_space<workgroup>>) {
      %all = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
      %line = memref.view %all[%c0][] : memref<?xi8, #gpu.address_space<workgroup>> to memref<64xf32, #gpu.address_space<workgroup>>
      %0 = memref.load %x[%row, %t] : memref<8x64xf32>
      memref.store %0, %line[%t] : memref<64xf32, #gpu.address_space<workgroup>>
      memref.store %0, %other[%t] : memref<64xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %from = arith.subi %c63, %t : index
      %1 = memref.load %line[%from] : memref<64xf32, #gpu.address_space<workgroup>>
      %2 = memref.load %other[%from] : memref<64xf32, #gpu.address_space<workgroup>>
      %3 = arith.addf %1, %2 : f32
      memref.store %3, %y[%row, %t] : memref<8x64xf32>
      gpu.terminator
    }
    %4 = memref.load %y[%c0, %c0] : memref<8x64xf32>
    memref.store %4, %s[] : memref<f32>
    return
  }
  func.func @step(%x: memref<8x64xf32>, %y: memref<8x64xf32>, %s: memref<f32>) {
    call @reversed(%x, %y, %s) : (memref<8x64xf32>, memref<8x64xf32>, memref<f32>) -> ()
    return
  }
}

// -----

// What the step copies, threads copy.

// CHECK-LABEL: func @copies(
// CHECK-SAME:    %[[X:.*]]: memref<3x4xf32>, %[[Y:.*]]: memref<3x4xf32>, %[[S:.*]]: memref<f32>, %[[T:.*]]: memref<f32>)
// CHECK-NOT:     memref.copy
// CHECK:         gpu.launch_func @kernels::@copies blocks in (%c1, %c1, %c1) threads in (%c128, %c1, %c1) args(%[[X]] : memref<3x4xf32>, %[[Y]] : memref<3x4xf32>)
// CHECK-NEXT:    gpu.launch_func @kernels::@copies_0 {{.*}} args(%[[S]] : memref<f32>, %[[T]] : memref<f32>)
// CHECK-NEXT:    return
// CHECK:         gpu.func @copies(
// CHECK:           memref.load
// CHECK:           memref.store
module attributes {bsr.target = #bsr.gpu} {
  func.func @copies(%x: memref<3x4xf32>, %y: memref<3x4xf32>, %s: memref<f32>, %t: memref<f32>) {
    memref.copy %x, %y : memref<3x4xf32> to memref<3x4xf32>
    memref.copy %s, %t : memref<f32> to memref<f32>
    return
  }
}

// -----

// Without kernels nothing happens, whatever the target.
// CHECK-LABEL: func @nothing
func.func @nothing() {
  return
}

// -----

// expected-error @below {{expected the module's target to be a GPU, such as #bsr.gpu, but got #bsr.cpu}}
module {
  func.func private @kernel(%y: memref<4xf32>) {
    %z = arith.constant 0.0 : f32
    scf.forall (%i) in (4) {
      memref.store %z, %y[%i] : memref<4xf32>
    }
    return
  }
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  func.func private @kernel(%y: memref<4xf32>, %n: index) {
    %z = arith.constant 0.0 : f32
    // expected-error @below {{expected a parallel loop from 0 to a constant, by 1}}
    scf.forall (%i) in (%n) {
      memref.store %z, %y[%i] : memref<4xf32>
    }
    return
  }
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  func.func private @kernel(%y: memref<65536x65536xi8>) {
    %z = arith.constant 0 : i8
    // expected-error @below {{expected fewer than 2^31 - 128 iterations, one a thread, but got 4294967296}}
    scf.forall (%i, %j) in (65536, 65536) {
      memref.store %z, %y[%i, %j] : memref<65536x65536xi8>
    }
    return
  }
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  func.func private @kernel(%x: memref<f32>, %y: memref<4xf32>) {
    // expected-error @below {{expected a kernel to hand nothing from what one thread does to others but by memory, but got a use by 'memref.store'}}
    %z = memref.load %x[] : memref<f32>
    scf.forall (%i) in (4) {
      memref.store %z, %y[%i] : memref<4xf32>
    }
    return
  }
}

// -----

module attributes {bsr.target = #bsr.gpu} {
  func.func @step(%x: memref<f32>, %y: memref<f32>) {
    // expected-error @below {{expected a step for a GPU to touch memory in kernels only, but got 'memref.load' outside of them}}
    %z = memref.load %x[] : memref<f32>
    memref.store %z, %y[] : memref<f32>
    return
  }
}

// -----

// A constant of the host is no memory of the GPU.
module attributes {bsr.target = #bsr.gpu} {
  memref.global "private" constant @ptr : memref<2xi32> = dense<[0, 1]>
  func.func private @kernel(%x: memref<2xi32>) {
    return
  }
  func.func @step() {
    // expected-error @below {{expected a step for a GPU to touch memory in kernels only, but got 'memref.get_global' outside of them}}
    %0 = memref.get_global @ptr : memref<2xi32>
    call @kernel(%0) : (memref<2xi32>) -> ()
    return
  }
}
