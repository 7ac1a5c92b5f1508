// RUN: sparse-opt %s --split-input-file --bsr-start-reductions=bucket-bytes=32 | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-start-reductions=bucket-bytes=1 | FileCheck %s --check-prefix=ALONE
// RUN: sparse-opt %s --split-input-file --bsr-start-reductions | FileCheck %s --check-prefix=ALL
// RUN: not sparse-opt %s --split-input-file --bsr-start-reductions=bucket-bytes=-1 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: error: expected bucket-bytes to be 0 at least, but got -1

// A bucket is full with its second tensor of 16 bytes. The last ones wait for no
// more when what reads one of them comes, in a view or in a branch.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[A:[a-z0-9]*]]: memref<4xf32> {bsr.name = "a"}, %[[B:[a-z0-9]*]]: memref<2x2xf32> {bsr.name = "b"}, %[[C:[a-z0-9]*]]: memref<4xf32> {bsr.name = "c"}, %[[H:[a-z0-9]*]]: memref<4xf16> {bsr.name = "h"}, %[[D:[a-z0-9]*]]: memref<1xf32>
// CHECK:      call @kernel(%[[A]])
// CHECK-NEXT: call @kernel(%[[C]])
// CHECK-NEXT: %[[FIRST:.*]] = bsr.start_reduce %[[A]], %[[B]] : memref<4xf32>, memref<2x2xf32>
// CHECK-NEXT: %[[HALF:.*]] = bsr.start_reduce %[[H]] : memref<4xf16>
// CHECK-NEXT: %[[LAST:.*]] = bsr.start_reduce %[[C]], %[[D]] : memref<4xf32>, memref<1xf32>
// CHECK-NEXT: %[[VIEW:.*]] = memref.collapse_shape %[[B]]
// CHECK-NEXT: bsr.wait_reduce %[[FIRST]], %[[A]], %[[B]]
// CHECK-NEXT: call @kernel(%[[VIEW]])
// CHECK-NEXT: call @kernel(%[[A]])
// CHECK-NEXT: bsr.wait_reduce %[[LAST]], %[[C]], %[[D]]
// CHECK-NEXT: scf.if
// CHECK-NEXT: call @kernel(%[[C]])
// CHECK:      bsr.wait_reduce %[[HALF]], %[[H]]
// CHECK-NEXT: return

// ALL: bsr.start_reduce %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : memref<4xf32>, memref<2x2xf32>, memref<4xf32>, memref<1xf32>

// ALONE-COUNT-9: bsr.start_reduce %{{[a-z0-9]*}} : memref
// ALONE-NOT: bsr.start_reduce
func.func private @kernel(memref<4xf32>)
func.func @step(%a: memref<4xf32> {bsr.name = "a"}, %b: memref<2x2xf32> {bsr.name = "b"},
                %c: memref<4xf32> {bsr.name = "c"}, %h: memref<4xf16> {bsr.name = "h"},
                %d: memref<1xf32> {bsr.name = "d"}, %flag: i1 {bsr.name = "flag"}) attributes {bsr.communicates} {
  func.call @kernel(%a) : (memref<4xf32>) -> ()
  bsr.all_reduce %a : memref<4xf32>
  func.call @kernel(%c) : (memref<4xf32>) -> ()
  bsr.all_reduce %b : memref<2x2xf32>
  bsr.all_reduce %h : memref<4xf16>
  bsr.all_reduce %c : memref<4xf32>
  bsr.all_reduce %d : memref<1xf32>
  %view = memref.collapse_shape %b [[0, 1]] : memref<2x2xf32> into memref<4xf32>
  func.call @kernel(%view) : (memref<4xf32>) -> ()
  func.call @kernel(%a) : (memref<4xf32>) -> ()
  scf.if %flag {
    func.call @kernel(%c) : (memref<4xf32>) -> ()
  }
  return
}

// -----

// A reader between two means ends the bucket; the same buffer may be reduced again.
// Scores, which not all runs take, stay.
// CHECK-LABEL: func.func @between(
// CHECK:      %[[FIRST:.*]] = bsr.start_reduce %[[A:[a-z0-9]*]] :
// CHECK-NEXT: bsr.wait_reduce %[[FIRST]], %[[A]]
// CHECK-NEXT: call @kernel(%[[A]])
// CHECK-NEXT: %[[SECOND:.*]] = bsr.start_reduce %[[A]], %[[B:[a-z0-9]*]] :
// CHECK-NEXT: bsr.wait_reduce %[[SECOND]], %[[A]], %[[B]]
// CHECK-NEXT: %[[THIRD:.*]] = bsr.start_reduce %[[B]] :
// CHECK-NEXT: scf.if
// CHECK-NEXT: bsr.all_reduce
// CHECK:      bsr.wait_reduce %[[THIRD]], %[[B]]
// CHECK-NEXT: return
func.func private @kernel(memref<2xf32>)
func.func @between(%a: memref<2xf32> {bsr.name = "a"}, %b: memref<2xf32> {bsr.name = "b"},
                   %s: memref<2xf32> {bsr.name = "s"}, %scores: i1 {bsr.name = "scores"}) attributes {bsr.communicates} {
  bsr.all_reduce %a : memref<2xf32>
  func.call @kernel(%a) : (memref<2xf32>) -> ()
  bsr.all_reduce %a : memref<2xf32>
  bsr.all_reduce %b : memref<2xf32>
  bsr.all_reduce %b : memref<2xf32>
  scf.if %scores {
    bsr.all_reduce %s : memref<2xf32>
  }
  return
}
