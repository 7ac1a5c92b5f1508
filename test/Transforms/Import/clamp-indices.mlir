// RUN: sparse-opt %s --bsr-clamp-indices --split-input-file --verify-diagnostics | FileCheck %s

// An index that is computed becomes the nearest one in the tensor.

// CHECK-LABEL: func.func @entry(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>, %[[N:.*]]: index)
// CHECK-DAG:     %[[ZERO:.*]] = arith.constant 0 : index
// CHECK-DAG:     %[[THREE:.*]] = arith.constant 3 : index
// CHECK:         %[[RAISED:.*]] = arith.maxsi %[[N]], %[[ZERO]]
// CHECK:         %[[AT:.*]] = arith.minsi %[[RAISED]], %[[THREE]]
// CHECK:         tensor.extract %[[X]][%[[AT]], %{{.*}}]
func.func @entry(%x: tensor<4x8xf32>, %n: index) -> f32 {
  %seven = arith.constant 7 : index
  %y = tensor.extract %x[%n, %seven] : tensor<4x8xf32>
  return %y : f32
}

// CHECK-LABEL: func.func @insert(
// CHECK:         arith.maxsi
// CHECK:         %[[AT:.*]] = arith.minsi
// CHECK:         tensor.insert %{{.*}} into %{{.*}}[%[[AT]]]
func.func @insert(%x: tensor<8xf32>, %v: f32, %n: index) -> tensor<8xf32> {
  %y = tensor.insert %v into %x[%n] : tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

// A slice ends in its tensor, too, whatever its stride.

// CHECK-LABEL: func.func @slices(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32>, %[[Y:.*]]: tensor<4x2xf32>, %[[N:.*]]: index)
// CHECK:         %[[ZERO:.*]] = arith.constant 0 : index
// CHECK:         %[[FOUR:.*]] = arith.constant 4 : index
// CHECK:         %[[RAISED:.*]] = arith.maxsi %[[N]], %[[ZERO]]
// CHECK:         %[[AT:.*]] = arith.minsi %[[RAISED]], %[[FOUR]]
// CHECK:         tensor.extract_slice %[[X]][0, %[[AT]]] [4, 2] [1, 3]
// CHECK:         %[[THREE:.*]] = arith.constant 3 : index
// CHECK:         %[[SEVEN:.*]] = arith.constant 7 : index
// CHECK:         %[[RAISED:.*]] = arith.maxsi %[[N]], %[[THREE]]
// CHECK:         %[[AT:.*]] = arith.minsi %[[RAISED]], %[[SEVEN]]
// CHECK:         tensor.insert_slice %[[Y]] into %[[X]][0, %[[AT]]] [4, 2] [1, -3]
func.func @slices(%x: tensor<4x8xf32>, %y: tensor<4x2xf32>, %n: index) -> (tensor<4x2xf32>, tensor<4x8xf32>) {
  %0 = tensor.extract_slice %x[0, %n] [4, 2] [1, 3] : tensor<4x8xf32> to tensor<4x2xf32>
  %1 = tensor.insert_slice %y into %x[0, %n] [4, 2] [1, -3] : tensor<4x2xf32> into tensor<4x8xf32>
  return %0, %1 : tensor<4x2xf32>, tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func.func @parallel(
// CHECK:         scf.forall
// CHECK:           tensor.extract_slice %{{.*}}[%{{.*}}] [1] [1]
// CHECK:           arith.maxsi
// CHECK:           %[[AT:.*]] = arith.minsi
// CHECK:           scf.forall.in_parallel {
// CHECK-NEXT:        tensor.parallel_insert_slice %{{.*}} into %{{.*}}[%[[AT]]] [1] [1]
func.func @parallel(%x: tensor<4xf32>, %z: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  %y = scf.forall (%i) in (4) shared_outs(%o = %z) -> tensor<8xf32> {
    %0 = tensor.extract_slice %x[%i] [1] [1] : tensor<4xf32> to tensor<1xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %0 into %o[%n] [1] [1] : tensor<1xf32> into tensor<8xf32>
    }
  }
  return %y : tensor<8xf32>
}

// -----

// Vectors end in their tensor where they say so.

// CHECK-LABEL: func.func @transfers(
// CHECK:         %[[FOUR:.*]] = arith.constant 4 : index
// CHECK:         %[[AT:.*]] = arith.minsi %{{.*}}, %[[FOUR]]
// CHECK:         vector.transfer_write %{{.*}}, %{{.*}}[%[[AT]]]
// CHECK:         %[[SEVEN:.*]] = arith.constant 7 : index
// CHECK:         %[[AT:.*]] = arith.minsi %{{.*}}, %[[SEVEN]]
// CHECK:         vector.transfer_write %{{.*}}, %{{.*}}[%[[AT]]]
func.func @transfers(%x: tensor<8xf32>, %n: index) -> tensor<8xf32> {
  %v = arith.constant dense<0.0> : vector<4xf32>
  %0 = vector.transfer_write %v, %x[%n] {in_bounds = [true]} : vector<4xf32>, tensor<8xf32>
  %1 = vector.transfer_write %v, %0[%n] {in_bounds = [false]} : vector<4xf32>, tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @shape(
// CHECK:         %[[ONE:.*]] = arith.constant 1 : index
// CHECK:         %[[AT:.*]] = arith.minsi %{{.*}}, %[[ONE]]
// CHECK:         tensor.dim %{{.*}}, %[[AT]]
func.func @shape(%x: tensor<4x8xf32>, %n: index) -> index {
  %y = tensor.dim %x, %n : tensor<4x8xf32>
  return %y : index
}

// -----

// What is within a tensor by how it is computed stays as it is.

#id = affine_map<(i) -> (i)>

// CHECK-LABEL: func.func @within(
// CHECK-COUNT-2: arith.maxsi
// CHECK-NOT:     arith.maxsi
func.func @within(%x: tensor<8xf32>, %ids: tensor<4xi32>, %n: index, %u: i32) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0 : i32
  %seven = arith.constant 7 : i32
  %e = tensor.empty() : tensor<4xi32>
  %low = linalg.map ins(%ids : tensor<4xi32>) outs(%e : tensor<4xi32>) (%id: i32, %o: i32) {
    %0 = arith.maxsi %id, %zero : i32
    %1 = arith.minsi %0, %seven : i32
    linalg.yield %1 : i32
  }
  %rows = tensor.expand_shape %low [[0, 1]] output_shape [2, 2] : tensor<4xi32> into tensor<2x2xi32>
  %flat = tensor.collapse_shape %rows [[0, 1]] : tensor<2x2xi32> into tensor<4xi32>
  %f = tensor.empty() : tensor<4xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%flat : tensor<4xi32>) outs(%f : tensor<4xf32>) {
  ^bb0(%id: i32, %o: f32):
    %i = linalg.index 0 : index
    %at = arith.index_cast %id : i32 to index
    %a = tensor.extract %x[%at] : tensor<8xf32>
    %b = tensor.extract %x[%i] : tensor<8xf32>
    %c = arith.addf %a, %b : f32
    linalg.yield %c : f32
  } -> tensor<4xf32>
  %rest = arith.remui %n, %c8 : index
  %1 = tensor.extract_slice %x[%rest] [1] [1] : tensor<8xf32> to tensor<1xf32>
  %y = scf.for %i = %c0 to %c2 step %c1 iter_args(%r = %0) -> tensor<4xf32> {
    %from = arith.muli %i, %c2 : index
    %s = tensor.extract_slice %x[%from] [2] [1] : tensor<8xf32> to tensor<2xf32>
    %t = tensor.insert_slice %s into %r[%i] [2] [1] : tensor<2xf32> into tensor<4xf32>
    scf.yield %t : tensor<4xf32>
  }
  %less = arith.maxsi %n, %c0 : index
  %most = arith.minui %less, %c2 : index
  %z = tensor.insert_slice %1 into %y[%most] [1] [1] : tensor<1xf32> into tensor<4xf32>
  return %z : tensor<4xf32>
}

// -----

// A rest may be anything where the divisor may be 0, and so may the sum of a
// loop.

// CHECK-LABEL: func.func @unknown(
// CHECK-COUNT-2: arith.maxsi
func.func @unknown(%x: tensor<8xf32>, %n: index, %m: index) -> (f32, f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %some = arith.minui %m, %c8 : index
  %rest = arith.remui %n, %some : index
  %0 = tensor.extract %x[%rest] : tensor<8xf32>
  %sum = scf.for %i = %c0 to %c8 step %c1 iter_args(%s = %c0) -> index {
    %next = arith.addi %s, %i : index
    scf.yield %next : index
  }
  %1 = tensor.extract %x[%sum] : tensor<8xf32>
  return %0, %1 : f32, f32
}

// -----

// A constant that is outside, as inlining and unrolling may show, is an error.

func.func @outside(%x: tensor<8xf32>) -> f32 {
  %n = arith.constant 8 : index
  // expected-error @below {{expected 'tensor.extract' to stay within dimension 0 of 8 entries, but got entries 8 to 8}}
  %y = tensor.extract %x[%n] : tensor<8xf32>
  return %y : f32
}
