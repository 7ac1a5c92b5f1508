// RUN: sparse-opt %s --bsr-reuse-state | FileCheck %s
// RUN: sparse-opt %s --bsr-reuse-state --mlir-disable-threading --mlir-debug-counter=bsr-reuse-state-count=0 | FileCheck %s --check-prefix=SKIPPED
// RUN: sparse-opt %s --bsr-reuse-state --mlir-disable-threading --remarks-filter=bsr-reuse-state -o /dev/null 2>&1 | FileCheck %s --check-prefix=REMARK

// SKIPPED-NOT: bsr.launch {{.*}} outs(%arg
// REMARK: [Passed] InPlace | Category:bsr-reuse-state | Function=optimizer | Argument=w, Kernel=update
// REMARK: [Passed] InPlace | Category:bsr-reuse-state | Function=optimizer | Argument=m, Kernel=update
// REMARK: [Missed] NotInPlace | Category:bsr-reuse-state | Function=both | Argument=w, Kernel=decay, Remark="expected the old value to be read before the kernel that makes the next one, but got a reader that needs both"

func.func private @update(memref<8xf32>, memref<8xf32>, memref<8xf32>, memref<8xf32>)
func.func private @decay(memref<8xf32>, memref<8xf32>)
func.func private @flat(memref<2x4xf32>, memref<2x4xf32>)
func.func private @norm(memref<8xf32>, memref<f32>)

// A weight and its moment, both made by one kernel.
// CHECK-LABEL: func @optimizer
// CHECK-SAME:    %[[W:[^:]*]]: tensor<8xf32> {{{.*}}}, %[[M:[^:]*]]: tensor<8xf32> {
// CHECK:         bsr.launch @update ins(%[[M]], %[[W]] : {{.*}}) outs(%[[M]], %[[W]] :
func.func @optimizer(%w: tensor<8xf32> {bsr.name = "w", bsr.result = 0 : i64},
                     %m: tensor<8xf32> {bsr.name = "m", bsr.result = 1 : i64})
    -> (tensor<8xf32>, tensor<8xf32>) {
  %init = tensor.empty() : tensor<8xf32>
  %next:2 = bsr.launch @update ins(%m, %w : tensor<8xf32>, tensor<8xf32>)
      outs(%init, %init : tensor<8xf32>, tensor<8xf32>) in_place = [0, 1] -> tensor<8xf32>, tensor<8xf32>
  return %next#1, %next#0 : tensor<8xf32>, tensor<8xf32>
}

// The kernel moves behind the last reader, and what reads its result with it.
// CHECK-LABEL: func @sink
// CHECK-SAME:    %[[W:[^:]*]]: tensor<8xf32> {
// CHECK:         %[[OLD:.*]] = bsr.launch @norm ins(%[[W]] :
// CHECK-NEXT:    %[[NEXT:.*]] = bsr.launch @decay ins(%[[W]] : {{.*}}) outs(%[[W]] :
// CHECK-NEXT:    %[[NEW:.*]] = bsr.launch @norm ins(%[[NEXT]] :
// CHECK-NEXT:    return %[[NEXT]], %[[OLD]], %[[NEW]]
func.func @sink(%w: tensor<8xf32> {bsr.name = "w", bsr.result = 0 : i64})
    -> (tensor<8xf32>, tensor<f32> {bsr.name = "old"}, tensor<f32> {bsr.name = "new"}) {
  %init = tensor.empty() : tensor<8xf32>
  %scalar = tensor.empty() : tensor<f32>
  %next = bsr.launch @decay ins(%w : tensor<8xf32>) outs(%init : tensor<8xf32>) in_place = [0] -> tensor<8xf32>
  %new = bsr.launch @norm ins(%next : tensor<8xf32>) outs(%scalar : tensor<f32>) -> tensor<f32>
  %old = bsr.launch @norm ins(%w : tensor<8xf32>) outs(%scalar : tensor<f32>) -> tensor<f32>
  return %next, %old, %new : tensor<8xf32>, tensor<f32>, tensor<f32>
}

// A kernel that sees the argument in another shape.
// CHECK-LABEL: func @views
// CHECK-SAME:    %[[W:[^:]*]]: tensor<8xf32> {
// CHECK:         bsr.launch @norm
// CHECK:         %[[INIT:.*]] = tensor.expand_shape %[[W]] {{\[\[}}0, 1]] output_shape [2, 4]
// CHECK:         bsr.launch @flat ins(%{{.*}}) outs(%[[INIT]] :
func.func @views(%w: tensor<8xf32> {bsr.name = "w", bsr.result = 0 : i64})
    -> (tensor<8xf32>, tensor<f32> {bsr.name = "norm"}) {
  %wide = tensor.expand_shape %w [[0, 1]] output_shape [2, 4] : tensor<8xf32> into tensor<2x4xf32>
  %init = tensor.empty() : tensor<2x4xf32>
  %scalar = tensor.empty() : tensor<f32>
  %next = bsr.launch @flat ins(%wide : tensor<2x4xf32>) outs(%init : tensor<2x4xf32>) in_place = [0] -> tensor<2x4xf32>
  %narrow = tensor.collapse_shape %next [[0, 1]] : tensor<2x4xf32> into tensor<8xf32>
  %norm = bsr.launch @norm ins(%w : tensor<8xf32>) outs(%scalar : tensor<f32>) -> tensor<f32>
  return %narrow, %norm : tensor<8xf32>, tensor<f32>
}

// A reader of both the old and the new value: nothing to do.
// CHECK-LABEL: func @both
// CHECK:         %[[INIT:.*]] = tensor.empty() : tensor<8xf32>
// CHECK:         bsr.launch @decay ins(%{{.*}}) outs(%[[INIT]] :
func.func @both(%w: tensor<8xf32> {bsr.name = "w", bsr.result = 0 : i64})
    -> (tensor<8xf32>, tensor<8xf32> {bsr.name = "y"}) {
  %init = tensor.empty() : tensor<8xf32>
  %next = bsr.launch @decay ins(%w : tensor<8xf32>) outs(%init : tensor<8xf32>) in_place = [0] -> tensor<8xf32>
  %y:2 = bsr.launch @update ins(%w, %next : tensor<8xf32>, tensor<8xf32>)
      outs(%init, %init : tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>, tensor<8xf32>
  return %next, %y#0 : tensor<8xf32>, tensor<8xf32>
}

// A kernel that does not read in place.
// CHECK-LABEL: func @not_in_place
// CHECK:         %[[INIT:.*]] = tensor.empty() : tensor<8xf32>
// CHECK:         bsr.launch @decay ins(%{{.*}}) outs(%[[INIT]] :
func.func @not_in_place(%w: tensor<8xf32> {bsr.name = "w", bsr.result = 0 : i64}) -> tensor<8xf32> {
  %init = tensor.empty() : tensor<8xf32>
  %next = bsr.launch @decay ins(%w : tensor<8xf32>) outs(%init : tensor<8xf32>) -> tensor<8xf32>
  return %next : tensor<8xf32>
}

// A kernel that reads a part of the argument, if in place.
// CHECK-LABEL: func @slice
// CHECK:         %[[INIT:.*]] = tensor.empty() : tensor<8xf32>
// CHECK:         bsr.launch @decay ins(%{{.*}}) outs(%[[INIT]] :
func.func @slice(%w: tensor<9xf32> {bsr.name = "w"}, %v: tensor<8xf32> {bsr.name = "v", bsr.result = 0 : i64})
    -> tensor<8xf32> {
  %init = tensor.empty() : tensor<8xf32>
  %part = tensor.extract_slice %v[0] [8] [1] : tensor<8xf32> to tensor<8xf32>
  %next = bsr.launch @decay ins(%part : tensor<8xf32>) outs(%init : tensor<8xf32>) in_place = [0] -> tensor<8xf32>
  return %next : tensor<8xf32>
}

// The old value is a result.
// CHECK-LABEL: func @returned
// CHECK:         %[[INIT:.*]] = tensor.empty() : tensor<8xf32>
// CHECK:         bsr.launch @decay ins(%{{.*}}) outs(%[[INIT]] :
func.func @returned(%w: tensor<8xf32> {bsr.name = "w", bsr.result = 0 : i64})
    -> (tensor<8xf32>, tensor<8xf32> {bsr.name = "old"}) {
  %init = tensor.empty() : tensor<8xf32>
  %next = bsr.launch @decay ins(%w : tensor<8xf32>) outs(%init : tensor<8xf32>) in_place = [0] -> tensor<8xf32>
  return %next, %w : tensor<8xf32>, tensor<8xf32>
}

// What a loop carries stays in one buffer: a value that is the old one of another is
// copied, the next value is put where the old one was.
// CHECK-LABEL: func @loop
// CHECK:         scf.for {{.*}} iter_args(%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}}, %[[C:.*]] = %{{.*}}, %{{.*}} = %{{.*}})
// CHECK:           %[[NEXT:.*]] = bsr.launch
// CHECK-NEXT:      arith.addi
// CHECK-NEXT:      %[[OLD:.*]] = bufferization.alloc_tensor() copy(%[[A]])
// CHECK-NEXT:      %[[NEXT_A:.*]] = bufferization.materialize_in_destination %[[NEXT]] in %[[A]]
// CHECK-NEXT:      %[[NEXT_B:.*]] = bufferization.materialize_in_destination %[[OLD]] in %[[B]]
// CHECK-NEXT:      scf.yield %[[NEXT_A]], %[[NEXT_B]], %[[C]], %{{.*}} :
func.func @loop(%w: tensor<8xf32> {bsr.name = "w"}, %lo: index, %hi: index) -> (tensor<8xf32> {bsr.name = "y"}) {
  %init = tensor.empty() : tensor<8xf32>
  %0:4 = scf.for %i = %lo to %hi step %hi iter_args(%a = %w, %b = %w, %c = %w, %n = %lo)
      -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, index) {
    %next = bsr.launch @decay ins(%b : tensor<8xf32>) outs(%init : tensor<8xf32>) -> tensor<8xf32>
    %m = arith.addi %n, %hi : index
    scf.yield %next, %a, %c, %m : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, index
  }
  return %0#1 : tensor<8xf32>
}

// CHECK-LABEL: func @loop_until
// CHECK:         scf.while (%[[A:.*]] = %{{.*}}, %[[B:.*]] = %{{.*}})
// CHECK:           %[[OLD:.*]] = bufferization.alloc_tensor() copy(%[[B]])
// CHECK:           %[[FIRST:.*]] = bufferization.materialize_in_destination %[[OLD]] in %[[A]]
// CHECK:           scf.condition(%{{.*}}) %[[FIRST]], %{{.*}} :
// CHECK:         ^bb0(%[[C:.*]]: tensor<8xf32>, %[[D:.*]]: tensor<8xf32>):
// CHECK-NEXT:      %[[NEXT:.*]] = bsr.launch
// CHECK-NEXT:      %[[PUT:.*]] = bufferization.materialize_in_destination %[[NEXT]] in %[[C]]
// CHECK-NEXT:      scf.yield %[[PUT]], %[[D]] :
func.func @loop_until(%w: tensor<8xf32> {bsr.name = "w"}, %go: i1) -> (tensor<8xf32> {bsr.name = "y"}) {
  %init = tensor.empty() : tensor<8xf32>
  %0:2 = scf.while (%a = %w, %b = %w) : (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
    scf.condition(%go) %b, %a : tensor<8xf32>, tensor<8xf32>
  } do {
  ^bb0(%c: tensor<8xf32>, %d: tensor<8xf32>):
    %next = bsr.launch @decay ins(%d : tensor<8xf32>) outs(%init : tensor<8xf32>) -> tensor<8xf32>
    scf.yield %next, %d : tensor<8xf32>, tensor<8xf32>
  }
  return %0#1 : tensor<8xf32>
}

// What a condition passes on that is not what the loop carries has a buffer, too.
// CHECK-LABEL: func @loop_passes
// CHECK:         %[[EMPTY:.*]] = tensor.empty() : tensor<8xf32>
// CHECK:         %[[R:.*]]:3 = scf.while (%[[N:.*]] = %{{.*}}, %[[OUT:.*]] = %{{.*}}, %[[LAST:.*]] = %{{.*}}) : (index, tensor<8xf32>, index)
// CHECK:           %[[NEXT:.*]] = bsr.launch
// CHECK:           %[[PUT:.*]] = bufferization.materialize_in_destination %[[NEXT]] in %[[OUT]]
// CHECK-NEXT:      scf.condition(%{{.*}}) %[[N]], %[[PUT]], %[[N]] :
// CHECK:         ^bb0(%{{.*}}: index, %[[PASSED:.*]]: tensor<8xf32>, %[[COUNT:.*]]: index):
// CHECK-NEXT:      %[[MORE:.*]] = arith.addi %[[COUNT]], %[[COUNT]]
// CHECK-NEXT:      scf.yield %[[MORE]], %[[PASSED]], %[[COUNT]] :
// CHECK:         return %[[R]]#1
func.func @loop_passes(%w: tensor<8xf32> {bsr.name = "w"}, %go: i1, %n: index) -> (tensor<8xf32> {bsr.name = "y"}) {
  %init = tensor.empty() : tensor<8xf32>
  %0:2 = scf.while (%a = %n) : (index) -> (tensor<8xf32>, index) {
    %next = bsr.launch @decay ins(%w : tensor<8xf32>) outs(%init : tensor<8xf32>) -> tensor<8xf32>
    scf.condition(%go) %next, %a : tensor<8xf32>, index
  } do {
  ^bb0(%c: tensor<8xf32>, %d: index):
    %m = arith.addi %d, %d : index
    scf.yield %m : index
  }
  return %0#0 : tensor<8xf32>
}
