// RUN: sparse-opt %s --bsr-unroll="max-operations=6" --canonicalize | FileCheck %s

// Two loops of three steps each, one operation a step: six in all.
// CHECK-LABEL: func @nested
// CHECK-NOT:     scf.for
// CHECK-COUNT-6: linalg.add
// CHECK-NOT:     linalg.add
func.func @nested(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c5 = arith.constant 5 : index
  %y = scf.for %i = %c0 to %c2 step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %0 = scf.for %j = %c0 to %c5 step %c2 iter_args(%b = %a) -> tensor<4xf32> {
      %1 = linalg.add ins(%b, %b : tensor<4xf32>, tensor<4xf32>) outs(%b : tensor<4xf32>) -> tensor<4xf32>
      scf.yield %1 : tensor<4xf32>
    }
    scf.yield %0 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// Seven operations are too many.
// CHECK-LABEL: func @long
// CHECK:         scf.for
func.func @long(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %y = scf.for %i = %c0 to %c7 step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %0 = linalg.add ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %0 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}

// So is a number of steps that data decides.
// CHECK-LABEL: func @data
// CHECK:         scf.for
func.func @data(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x) -> tensor<4xf32> {
    %0 = linalg.add ins(%a, %a : tensor<4xf32>, tensor<4xf32>) outs(%a : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %0 : tensor<4xf32>
  }
  return %y : tensor<4xf32>
}
