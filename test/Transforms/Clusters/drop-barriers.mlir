// RUN: sparse-opt %s --bsr-drop-barriers | FileCheck %s --implicit-check-not=bsr.barrier

// What a program computes again behind a barrier stays apart from the first
// time; what it computes anew does not need to.

// CHECK-LABEL: func.func @layer(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>, %[[DY:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<8x8xf32>)
// CHECK:         %[[Y:.*]] = linalg.matmul ins(%[[X]], %[[W]]
// CHECK:         %[[Z:.*]] = linalg.exp ins(%[[Y]]
// CHECK:         %[[Y2:.*]] = linalg.matmul {bsr.recomputed} ins(%[[X]], %[[W]]
// CHECK:         %[[Z2:.*]] = linalg.exp {bsr.recomputed} ins(%[[Y2]]
// CHECK:         %[[G:.*]] = linalg.mul ins(%[[Z2]], %[[DY]]
// CHECK:         return %[[Z]], %[[G]]
#id = affine_map<(d0, d1) -> (d0, d1)>
func.func @layer(%x: tensor<4x8xf32>, %dy: tensor<4x8xf32>, %w: tensor<8x8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %c = arith.constant dense<0.0> : tensor<4x8xf32>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c : tensor<4x8xf32>) -> tensor<4x8xf32>
  %z = linalg.exp ins(%y : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %again = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = bsr.barrier %a : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %y2 = linalg.matmul ins(%again, %w : tensor<4x8xf32>, tensor<8x8xf32>) outs(%c : tensor<4x8xf32>) -> tensor<4x8xf32>
  %z2 = linalg.exp ins(%y2 : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %g = linalg.mul ins(%z2, %dy : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %z, %g : tensor<4x8xf32>, tensor<4x8xf32>
}

// Within a loop, and merged with an operation.

// CHECK-LABEL: func.func @loop(
// CHECK:         scf.for
// CHECK:           linalg.exp ins(
// CHECK:           linalg.exp {bsr.recomputed} ins(
func.func @loop(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %e = tensor.empty() : tensor<4x8xf32>
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%v = %x) -> tensor<4x8xf32> {
    %z = linalg.exp ins(%v : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
    %again = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%v : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%a: f32, %o: f32):
      %0 = bsr.barrier %a : f32
      linalg.yield %0 : f32
    } -> tensor<4x8xf32>
    %z2 = linalg.exp ins(%again : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
    %g = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%z, %z2 : tensor<4x8xf32>, tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %0 = bsr.barrier %b : f32
      %1 = arith.addf %a, %0 : f32
      linalg.yield %1 : f32
    } -> tensor<4x8xf32>
    scf.yield %g : tensor<4x8xf32>
  }
  return %r : tensor<4x8xf32>
}

// A transpose and a function with a barrier inside are no barriers; what has no
// operands or has effects is not kept apart, nor is what a body computes.

// CHECK-LABEL: func.func @others(
// CHECK-SAME:    %[[X:.*]]: tensor<8x8xf32>)
// CHECK:         tensor.empty() : tensor<8x8xf32>
// CHECK-NEXT:    tensor.empty() : tensor<8x8xf32>
// CHECK:         %[[TURNED:.*]] = linalg.generic
// CHECK:         %[[MINUS:.*]] = linalg.generic
// CHECK:         linalg.exp ins(%[[X]] :
// CHECK-NEXT:    linalg.exp ins(%[[TURNED]] :
// CHECK-NEXT:    linalg.exp ins(%[[MINUS]] :
// CHECK-NEXT:    call @print(%[[X]]) :
// CHECK-NEXT:    call @print(%[[X]]) :
// CHECK:         arith.mulf %[[A:[a-z0-9_]+]], %[[A]] : f32
// CHECK-NEXT:    arith.mulf %[[A]], %[[A]] : f32
func.func private @print(tensor<8x8xf32>)
func.func @others(%x: tensor<8x8xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %f = tensor.empty() : tensor<8x8xf32>
  %turned = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = bsr.barrier %a : f32
    linalg.yield %0 : f32
  } -> tensor<8x8xf32>
  %minus = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    %1 = bsr.barrier %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  %z0 = linalg.exp ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %z1 = linalg.exp ins(%turned : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %z2 = linalg.exp ins(%minus : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  call @print(%x) : (tensor<8x8xf32>) -> ()
  call @print(%x) : (tensor<8x8xf32>) -> ()
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.mulf %a, %a : f32
    %2 = arith.addf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<8x8xf32>
  return %z0, %z1, %z2, %y : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// Barriers around barriers, as nested checkpoints have them, are around what the
// outermost one is, wherever they are read.

// CHECK-LABEL: func.func @nested(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>)
// CHECK:         %[[A:.*]] = linalg.exp ins(%[[X]]
// CHECK:         %[[B:.*]] = linalg.exp {bsr.recomputed} ins(%[[X]]
// CHECK:         %[[C:.*]] = linalg.exp {bsr.recomputed} ins(%[[X]]
// CHECK:         return %[[A]], %[[B]], %[[C]], %[[X]]
func.func @nested(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %e = tensor.empty() : tensor<4x8xf32>
  %a = linalg.exp ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %one = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%v: f32, %o: f32):
    %0 = bsr.barrier %v : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %two = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%one : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%v: f32, %o: f32):
    %0 = bsr.barrier %v : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %three = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%two : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%v: f32, %o: f32):
    %0 = bsr.barrier %v : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %b = linalg.exp ins(%one : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = linalg.exp ins(%three : tensor<4x8xf32>) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %a, %b, %c, %three : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
