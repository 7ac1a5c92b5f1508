// RUN: sparse-opt %s --bsr-reuse-operands | FileCheck %s
// RUN: sparse-opt %s --bsr-reuse-operands --mlir-disable-threading --mlir-debug-counter=bsr-reuse-operands-count=0 | FileCheck %s --check-prefix=SKIPPED
// RUN: sparse-opt %s --bsr-reuse-operands --mlir-disable-threading --mlir-debug-counter=bsr-reuse-operands-skip=1 | FileCheck %s --check-prefix=FIRST

// SKIPPED-NOT:   outs({{.*}}#
// SKIPPED-LABEL: func @row
// SKIPPED-COUNT-9: outs(%[[E:.*]] :
// The first result of the pair has memory of its own, the second one has that of the operand that is left.
// FIRST: bsr.launch @both ins(%[[B:.*]], %{{.*}} : {{.*}}) outs(%{{.*}}, %[[B]] :

func.func private @make(memref<4xf32>, memref<4xf32>)
func.func private @negate(memref<4xf32>, memref<4xf32>)
func.func private @both(memref<4xf32>, memref<4xf32>, memref<4xf32>, memref<4xf32>)

// CHECK-LABEL: func @step
// CHECK-SAME:    %[[X:[^:]*]]: tensor<4xf32>
func.func @step(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "r"}, tensor<2x2xf32> {bsr.name = "v"}) {
  %e = tensor.empty() : tensor<4xf32>
  // What a caller owns is not overwritten.
  // CHECK: %[[A:.*]] = bsr.launch @negate ins(%[[X]] : tensor<4xf32>) outs(%[[E:.*]] : tensor<4xf32>) in_place = [0]
  %a = bsr.launch @negate ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  // What is read later stays, and so does what the kernel may not overwrite.
  // CHECK: %[[B:.*]] = bsr.launch @negate ins(%[[A]] : tensor<4xf32>) outs(%[[E]] :
  %b = bsr.launch @negate ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  // CHECK: %[[C:.*]] = bsr.launch @make ins(%[[A]] : tensor<4xf32>) outs(%[[E]] :
  %c = bsr.launch @make ins(%a : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  // Two operands, two results: each has a buffer of its own.
  // CHECK: %[[D:.*]]:2 = bsr.launch @both ins(%[[B]], %[[C]] : {{.*}}) outs(%[[B]], %[[C]] :
  %d:2 = bsr.launch @both ins(%b, %c : tensor<4xf32>, tensor<4xf32>) outs(%e, %e : tensor<4xf32>, tensor<4xf32>)
      in_place = [0, 1] -> tensor<4xf32>, tensor<4xf32>
  // One operand for two results.
  // CHECK: bsr.launch @both ins(%[[D]]#0, %[[D]]#1 : {{.*}}) outs(%[[D]]#0, %[[E]] :
  %f:2 = bsr.launch @both ins(%d#0, %d#1 : tensor<4xf32>, tensor<4xf32>) outs(%e, %e : tensor<4xf32>, tensor<4xf32>)
      in_place = [0, 1] -> tensor<4xf32>, tensor<4xf32>
  // A view is read later as well.
  %view = tensor.expand_shape %d#1 [[0, 1]] output_shape [2, 2] : tensor<4xf32> into tensor<2x2xf32>
  // An operand that is read twice may be read elsewhere.
  // CHECK: bsr.launch @both ins(%[[F:.*]]#0, %[[F]]#0 : {{.*}}) outs(%[[E]], %[[E]] :
  %g:2 = bsr.launch @both ins(%f#0, %f#0 : tensor<4xf32>, tensor<4xf32>) outs(%e, %e : tensor<4xf32>, tensor<4xf32>)
      in_place = [0] -> tensor<4xf32>, tensor<4xf32>
  return %g#0, %view : tensor<4xf32>, tensor<2x2xf32>
}

// Eight kernels in a row write one buffer, no more.
// CHECK-LABEL: func @row
// CHECK:         %[[E:.*]] = tensor.empty
// CHECK:         %[[Y1:.*]] = bsr.launch @negate {{.*}} outs(%[[E]] :
// CHECK-NEXT:    bsr.launch @negate {{.*}} outs(%[[Y1]] :
// CHECK-NEXT:    bsr.launch @negate
// CHECK-NEXT:    bsr.launch @negate
// CHECK-NEXT:    bsr.launch @negate
// CHECK-NEXT:    bsr.launch @negate
// CHECK-NEXT:    %[[Y7:.*]] = bsr.launch @negate
// CHECK-NEXT:    bsr.launch @negate {{.*}} outs(%[[Y7]] :
// CHECK-NEXT:    bsr.launch @negate {{.*}} outs(%[[E]] :
func.func @row(%x: tensor<4xf32> {bsr.name = "x"}) -> (tensor<4xf32> {bsr.name = "y"}) {
  %e = tensor.empty() : tensor<4xf32>
  %1 = bsr.launch @negate ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %2 = bsr.launch @negate ins(%1 : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %3 = bsr.launch @negate ins(%2 : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %4 = bsr.launch @negate ins(%3 : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %5 = bsr.launch @negate ins(%4 : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %6 = bsr.launch @negate ins(%5 : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %7 = bsr.launch @negate ins(%6 : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %8 = bsr.launch @negate ins(%7 : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %9 = bsr.launch @negate ins(%8 : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  return %9 : tensor<4xf32>
}

// CHECK-LABEL: func @no_step
// CHECK:         bsr.launch @negate
// CHECK:         %[[E:.*]] = tensor.empty
// CHECK:         bsr.launch @negate ins(%{{.*}}) outs(%[[E]] :
func.func @no_step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = tensor.empty() : tensor<4xf32>
  %y = bsr.launch @negate ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  %f = tensor.empty() : tensor<4xf32>
  %z = bsr.launch @negate ins(%y : tensor<4xf32>) outs(%f : tensor<4xf32>) in_place = [0] -> tensor<4xf32>
  return %z : tensor<4xf32>
}
