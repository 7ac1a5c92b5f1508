// RUN: sparse-opt %s --split-input-file --bsr-propagate | FileCheck %s

// What is no vector along the matrix, and a product whose other factor is not 0 off
// the pattern, stay; a result that lies turned is a matrix turned.

// CHECK-LABEL: func.func @none(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern{{[^,]*, [^,]*, [^,]*}}, %[[V:[^:]*]]: tensor<2x4x4xf32>
// CHECK-NOT:     bsr.sample_vec
// CHECK:         %[[SAMPLE:.*]] = bsr.sample %[[P]], %{{.*}} :
// CHECK:         %[[ONES:.*]] = bsr.to_dense %[[P]], %[[V]] background
// CHECK:         linalg.mul ins(%[[ONES]], %{{.*}} :
// CHECK:         %[[TURNED:.*]] = bsr.to_dense %[[P]], %{{.*}} transpose
// CHECK:         return %[[SAMPLE]], %{{.*}}, %[[TURNED]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0, 0)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
func.func @none(%p: !p, %v: tensor<2x4x4xf32>, %x: tensor<8x12xf32>) -> (tensor<2x4x4xf32>, tensor<8x12xf32>, tensor<12x8xf32>) {
  %e = tensor.empty() : tensor<8x12xf32>
  %0 = linalg.generic {indexing_maps = [#id, #first, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.mulf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<8x12xf32>
  %sample = bsr.sample %p, %0 : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  %one = arith.constant dense<1.0> : tensor<f32>
  %ones = bsr.to_dense %p, %v background %one : !p, tensor<2x4x4xf32>, tensor<f32> -> tensor<8x12xf32>
  %sine = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%a: f32, %o: f32):
    %zero = arith.constant 0.0 : f32
    %most = arith.constant 4.0 : f32
    %below = arith.cmpf ult, %a, %zero : f32
    %1 = arith.select %below, %zero, %a : f32
    %2 = arith.minimumf %1, %most : f32
    linalg.yield %2 : f32
  } -> tensor<8x12xf32>
  %y = linalg.mul ins(%ones, %sine : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %d = bsr.to_dense %p, %v : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %et = tensor.empty() : tensor<12x8xf32>
  %turned = linalg.generic {indexing_maps = [#id, #swap], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<8x12xf32>) outs(%et : tensor<12x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.negf %a : f32
    linalg.yield %1 : f32
  } -> tensor<12x8xf32>
  return %sample, %y, %turned : tensor<2x4x4xf32>, tensor<8x12xf32>, tensor<12x8xf32>
}

// -----

// The mask of another pattern is none of this one, and one that lies turned is none
// either.

// CHECK-LABEL: func.func @others(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern{{[^,]*, [^,]*, [^,]*}}, %[[Q:[^:]*]]: !bsr.pattern{{[^,]*, [^,]*, [^,]*}}, %{{[^:]*}}: tensor<8x8xf32>
// CHECK-DAG:     %[[ONES:.*]] = arith.constant dense<1.0{{.*}}> : tensor<2x4x4xf32>
// CHECK-DAG:     %[[OTHER:.*]] = bsr.to_dense %[[Q]], %[[ONES]] :
// CHECK-DAG:     %[[TURNED:.*]] = bsr.to_dense %[[P]], %[[ONES]] transpose
// CHECK-DAG:     bsr.sample %[[P]], %[[OTHER]] :
// CHECK-DAG:     bsr.sample %[[P]], %[[TURNED]] :
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
func.func @others(%p: !p, %q: !p, %x: tensor<8x8xf32>) -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>) {
  %ones = arith.constant dense<1.0> : tensor<2x4x4xf32>
  %other = bsr.to_dense %q, %ones : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %turned = bsr.to_dense %p, %ones transpose : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %0 = linalg.mul ins(%x, %other : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = linalg.mul ins(%x, %turned : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %a = bsr.sample %p, %0 : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  %b = bsr.sample %p, %1 : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  return %a, %b : tensor<2x4x4xf32>, tensor<2x4x4xf32>
}

// -----

// A row that is looked up stays dense: in slots without a block, its index would be anything.

// CHECK-LABEL: func.func @lookup(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern
// CHECK-NOT:     bsr.sample_vec
// CHECK:         %[[ROWS:.*]] = linalg.generic
// CHECK:           tensor.extract
// CHECK:         bsr.sample %[[P]], %[[ROWS]] :
!p = !bsr.pattern<8x1, block = 2x1, slots = 3>
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0)>
func.func @lookup(%p: !p, %table: tensor<5x1xf32>, %ids: tensor<8xi32>) -> tensor<3x2x1xf32> {
  %c0 = arith.constant 0 : index
  %e = tensor.empty() : tensor<8x1xf32>
  %rows = linalg.generic {indexing_maps = [#row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<8xi32>) outs(%e : tensor<8x1xf32>) {
  ^bb0(%id: i32, %o: f32):
    %at = arith.index_cast %id : i32 to index
    %1 = tensor.extract %table[%at, %c0] : tensor<5x1xf32>
    linalg.yield %1 : f32
  } -> tensor<8x1xf32>
  %sample = bsr.sample %p, %rows : !p, tensor<8x1xf32> -> tensor<3x2x1xf32>
  return %sample : tensor<3x2x1xf32>
}

// -----

// A matrix of one row that is broadcast over rows is a vector.
// CHECK-LABEL: func.func @row(
// CHECK:         %[[ROW:.*]] = bsr.to_dense {{.*}} -> tensor<1x12xf32>
// CHECK:         %[[WIDE:.*]] = linalg.generic {{.*}} ins(%[[ROW]] : tensor<1x12xf32>)
// CHECK:         return %[[WIDE]]
!p = !bsr.pattern<1x12, block = 1x4, slots = 2>
func.func @row(%p: !p, %v: tensor<2x1x4xf32>) -> tensor<8x12xf32> {
  %d = bsr.to_dense %p, %v : !p, tensor<2x1x4xf32> -> tensor<1x12xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(i, j) -> (0, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<1x12xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8x12xf32>
  return %0 : tensor<8x12xf32>
}
