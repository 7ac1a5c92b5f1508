// RUN: sparse-opt %s --bsr-export-step --split-input-file --verify-diagnostics | FileCheck %s

// CHECK:       llvm.func @memcpy(
// CHECK:       llvm.func internal @kernel(%{{.*}}: !llvm.ptr) attributes {no_inline}
// CHECK:       llvm.func internal @step
// CHECK-NOT:     bsr.
// CHECK:       llvm.func @bsr_step_run(%[[BUFFERS:.*]]: !llvm.ptr, %[[ARENA:.*]]: !llvm.ptr) {
// CHECK-NEXT:    %[[P0:.*]] = llvm.getelementptr %[[BUFFERS]][0]
// CHECK-NEXT:    %[[A0:.*]] = llvm.load %[[P0]]
// CHECK-NEXT:    %[[P1:.*]] = llvm.getelementptr %[[BUFFERS]][1]
// CHECK-NEXT:    %[[A1:.*]] = llvm.load %[[P1]]
// CHECK-NEXT:    llvm.call @step(%[[A0]], %[[A1]], %[[ARENA]])
// CHECK-NEXT:    llvm.return
llvm.func @memcpy(!llvm.ptr, !llvm.ptr, i64)
llvm.func @kernel(%x: !llvm.ptr) {
  llvm.return
}
llvm.func @step(%x: !llvm.ptr {bsr.name = "x"}, %y: !llvm.ptr {bsr.name = "y"}, %arena: !llvm.ptr)
    attributes {bsr.arena_bytes = 64 : i64} {
  llvm.call @kernel(%x) : (!llvm.ptr) -> ()
  llvm.return
}

// -----

// expected-error @below {{expected a function with bsr.arena_bytes, but got none}}
module {
  llvm.func @step(%x: !llvm.ptr {bsr.name = "x"}) {
    llvm.return
  }
}

// -----

// A step with a flag has two entry points.
// CHECK:       llvm.func @bsr_step_run_scores(
// CHECK:         %[[YES:.*]] = llvm.mlir.constant(true)
// CHECK-NEXT:    llvm.call @step(%{{.*}}, %[[YES]], %{{.*}})
// CHECK:       llvm.func @bsr_step_run(
// CHECK:         %[[NO:.*]] = llvm.mlir.constant(false)
// CHECK-NEXT:    llvm.call @step(%{{.*}}, %[[NO]], %{{.*}})
llvm.func @step(%x: !llvm.ptr {bsr.name = "x"}, %scores: i1 {bsr.kind = "flag", bsr.name = "scores"}, %arena: !llvm.ptr)
    attributes {bsr.arena_bytes = 64 : i64} {
  llvm.return
}

// -----

// expected-error @below {{expected a step whose last argument is its arena, but got @step}}
llvm.func @step() attributes {bsr.arena_bytes = 0 : i64} {
  llvm.return
}
