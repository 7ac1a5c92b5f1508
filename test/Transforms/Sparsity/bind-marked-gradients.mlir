// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-bind | FileCheck %s --implicit-check-not=bsr.gradient

// Gradients that the program says are some: no search, and no warning.

#id = affine_map<(i, j) -> (i, j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">

// What is added to the weight has its gradient, too. The mask stands behind the
// mark alone.
// CHECK-LABEL: func.func @added(
// CHECK:         %[[DY:.*]] = linalg.mul
// CHECK:         %[[S:.*]] = bsr.sample %{{.*}}, %[[DY]]
// CHECK-NEXT:    %[[G:.*]] = bsr.to_dense %{{.*}}, %[[S]]
// CHECK:         linalg.sub ins(%{{.*}}, %[[DY]]
// CHECK:         linalg.reduce {{.*}} ins(%[[G]]
// CHECK:         linalg.sub ins(%{{.*}}, %[[G]]
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @added(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                 %a: tensor<8x8xf32> {bsr.name = "a", bsr.result = 1 : i64})
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.add ins(%w, %a : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %dy = linalg.mul ins(%y, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %dw = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%g: f32, %at: f32, %o: f32):
    %r = bsr.gradient %g at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %next_a = linalg.sub ins(%a, %dy : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %sum = linalg.reduce { arith.addf } ins(%dw : tensor<8x8xf32>) outs(%zero : tensor<f32>) dimensions = [0, 1]
  %next = linalg.sub ins(%w, %dw : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %next_a, %sum : tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">

// A step within the step: the second gradient is at what the first one makes.
// CHECK-LABEL: func.func @within(
// CHECK:         %[[G0:.*]] = linalg.mul
// CHECK:         bsr.sample %{{.*}}, %[[G0]]
// CHECK:         %[[W1:.*]] = linalg.sub
// CHECK:         %[[G1:.*]] = linalg.exp ins(%[[W1]]
// CHECK:         %[[S1:.*]] = bsr.sample %{{.*}}, %[[G1]]
// CHECK-NEXT:    %[[M1:.*]] = bsr.to_dense %{{.*}}, %[[S1]]
// CHECK:         linalg.reduce {{.*}} ins(%[[M1]]
// expected-remark @below {{masked the gradients of 1 weights}}
func.func @within(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                  %x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %g0 = linalg.mul ins(%x, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %d0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g0, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%g: f32, %at: f32, %o: f32):
    %r = bsr.gradient %g at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %w1 = linalg.sub ins(%w, %d0 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %g1 = linalg.exp ins(%w1 : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %d1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g1, %w1 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%g: f32, %at: f32, %o: f32):
    %r = bsr.gradient %g at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %sum = linalg.reduce { arith.addf } ins(%d1 : tensor<8x8xf32>) outs(%zero : tensor<f32>) dimensions = [0, 1]
  return %w, %sum : tensor<8x8xf32>, tensor<f32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">

// What only the update sees is not masked; the derivative of a penalty neither.
// CHECK-LABEL: func.func @update(
// CHECK-NOT:     bsr.to_dense {{.*}}bsr.sample
// CHECK:         %[[NEXT:.*]] = linalg.sub
// CHECK-NEXT:    bsr.sample %{{.*}}, %[[NEXT]]
func.func @update(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                  %x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %g = linalg.exp ins(%w : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%p: f32, %at: f32, %o: f32):
    %r = bsr.gradient %p at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %next = linalg.sub ins(%w, %d : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next : tensor<8x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">

// At a function of the weight that is not zero where the weight is, the
// gradient has no mask.
func.func @at_exponential(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                          %x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %v = linalg.exp ins(%w : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-warning @below {{expected to find the gradient of "w", to mask it, but got 'linalg.generic', which is one at a function of it}}
  %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %v : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%p: f32, %at: f32, %o: f32):
    %r = bsr.gradient %p at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %sum = linalg.reduce { arith.addf } ins(%d : tensor<8x8xf32>) outs(%zero : tensor<f32>) dimensions = [0, 1]
  return %w, %sum : tensor<8x8xf32>, tensor<f32>
}

// -----

// Of a step without marked weights the mark is dropped.
// CHECK-LABEL: func.func @unmarked(
// CHECK:         return %arg0
func.func @unmarked(%g: tensor<4xf32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  %d = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
                       iterator_types = ["parallel"]}
      ins(%g, %w : tensor<4xf32>, tensor<4xf32>) outs(%g : tensor<4xf32>) {
  ^bb0(%p: f32, %at: f32, %o: f32):
    %r = bsr.gradient %p at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<4xf32>
  return %d : tensor<4xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#mark = #bsr.mark<block = 4x4, density = 0.5, weight = "w">

// A gradient of a gradient, of which no weight has any: both marks are dropped.
// CHECK-LABEL: func.func @twice(
// CHECK:         %[[G:.*]] = linalg.mul
// CHECK:         linalg.reduce {{.*}} ins(%[[G]]
func.func @twice(%w: tensor<8x8xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.mark = #mark},
                 %x: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<f32>) {
  %e = tensor.empty() : tensor<8x8xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %g = linalg.mul ins(%x, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %d0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%h: f32, %at: f32, %o: f32):
    %r = bsr.gradient %h at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %d1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d0, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%h: f32, %at: f32, %o: f32):
    %r = bsr.gradient %h at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %sum = linalg.reduce { arith.addf } ins(%d1 : tensor<8x8xf32>) outs(%zero : tensor<f32>) dimensions = [0, 1]
  %y = linalg.exp ins(%w : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %dw = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%h: f32, %at: f32, %o: f32):
    %r = bsr.gradient %h at %at : f32, f32
    linalg.yield %r : f32
  } -> tensor<8x8xf32>
  %next = linalg.sub ins(%w, %dw : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %next, %sum : tensor<8x8xf32>, tensor<f32>
}
