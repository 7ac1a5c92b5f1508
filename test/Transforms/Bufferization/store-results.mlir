// RUN: sparse-opt %s --bsr-store-results --split-input-file --verify-diagnostics | FileCheck %s

// Two arguments that swap: each is saved before the other is overwritten.
// CHECK-LABEL: func @swap
// CHECK-SAME:    %[[A:.*]]: memref<4xf32> {bsr.carried, bsr.name = "a"}, %[[B:.*]]: memref<4xf32> {bsr.carried, bsr.name = "b"}) {
// CHECK-NEXT:    %[[OLD_B:.*]] = memref.alloc()
// CHECK-NEXT:    memref.copy %[[B]], %[[OLD_B]]
// CHECK-NEXT:    %[[OLD_A:.*]] = memref.alloc()
// CHECK-NEXT:    memref.copy %[[A]], %[[OLD_A]]
// CHECK-NEXT:    memref.copy %[[OLD_B]], %[[A]]
// CHECK-NEXT:    memref.copy %[[OLD_A]], %[[B]]
// CHECK-NEXT:    return
func.func @swap(
    // expected-remark @below {{expected the next value of "b" to be computed in place, but got a copy at the end of the step}}
    %a: memref<4xf32> {bsr.name = "a", bsr.result = 0 : i64},
    // expected-remark @below {{expected the next value of "a" to be computed in place, but got a copy at the end of the step}}
    %b: memref<4xf32> {bsr.name = "b", bsr.result = 1 : i64}) -> (memref<4xf32>, memref<4xf32>) {
  return %b, %a : memref<4xf32>, memref<4xf32>
}

// -----

// One buffer, two results and an argument: the first output is that buffer. An
// argument that is an output is copied before it is overwritten.
// CHECK-LABEL: func @shared
// CHECK-SAME:    %[[A:[^:]*]]: memref<4xf32> {bsr.carried, bsr.name = "a"}
// CHECK-SAME:    %[[X:[^:]*]]: memref<4xf32> {bsr.kind = "output", bsr.name = "x"}
// CHECK-SAME:    %[[Y:[^:]*]]: memref<4xf32> {bsr.kind = "output", bsr.name = "y"}
// CHECK-SAME:    %[[OLD:[^:]*]]: memref<4xf32> {bsr.kind = "output", bsr.name = "old"}
// CHECK-NEXT:    call @fill(%[[X]])
// CHECK-NEXT:    memref.copy %[[X]], %[[Y]]
// CHECK-NEXT:    memref.copy %[[A]], %[[OLD]]
// CHECK-NEXT:    memref.copy %[[X]], %[[A]]
// CHECK-NEXT:    return
func.func private @fill(memref<4xf32>)
// expected-remark @below {{expected the next value of "a" to be computed in place}}
func.func @shared(
    %a: memref<4xf32> {bsr.name = "a", bsr.result = 2 : i64})
    -> (memref<4xf32> {bsr.name = "x"}, memref<4xf32> {bsr.name = "y"}, memref<4xf32>,
        memref<4xf32> {bsr.name = "old"}) {
  %new = memref.alloc() : memref<4xf32>
  call @fill(%new) : (memref<4xf32>) -> ()
  return %new, %new, %new, %a : memref<4xf32>, memref<4xf32>, memref<4xf32>, memref<4xf32>
}

// -----

// Only steps have buffers of a caller.
// CHECK-LABEL: func @no_step(%{{.*}}: memref<4xf32>) -> memref<4xf32>
func.func @no_step(%a: memref<4xf32>) -> memref<4xf32> {
  return %a : memref<4xf32>
}

// -----

// Scores stay in memory of the step's own, two of one buffer in two.
// CHECK-LABEL: func @scores
// CHECK-SAME:    (%{{[^:,]*}}: memref<4xf32> {bsr.name = "x"}) {
// CHECK-NEXT:    %[[S:.*]] = memref.alloc() {bsr.scores = "v"} : memref<2xf32>
// CHECK-NEXT:    call @norms(%{{.*}}, %[[S]])
// CHECK-NEXT:    %[[T:.*]] = memref.alloc() {bsr.scores = "w"} : memref<2xf32>
// CHECK-NEXT:    memref.copy %[[S]], %[[T]]
// CHECK-NEXT:    return
func.func private @norms(memref<4xf32>, memref<2xf32>)
func.func @scores(%x: memref<4xf32> {bsr.name = "x"})
    -> (memref<2xf32> {bsr.name = "v", bsr.role = "scores"}, memref<2xf32> {bsr.name = "w", bsr.role = "scores"}) {
  %s = memref.alloc() : memref<2xf32>
  call @norms(%x, %s) : (memref<4xf32>, memref<2xf32>) -> ()
  return %s, %s : memref<2xf32>, memref<2xf32>
}

// -----

// expected-error @below {{expected results in buffers, which bsr-bufferize makes, but got 'tensor<4xf32>'}}
func.func @step_on_tensors(%a: tensor<4xf32> {bsr.name = "a", bsr.result = 0 : i64}) -> tensor<4xf32> {
  return %a : tensor<4xf32>
}
