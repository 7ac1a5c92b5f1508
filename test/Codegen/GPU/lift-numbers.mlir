// RUN: sparse-opt %s --bsr-lift-numbers --canonicalize | FileCheck %s

// A branch becomes both of its sides and a selection.
// CHECK-LABEL: func @branch(
// CHECK-SAME:    %[[NORM:.*]]: tensor<f32>, %[[G:.*]]: tensor<8xf32>, %[[H:.*]]: tensor<8xf32>)
// CHECK-NOT:     tensor.extract
// CHECK-NOT:     scf.if
// CHECK:         %[[IS:.*]] = linalg.generic {{.*}} ins(%[[NORM]], %{{.*}} : tensor<f32>, tensor<f32>)
// CHECK:           arith.cmpf ogt
// CHECK:         } -> tensor<i1>
// CHECK:         %[[EXP:.*]] = linalg.exp ins(%[[G]]
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[IS]], %[[EXP]], %[[H]] : tensor<i1>, tensor<8xf32>, tensor<8xf32>)
// CHECK:           arith.select
// CHECK:         return %[[Y]]
func.func @branch(%norm: tensor<f32>, %g: tensor<8xf32>, %h: tensor<8xf32>) -> tensor<8xf32> {
  %one = arith.constant 1.0 : f32
  %0 = tensor.extract %norm[] : tensor<f32>
  %1 = arith.cmpf ogt, %0, %one : f32
  %2 = scf.if %1 -> (tensor<8xf32>) {
    %3 = tensor.empty() : tensor<8xf32>
    %4 = linalg.exp ins(%g : tensor<8xf32>) outs(%3 : tensor<8xf32>) -> tensor<8xf32>
    scf.yield %4 : tensor<8xf32>
  } else {
    scf.yield %h : tensor<8xf32>
  }
  return %2 : tensor<8xf32>
}

// What takes a number that is computed reads a tensor: one of several entries, fills, inputs and bodies.
// CHECK-LABEL: func @numbers(
// CHECK-SAME:    %[[V:.*]]: tensor<3xf32>, %[[G:.*]]: tensor<8xf32>)
// CHECK:         %[[SLICE:.*]] = tensor.extract_slice %[[V]][1] [1] [1]
// CHECK:         %[[ENTRY:.*]] = tensor.collapse_shape %[[SLICE]] [] : tensor<1xf32> into tensor<f32>
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[ENTRY]], %{{.*}} : tensor<f32>, tensor<f32>)
// CHECK:           arith.addf
// CHECK:         %[[FILL:.*]] = linalg.generic {{.*}} ins(%[[SUM]] : tensor<f32>) {{.*}} {
// CHECK:         } -> tensor<8xf32>
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[G]], %[[SUM]], %[[SUM]], %[[ENTRY]] : tensor<8xf32>, tensor<f32>, tensor<f32>, tensor<f32>)
// CHECK-NEXT:    ^bb0(%[[A:.*]]: f32, %[[B:.*]]: f32, %[[C:.*]]: f32, %[[D:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[P:.*]] = arith.mulf %[[A]], %[[C]]
// CHECK-NEXT:      %[[Q:.*]] = arith.mulf %[[P]], %[[D]]
// CHECK-NEXT:      arith.mulf %[[Q]], %[[B]]
// CHECK:         return %[[FILL]], %[[Y]], %[[SUM]]
func.func @numbers(%v: tensor<3xf32>, %g: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<f32>) {
  %c1 = arith.constant 1 : index
  %one = arith.constant 1.0 : f32
  %0 = tensor.extract %v[%c1] : tensor<3xf32>
  %1 = arith.addf %0, %one : f32
  %e = tensor.empty() : tensor<8xf32>
  %f = linalg.fill ins(%1 : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%g, %1 : tensor<8xf32>, f32) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %2 = arith.mulf %a, %1 : f32
    %3 = arith.mulf %2, %0 : f32
    %4 = arith.mulf %3, %b : f32
    linalg.yield %4 : f32
  } -> tensor<8xf32>
  %n = tensor.from_elements %1 : tensor<f32>
  return %f, %s, %n : tensor<8xf32>, tensor<8xf32>, tensor<f32>
}

// What the step is called with is the host's, and a loop might not end.
// CHECK-LABEL: func @stays(
// CHECK:         linalg.fill
// CHECK:         arith.select %{{.*}}, %{{.*}}, %{{.*}} : tensor<8xf32>
// CHECK:         scf.if
// CHECK:           scf.while
func.func @stays(%k: f32, %g: tensor<8xf32>, %n: tensor<i32>) -> (tensor<8xf32>, i32) {
  %one = arith.constant 1.0 : f32
  %c1 = arith.constant 1 : i32
  %c5 = arith.constant 5 : i32
  %e = tensor.empty() : tensor<8xf32>
  %f = linalg.fill ins(%k : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %x = arith.cmpf ogt, %k, %one : f32
  %y = arith.select %x, %g, %f : tensor<8xf32>
  %i = tensor.extract %n[] : tensor<i32>
  %p = arith.cmpi sgt, %i, %c5 : i32
  %r = scf.if %p -> i32 {
    %w = scf.while (%a = %i) : (i32) -> i32 {
      %q = arith.cmpi ne, %a, %c5 : i32
      scf.condition(%q) %a : i32
    } do {
    ^bb0(%a: i32):
      %b = arith.subi %a, %c1 : i32
      scf.yield %b : i32
    }
    scf.yield %w : i32
  } else {
    scf.yield %i : i32
  }
  return %y, %r : tensor<8xf32>, i32
}
