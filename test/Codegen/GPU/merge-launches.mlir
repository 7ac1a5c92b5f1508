// RUN: sparse-opt %s --split-input-file --bsr-outline-launches --inline --bsr-merge-launches --canonicalize | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-outline-launches --inline --bsr-merge-launches --mlir-disable-threading --mlir-debug-counter=bsr-merge-launches-count=0 | FileCheck %s --check-prefix=SKIPPED
// SKIPPED-NOT: @scale_3
// RUN: sparse-opt %s --split-input-file --bsr-outline-launches --inline --bsr-merge-launches --mlir-disable-threading --remarks-filter=bsr-merge-launches -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: [Passed] LaunchesMerged | Category:bsr-merge-launches | Function=step | Kernel=scale, Launches=3

// Launches of one kernel on other data are one, in the place of the last; what all get is passed once, and the operations
// of all count. A launch in between that touches
// none of their data goes first.

// CHECK-LABEL: func @step(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<256xf32>, %[[Y:[a-z0-9]+]]: memref<256xf32>, %[[Z:[a-z0-9]+]]: memref<256xf32>, %[[S:[a-z0-9]+]]: memref<f32>, %[[O:[a-z0-9]+]]: memref<256xf32>)
// CHECK:         gpu.launch_func @kernels::@other {{.*}} args(%[[O]] : memref<256xf32>)
// CHECK-NEXT:    gpu.launch_func @kernels::@scale_3 blocks in (%c2, %c3, %c1) threads in (%c128, %c1, %c1) args(%[[X]] : memref<256xf32>, %[[Y]] : memref<256xf32>, %[[Z]] : memref<256xf32>, %[[S]] : memref<f32>) {bsr.flops = 768 : i64, bsr.kind = "elementwise"}
// CHECK-NEXT:    return
// CHECK-NOT:     gpu.func @scale(
// CHECK:         gpu.func @scale_3(%[[A:.*]]: memref<256xf32>, %[[B:.*]]: memref<256xf32>, %[[C:.*]]: memref<256xf32>, %[[D:.*]]: memref<f32>) kernel attributes {{{.*}}known_grid_size = array<i32: 2, 3, 1>
// CHECK:           %[[NUMBER:.*]] = gpu.block_id y
// CHECK-DAG:       %[[LOW:.*]] = arith.andi %[[NUMBER]], %c1
// CHECK-DAG:       %[[IS1:.*]] = arith.cmpi ne, %[[LOW]], %c0
// CHECK-DAG:       %[[HIGH:.*]] = arith.andi %[[NUMBER]], %c2
// CHECK-DAG:       %[[IS2:.*]] = arith.cmpi ne, %[[HIGH]], %c0
// CHECK:           %[[FIRST:.*]] = arith.select %[[IS1]], %[[B]], %[[A]] : memref<256xf32>
// CHECK:           %[[MINE:.*]] = arith.select %[[IS2]], %[[C]], %[[FIRST]] : memref<256xf32>
// CHECK:           memref.load %[[MINE]]
// CHECK:           memref.load %[[D]]
// CHECK:           memref.store %{{.*}}, %[[MINE]]
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  func.func private @scale(%x: memref<256xf32>, %s: memref<f32>) attributes {bsr.flops = 256 : i64, bsr.kind = "elementwise"} {
    scf.forall (%i) in (256) {
      %0 = memref.load %x[%i] : memref<256xf32>
      %1 = memref.load %s[] : memref<f32>
      %2 = arith.mulf %0, %1 : f32
      memref.store %2, %x[%i] : memref<256xf32>
    }
    return
  }
  func.func private @other(%x: memref<256xf32>) attributes {bsr.kind = "reduction"} {
    %c = arith.constant 1.0 : f32
    scf.forall (%i) in (256) {
      memref.store %c, %x[%i] : memref<256xf32>
    }
    return
  }
  func.func @step(%x: memref<256xf32>, %y: memref<256xf32>, %z: memref<256xf32>, %s: memref<f32>, %o: memref<256xf32>) {
    call @scale(%x, %s) : (memref<256xf32>, memref<f32>) -> ()
    call @scale(%y, %s) : (memref<256xf32>, memref<f32>) -> ()
    call @other(%o) : (memref<256xf32>) -> ()
    call @scale(%z, %s) : (memref<256xf32>, memref<f32>) -> ()
    return
  }
}

// -----

// Not those that write what another reads or writes, or what a launch in between does; bytes of the arena are compared one by one.

// CHECK-LABEL: func @step(
// CHECK-SAME:    %[[ARENA:[a-z0-9]+]]: memref<4096xi8>, %[[X:[a-z0-9]+]]: memref<256xf32>, %[[Y:[a-z0-9]+]]: memref<256xf32>)
// CHECK-DAG:     %[[A:.*]] = memref.view %[[ARENA]][%c0]
// CHECK-DAG:     %[[B:.*]] = memref.view %[[ARENA]][%c1024]
// CHECK-DAG:     %[[C:.*]] = memref.view %[[ARENA]][%c960]
// CHECK-DAG:     %[[D:.*]] = memref.view %[[ARENA]][%c2048]
// CHECK:         gpu.launch_func @kernels::@add_2 blocks in (%c2, %c2, %c1) {{.*}} args(%[[X]] : memref<256xf32>, %[[A]] : memref<256xf32>, %[[B]] : memref<256xf32>)
// CHECK-NEXT:    gpu.launch_func @kernels::@add blocks in (%c2, %c1, %c1) {{.*}} args(%[[A]] : memref<256xf32>, %[[Y]] : memref<256xf32>)
// CHECK-NEXT:    gpu.launch_func @kernels::@add blocks in (%c2, %c1, %c1) {{.*}} args(%[[X]] : memref<256xf32>, %[[C]] : memref<256xf32>)
// CHECK-NEXT:    gpu.launch_func @kernels::@sum {{.*}} args(%[[C]] : memref<256xf32>, %[[Y]] : memref<256xf32>)
// CHECK-NEXT:    gpu.launch_func @kernels::@add blocks in (%c2, %c1, %c1) {{.*}} args(%[[X]] : memref<256xf32>, %[[D]] : memref<256xf32>)
// CHECK-NEXT:    return
module attributes {bsr.target = #bsr.gpu<chip = "sm_80">} {
  func.func private @add(%x: memref<256xf32>, %y: memref<256xf32>) attributes {bsr.kind = "elementwise"} {
    scf.forall (%i) in (256) {
      %0 = memref.load %x[%i] : memref<256xf32>
      memref.store %0, %y[%i] : memref<256xf32>
    }
    return
  }
  func.func private @sum(%x: memref<256xf32>, %y: memref<256xf32>) attributes {bsr.kind = "reduction"} {
    scf.forall (%i) in (256) {
      %0 = memref.load %x[%i] : memref<256xf32>
      memref.store %0, %y[%i] : memref<256xf32>
    }
    return
  }
  func.func @step(%arena: memref<4096xi8>, %x: memref<256xf32>, %y: memref<256xf32>) {
    %c0 = arith.constant 0 : index
    %c960 = arith.constant 960 : index
    %c1024 = arith.constant 1024 : index
    %c2048 = arith.constant 2048 : index
    %a = memref.view %arena[%c0][] : memref<4096xi8> to memref<256xf32>
    %b = memref.view %arena[%c1024][] : memref<4096xi8> to memref<256xf32>
    %c = memref.view %arena[%c960][] : memref<4096xi8> to memref<256xf32>
    %d = memref.view %arena[%c2048][] : memref<4096xi8> to memref<256xf32>
    call @add(%x, %a) : (memref<256xf32>, memref<256xf32>) -> ()
    call @add(%x, %b) : (memref<256xf32>, memref<256xf32>) -> ()
    call @add(%a, %y) : (memref<256xf32>, memref<256xf32>) -> ()
    call @add(%x, %c) : (memref<256xf32>, memref<256xf32>) -> ()
    call @sum(%c, %y) : (memref<256xf32>, memref<256xf32>) -> ()
    call @add(%x, %d) : (memref<256xf32>, memref<256xf32>) -> ()
    return
  }
}
