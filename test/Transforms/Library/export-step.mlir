// RUN: sparse-opt %s --bsr-export-step --split-input-file --verify-diagnostics | FileCheck %s

// CHECK:       llvm.func @memcpy(
// CHECK:       llvm.func internal @kernel(%{{.*}}: !llvm.ptr) attributes {no_inline}
// CHECK:       llvm.func internal @step(%[[TABLE:.*]]: !llvm.ptr, %{{.*}}: !llvm.ptr)
// CHECK-NOT:     bsr.
// CHECK-NEXT:    %[[STORED_AT:.*]] = llvm.getelementptr %[[TABLE]][1] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr
// CHECK-NEXT:    %[[STORED:.*]] = llvm.load %[[STORED_AT]]
// CHECK:         %[[AT_FIRST:.*]] = llvm.getelementptr %[[TABLE]][0]
// CHECK-NEXT:    %[[FIRST:.*]] = llvm.load %[[AT_FIRST]]
// CHECK-NEXT:    llvm.call @kernel(%[[FIRST]])
// CHECK-NEXT:    llvm.store %{{.*}}, %[[STORED]]
// CHECK-NEXT:    %[[AT_SECOND:.*]] = llvm.getelementptr %[[TABLE]][0]
// CHECK-NEXT:    %[[SECOND:.*]] = llvm.load %[[AT_SECOND]]
// CHECK-NEXT:    llvm.call @kernel(%[[SECOND]])
// CHECK-NEXT:    llvm.return
// CHECK:       llvm.func @bsr_step_run(%[[CONTEXT:.*]]: !llvm.ptr, %[[BUFFERS:.*]]: !llvm.ptr, %[[ARENA:.*]]: !llvm.ptr) -> i32 {
// CHECK-NEXT:    %[[VERSION_AT:.*]] = llvm.getelementptr %[[CONTEXT]][0] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK-NEXT:    %[[VERSION:.*]] = llvm.load %[[VERSION_AT]] : !llvm.ptr -> i32
// CHECK-NEXT:    %[[V:.*]] = llvm.mlir.constant(1 : i32)
// CHECK-NEXT:    %[[IS_VERSION:.*]] = llvm.icmp "eq" %[[VERSION]], %[[V]]
// CHECK-NEXT:    %[[OTHER_VERSION:.*]] = llvm.mlir.constant(1 : i32)
// CHECK-NEXT:    llvm.cond_br %[[IS_VERSION]], ^[[NEXT:.*]], ^[[REFUSE:.*]](%[[OTHER_VERSION]], %[[V]] : i32, i32)
// CHECK-NEXT:  ^[[NEXT]]:
// CHECK-NEXT:    %[[DEVICE_AT:.*]] = llvm.getelementptr %[[CONTEXT]][4] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK-NEXT:    %[[DEVICE:.*]] = llvm.load %[[DEVICE_AT]] : !llvm.ptr -> i32
// CHECK-NEXT:    %[[HOST:.*]] = llvm.mlir.constant(0 : i32)
// CHECK-NEXT:    %[[IS_HOST:.*]] = llvm.icmp "eq" %[[DEVICE]], %[[HOST]]
// CHECK-NEXT:    %[[OTHER_DEVICE:.*]] = llvm.mlir.constant(2 : i32)
// CHECK-NEXT:    llvm.cond_br %[[IS_HOST]], ^[[CALL:.*]], ^[[REFUSE]](%[[OTHER_DEVICE]], %[[HOST]] : i32, i32)
// CHECK-NEXT:  ^[[CALL]]:
// CHECK-NEXT:    llvm.call @step(%[[BUFFERS]], %[[ARENA]])
// CHECK-NEXT:    %[[RAN:.*]] = llvm.mlir.constant(0 : i32)
// CHECK-NEXT:    llvm.return %[[RAN]]
// CHECK-NEXT:  ^[[REFUSE]](%[[STATUS:.*]]: i32, %[[COMPILED_FOR:.*]]: i32):
// CHECK-NEXT:    %[[ERROR_AT:.*]] = llvm.getelementptr %[[CONTEXT]][16] : (!llvm.ptr) -> !llvm.ptr, i8
// CHECK-NEXT:    llvm.store %[[COMPILED_FOR]], %[[ERROR_AT]] : i32, !llvm.ptr
// CHECK-NEXT:    llvm.return %[[STATUS]]
llvm.func @memcpy(!llvm.ptr, !llvm.ptr, i64)
llvm.func @kernel(%x: !llvm.ptr) {
  llvm.return
}
// A call loads the addresses that it is given, also those out of a descriptor.
llvm.func @step(%x: !llvm.ptr {bsr.name = "x"}, %y: !llvm.ptr {bsr.name = "y"}, %arena: !llvm.ptr)
    attributes {bsr.arena_bytes = 64 : i64} {
  %0 = llvm.mlir.poison : !llvm.struct<(ptr, ptr, i64)>
  %1 = llvm.insertvalue %x, %0[0] : !llvm.struct<(ptr, ptr, i64)>
  %2 = llvm.insertvalue %x, %1[1] : !llvm.struct<(ptr, ptr, i64)>
  llvm.call @kernel(%x) : (!llvm.ptr) -> ()
  llvm.store %arena, %y : !llvm.ptr, !llvm.ptr
  %3 = llvm.extractvalue %2[1] : !llvm.struct<(ptr, ptr, i64)>
  llvm.call @kernel(%3) : (!llvm.ptr) -> ()
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
