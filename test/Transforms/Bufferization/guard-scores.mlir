// RUN: sparse-opt %s --bsr-guard-scores | FileCheck %s

func.func private @scores(memref<8xf32>, memref<2xf32>)
func.func private @use(memref<8xf32>, memref<8xf32>)

// Calls that write scores, wherever they are, and no others.
// CHECK-LABEL: func @step
// CHECK-SAME:    %[[FLAG:[^:]*]]: i1 {bsr.kind = "flag", bsr.name = "scores"})
// CHECK:         %[[S:.*]] = memref.alloc() {bsr.scores = "w"}
// CHECK:         scf.if %[[FLAG]] {
// CHECK-NEXT:      func.call @scores(%{{.*}}, %[[S]])
// CHECK-NEXT:    }
// CHECK-NEXT:    call @use
// CHECK-NEXT:    return
func.func @step(%x: memref<8xf32> {bsr.name = "x"}) {
  %s = memref.alloc() {bsr.scores = "w"} : memref<2xf32>
  %y = memref.alloc() : memref<8xf32>
  call @scores(%x, %s) : (memref<8xf32>, memref<2xf32>) -> ()
  call @use(%x, %y) : (memref<8xf32>, memref<8xf32>) -> ()
  return
}

// CHECK-LABEL: func @without
// CHECK-NOT:     i1
// CHECK:         return
func.func @without(%x: memref<8xf32> {bsr.name = "x"}) {
  %y = memref.alloc() : memref<8xf32>
  call @use(%x, %y) : (memref<8xf32>, memref<8xf32>) -> ()
  return
}
