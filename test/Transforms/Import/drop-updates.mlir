// RUN: sparse-opt %s --bsr-drop-updates | FileCheck %s

// The loss stays, with what it needs: its batch, its weights, a number of the
// state. Moments, the rate and the update go.

// CHECK-LABEL: func @step
// CHECK-SAME:    (%[[W:.*]]: tensor<4xf32> {bsr.name = "w", bsr.role = "param"},
// CHECK-SAME:     %[[B:.*]]: tensor<4xf32> {bsr.name = "b", bsr.role = "param"},
// CHECK-SAME:     %[[S:.*]]: tensor<4xf32> {bsr.name = "s", bsr.role = "state"},
// CHECK-SAME:     %[[X:.*]]: tensor<4xf32> {bsr.name = "x", bsr.role = "batch"},
// CHECK-SAME:     %[[Z:.*]]: tensor<4xf32> {bsr.name = "z", bsr.role = "batch"})
// CHECK-SAME:    -> (tensor<4xf32> {bsr.name = "y"}) {
// CHECK-NEXT:    %[[Y:.*]] = linalg.mul ins(%[[W]], %[[X]]
// CHECK-NEXT:    %[[N:.*]] = linalg.add ins(%[[Y]], %[[S]]
// CHECK-NEXT:    return %[[N]] : tensor<4xf32>
func.func @step(%w: tensor<4xf32> {bsr.name = "w", bsr.result = 0 : i64, bsr.role = "param"},
                %b: tensor<4xf32> {bsr.name = "b", bsr.role = "param"},
                %m: tensor<4xf32> {bsr.name = "m", bsr.result = 3 : i64, bsr.role = "state"},
                %s: tensor<4xf32> {bsr.name = "s", bsr.result = 2 : i64, bsr.role = "state"},
                %lr: tensor<4xf32> {bsr.name = "lr", bsr.role = "lr"},
                %x: tensor<4xf32> {bsr.name = "x", bsr.role = "batch"},
                %z: tensor<4xf32> {bsr.name = "z", bsr.role = "batch"})
    -> (tensor<4xf32>, tensor<4xf32> {bsr.name = "y"}, tensor<4xf32>, tensor<4xf32>) {
  %p = linalg.mul ins(%w, %x : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %y = linalg.add ins(%p, %s : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %n = linalg.add ins(%m, %p : tensor<4xf32>, tensor<4xf32>) outs(%m : tensor<4xf32>) -> tensor<4xf32>
  %d = linalg.mul ins(%n, %lr : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  %next = linalg.sub ins(%w, %d : tensor<4xf32>, tensor<4xf32>) outs(%x : tensor<4xf32>) -> tensor<4xf32>
  return %next, %y, %s, %n : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// A helper is no step.

// CHECK-LABEL: func private @helper
// CHECK-SAME:    -> tensor<4xf32>
func.func private @helper(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
