// RUN: sparse-opt %s --bsr-hoist-memory --canonicalize | FileCheck %s

// A thread has the memory once, and no scope is left around a work item.
// CHECK-LABEL: func @work_items
// CHECK:         omp.parallel {
// CHECK-NEXT:      %[[SCRATCH:.*]] = memref.alloca() {alignment = 64 : i64} : memref<4xf32>
// CHECK-NEXT:      omp.wsloop {
// CHECK-NEXT:        omp.loop_nest
// CHECK-NOT:           memref.alloca
// CHECK:               memref.store %{{.*}}, %[[SCRATCH]]
func.func @work_items(%x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  omp.parallel {
    omp.wsloop {
      omp.loop_nest (%i) : index = (%c0) to (%c8) step (%c1) {
        memref.alloca_scope {
          %scratch = memref.alloca() {alignment = 64 : i64} : memref<4xf32>
          scf.for %j = %c0 to %i step %c1 {
            %0 = memref.load %x[%i] : memref<8xf32>
            memref.store %0, %scratch[%c0] : memref<4xf32>
          }
          %1 = memref.load %scratch[%c1] : memref<4xf32>
          memref.store %1, %x[%i] : memref<8xf32>
        }
        omp.yield
      }
    }
    omp.terminator
  }
  return
}

// Memory of a size that a work item computes stays there, and so does what no
// parallel region is around.
// CHECK-LABEL: func @others
// CHECK:         scf.for
// CHECK-NEXT:      memref.alloca() : memref<4xf32>
// CHECK:         omp.loop_nest
// CHECK:           memref.alloca_scope {
// CHECK-NEXT:        memref.alloca(%{{.*}}) : memref<?xf32>
func.func @others(%x: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %f = arith.constant 1.0 : f32
  scf.for %j = %c0 to %c8 step %c1 {
    %scratch = memref.alloca() : memref<4xf32>
    memref.store %f, %scratch[%c0] : memref<4xf32>
    %1 = memref.load %scratch[%j] : memref<4xf32>
    memref.store %1, %x[%j] : memref<8xf32>
  }
  omp.parallel {
    omp.wsloop {
      omp.loop_nest (%i) : index = (%c0) to (%c8) step (%c1) {
        memref.alloca_scope {
          %scratch = memref.alloca(%i) : memref<?xf32>
          memref.store %f, %scratch[%c0] : memref<?xf32>
          %1 = memref.load %scratch[%c1] : memref<?xf32>
          memref.store %1, %x[%i] : memref<8xf32>
        }
        omp.yield
      }
    }
    omp.terminator
  }
  return
}
