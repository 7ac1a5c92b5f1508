// RUN: sparse-opt %s --bsr-move-constants | FileCheck %s --implicit-check-not=@inner_

// What a kernel calls goes with the kernel: the copy that takes its place calls it,
// too, with what it has, and nobody needs a copy of that.

// CHECK-LABEL: func.func @step(
// CHECK-NEXT:    call @[[OUTER:.*]](%{{.*}}) : (memref<2xi32>) -> ()
// CHECK:       func.func private @inner(
// CHECK:       func.func private @[[OUTER]](
// CHECK:         call @inner(
module attributes {bsr.target = #bsr.gpu} {
  memref.global "private" constant @one : memref<2xi32> = dense<[0, 3]>
  func.func @step(%x: memref<2xi32>) {
    %0 = memref.get_global @one : memref<2xi32>
    call @outer(%0, %x) : (memref<2xi32>, memref<2xi32>) -> ()
    return
  }
  func.func private @outer(%p: memref<2xi32>, %x: memref<2xi32>) {
    %0 = memref.get_global @one : memref<2xi32>
    call @inner(%0, %x) : (memref<2xi32>, memref<2xi32>) -> ()
    return
  }
  func.func private @inner(%p: memref<2xi32>, %x: memref<2xi32>) {
    scf.forall (%i) in (2) {
      %0 = memref.load %p[%i] : memref<2xi32>
      memref.store %0, %x[%i] : memref<2xi32>
    }
    return
  }
}
