// RUN: sparse-opt %s --bsr-move-constants | FileCheck %s
// RUN: sparse-opt %s --bsr-move-constants --bsr-outline-launches --inline --symbol-dce --canonicalize \
// RUN:   | FileCheck %s --check-prefix=OUTLINED

// A kernel for each set of arrays; calls with the same ones share it, and what is called with none stays.

// CHECK-DAG:     memref.global "private" constant @one
// CHECK-DAG:     memref.global "private" constant @two
// CHECK:         func.func private @load(%{{.*}}: memref<2xi32>, %{{.*}}: memref<2xi32>, %{{.*}}: memref<2xi32>)
// CHECK-LABEL: func @step(
// CHECK-SAME:    %[[X:.*]]: memref<2xi32>, %[[Y:.*]]: memref<2xi32>, %[[Z:.*]]: memref<2xi32>)
// CHECK-NEXT:    call @[[ONE:.*]](%[[X]], %[[Y]]) : (memref<2xi32>, memref<2xi32>) -> ()
// CHECK-NEXT:    call @[[TWO:.*]](%[[X]], %[[Y]])
// CHECK-NEXT:    call @[[ONE]](%[[X]], %[[Z]])
// CHECK-NEXT:    call @[[BOTH:.*]](%[[Z]]) : (memref<2xi32>) -> ()
// CHECK-NEXT:    call @load(%[[X]], %[[Y]], %[[Z]])
// CHECK-NEXT:    return
// CHECK:         func.func private @[[ONE]](%[[A:.*]]: memref<2xi32>, %{{.*}}: memref<2xi32>)
// CHECK:           %[[ARRAY:.*]] = memref.get_global @one
// CHECK:           memref.load %[[ARRAY]]
// CHECK:           memref.load %[[A]]
// CHECK:         func.func private @[[TWO]](
// CHECK:           memref.get_global @two
// CHECK:         func.func private @[[BOTH]](%{{.*}}: memref<2xi32>)
// CHECK-DAG:       memref.get_global @one
// CHECK-DAG:       memref.get_global @two

// The arrays are the module's that has the functions of the GPU.

// OUTLINED-NOT:   memref.global
// OUTLINED-LABEL: func @step(
// OUTLINED:       gpu.module @kernels
// OUTLINED:         gpu.func @{{.*}}(%[[X:.*]]: memref<2xi32>, %{{.*}}: memref<2xi32>) kernel
// OUTLINED:           %[[ARRAY:.*]] = memref.get_global @one
// OUTLINED:           memref.load %[[ARRAY]]
// OUTLINED:         memref.global "private" constant @one : memref<2xi32> = dense<[0, 3]>
// OUTLINED:         memref.global "private" constant @two : memref<2xi32> = dense<[0, 5]>
// OUTLINED-NOT:     memref.global
module attributes {bsr.target = #bsr.gpu} {
  memref.global "private" constant @one : memref<2xi32> = dense<[0, 3]>
  memref.global "private" constant @two : memref<2xi32> = dense<[0, 5]>
  func.func private @load(%p: memref<2xi32>, %x: memref<2xi32>, %y: memref<2xi32>) {
    scf.forall (%i) in (2) {
      %0 = memref.load %p[%i] : memref<2xi32>
      %1 = memref.load %x[%i] : memref<2xi32>
      %2 = arith.addi %0, %1 : i32
      memref.store %2, %y[%i] : memref<2xi32>
    }
    return
  }
  func.func @step(%x: memref<2xi32>, %y: memref<2xi32>, %z: memref<2xi32>) {
    %one = memref.get_global @one : memref<2xi32>
    %two = memref.get_global @two : memref<2xi32>
    %again = memref.get_global @one : memref<2xi32>
    call @load(%one, %x, %y) : (memref<2xi32>, memref<2xi32>, memref<2xi32>) -> ()
    call @load(%two, %x, %y) : (memref<2xi32>, memref<2xi32>, memref<2xi32>) -> ()
    call @load(%again, %x, %z) : (memref<2xi32>, memref<2xi32>, memref<2xi32>) -> ()
    call @load(%one, %two, %z) : (memref<2xi32>, memref<2xi32>, memref<2xi32>) -> ()
    call @load(%x, %y, %z) : (memref<2xi32>, memref<2xi32>, memref<2xi32>) -> ()
    return
  }
}
