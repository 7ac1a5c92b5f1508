// RUN: sparse-opt %s --bsr-divide-step=max-calls=2 --split-input-file | FileCheck %s
// RUN: sparse-opt %s --bsr-divide-step --split-input-file | FileCheck %s --check-prefix=WHOLE

// WHOLE-NOT: _part

llvm.func @kernel(!llvm.ptr)
llvm.func @scale(!llvm.ptr, f32)

// What two calls read of the step are arguments, once each; addresses and
// constants are computed again.
// CHECK:       llvm.func internal @step_part(%[[ARENA:.*]]: !llvm.ptr, %[[RATE:.*]]: f32, %[[BUFFERS:.*]]: !llvm.ptr) attributes {no_inline}
// CHECK-NEXT:    %[[OFFSET:.*]] = llvm.mlir.constant(64 : i64)
// CHECK-NEXT:    %[[VIEW:.*]] = llvm.getelementptr %[[ARENA]][%[[OFFSET]]]
// CHECK-NEXT:    llvm.call @scale(%[[VIEW]], %[[RATE]])
// CHECK-NEXT:    %[[FIRST_AT:.*]] = llvm.getelementptr %[[BUFFERS]][8]
// CHECK-NEXT:    %[[FIRST:.*]] = llvm.load %[[FIRST_AT]]
// CHECK-NEXT:    llvm.call @kernel(%[[FIRST]])
// CHECK-NEXT:    llvm.return
// CHECK:       llvm.func internal @step_part_0(%[[ARENA:.*]]: !llvm.ptr) attributes {no_inline}
// CHECK-NEXT:    %[[OFFSET:.*]] = llvm.mlir.constant(64 : i64)
// CHECK-NEXT:    %[[VIEW:.*]] = llvm.getelementptr %[[ARENA]][%[[OFFSET]]]
// CHECK-NEXT:    llvm.call @kernel(%[[VIEW]])
// CHECK-NEXT:    llvm.call @kernel(%[[ARENA]])
// CHECK-NEXT:    llvm.return
// CHECK:       llvm.func internal @step(%[[BUFFERS:.*]]: !llvm.ptr, %[[ARENA:.*]]: !llvm.ptr)
// CHECK:         %[[RATE:.*]] = llvm.load %{{.*}} -> f32
// CHECK:         llvm.call @step_part(%[[ARENA]], %[[RATE]], %[[BUFFERS]])
// CHECK-NEXT:    llvm.call @step_part_0(%[[ARENA]])
// The last call is alone.
// CHECK-NEXT:    llvm.call @scale(%[[BUFFERS]], %[[RATE]])
// CHECK-NEXT:    llvm.return
llvm.func internal @step(%buffers: !llvm.ptr, %arena: !llvm.ptr) {
  %offset = llvm.mlir.constant(64 : i64) : i64
  %view = llvm.getelementptr %arena[%offset] : (!llvm.ptr, i64) -> !llvm.ptr, i8
  %rate = llvm.load %buffers : !llvm.ptr -> f32
  llvm.call @scale(%view, %rate) : (!llvm.ptr, f32) -> ()
  %first_at = llvm.getelementptr %buffers[8] : (!llvm.ptr) -> !llvm.ptr, i8
  %first = llvm.load %first_at : !llvm.ptr -> !llvm.ptr
  llvm.call @kernel(%first) : (!llvm.ptr) -> ()
  llvm.call @kernel(%view) : (!llvm.ptr) -> ()
  llvm.call @kernel(%arena) : (!llvm.ptr) -> ()
  llvm.call @scale(%buffers, %rate) : (!llvm.ptr, f32) -> ()
  llvm.return
}

// -----

// A call that returns something, another operation, and a load that more than
// one call reads or that stands elsewhere stay where they are: in front of and
// behind them are other parts.
llvm.func @kernel(!llvm.ptr)
llvm.func @now() -> i64

// CHECK-LABEL: llvm.func internal @timed_part(
// CHECK:         llvm.call @kernel
// CHECK-NEXT:    llvm.call @kernel
// CHECK-NEXT:    llvm.return
// CHECK-LABEL: llvm.func internal @timed(
// CHECK:         llvm.call @kernel
// CHECK-NEXT:    %[[TIME:.*]] = llvm.call @now()
// CHECK-NEXT:    llvm.call @kernel
// CHECK-NEXT:    llvm.store %[[TIME]]
// CHECK-NEXT:    %[[SHARED:.*]] = llvm.load
// CHECK-NEXT:    llvm.call @timed_part(%[[SHARED]])
// CHECK-NEXT:    llvm.return
llvm.func internal @timed(%buffers: !llvm.ptr, %arena: !llvm.ptr) {
  llvm.call @kernel(%arena) : (!llvm.ptr) -> ()
  %time = llvm.call @now() : () -> i64
  llvm.call @kernel(%arena) : (!llvm.ptr) -> ()
  llvm.store %time, %arena : i64, !llvm.ptr
  %shared = llvm.load %buffers : !llvm.ptr -> !llvm.ptr
  llvm.call @kernel(%shared) : (!llvm.ptr) -> ()
  llvm.call @kernel(%shared) : (!llvm.ptr) -> ()
  llvm.return
}
