// RUN: sparse-opt %s --canonicalize | FileCheck %s

// indices(constant_pattern) -> constants, in row order and in column order;
// entries past the number of blocks are unspecified and 0 here.
// CHECK-LABEL: func.func @indices(
// CHECK-DAG:     %[[SLOT_T:.*]] = arith.constant dense<[1, 0, 2, 0]> : tensor<4xi32>
// CHECK-DAG:     %[[ROW:.*]] = arith.constant dense<[1, 0, 1, 0]> : tensor<4xi32>
// CHECK-DAG:     %[[COL_PTR:.*]] = arith.constant dense<[0, 1, 1, 3]> : tensor<4xi32>
// CHECK-DAG:     %[[SLOT:.*]] = arith.constant dense<[0, 1, 2, 0]> : tensor<4xi32>
// CHECK-DAG:     %[[COL:.*]] = arith.constant dense<[2, 0, 2, 0]> : tensor<4xi32>
// CHECK-DAG:     %[[ROW_PTR:.*]] = arith.constant dense<[0, 1, 3]> : tensor<3xi32>
// CHECK-NOT:     bsr.
// CHECK:         return %[[ROW_PTR]], %[[COL]], %[[SLOT]], %[[COL_PTR]], %[[ROW]], %[[SLOT_T]]
func.func @indices()
    -> (tensor<3xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) {
  %p = bsr.constant_pattern row_ptr = [0, 1, 3] col_idx = [2, 0, 2] : !bsr.pattern<8x12, block = 4x4, slots = 4>
  %ptr, %idx, %slot = bsr.indices %p
      : !bsr.pattern<8x12, block = 4x4, slots = 4> -> tensor<3xi32>, tensor<4xi32>, tensor<4xi32>
  %ptr_t, %idx_t, %slot_t = bsr.indices %p transpose
      : !bsr.pattern<8x12, block = 4x4, slots = 4> -> tensor<4xi32>, tensor<4xi32>, tensor<4xi32>
  return %ptr, %idx, %slot, %ptr_t, %idx_t, %slot_t
      : tensor<3xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>
}

// indices of a pattern that arrives at run time stay
// CHECK-LABEL: func.func @run_time_indices(
// CHECK:         bsr.indices
func.func @run_time_indices(%p: !bsr.pattern<8x12, block = 4x4, slots = 4>) -> tensor<3xi32> {
  %ptr, %idx, %slot = bsr.indices %p
      : !bsr.pattern<8x12, block = 4x4, slots = 4> -> tensor<3xi32>, tensor<4xi32>, tensor<4xi32>
  return %ptr : tensor<3xi32>
}

// to_dense(p, v, background = 0) -> to_dense(p, v)
// CHECK-LABEL: func.func @zero_background(
// CHECK-NOT:     background
// CHECK:         return
func.func @zero_background(%p: !bsr.pattern<8x12, block = 4x4, slots = 4>, %v: tensor<4x4x4xf32>) -> tensor<8x12xf32> {
  %c = arith.constant dense<0.0> : tensor<f32>
  %d = bsr.to_dense %p, %v background %c
      : !bsr.pattern<8x12, block = 4x4, slots = 4>, tensor<4x4x4xf32>, tensor<f32> -> tensor<8x12xf32>
  return %d : tensor<8x12xf32>
}

// other backgrounds stay
// CHECK-LABEL: func.func @other_background(
// CHECK-COUNT-2: background
// CHECK:         return
func.func @other_background(%p: !bsr.pattern<8x12, block = 4x4, slots = 4>, %v: tensor<4x4x4xf32>, %b: tensor<f32>)
    -> (tensor<8x12xf32>, tensor<8x12xf32>) {
  %c = arith.constant dense<1.0> : tensor<f32>
  %0 = bsr.to_dense %p, %v background %c
      : !bsr.pattern<8x12, block = 4x4, slots = 4>, tensor<4x4x4xf32>, tensor<f32> -> tensor<8x12xf32>
  %1 = bsr.to_dense %p, %v background %b
      : !bsr.pattern<8x12, block = 4x4, slots = 4>, tensor<4x4x4xf32>, tensor<f32> -> tensor<8x12xf32>
  return %0, %1 : tensor<8x12xf32>, tensor<8x12xf32>
}

// reduce_vec(p, v, background = 0) -> reduce_vec(p, v)
// CHECK-LABEL: func.func @zero_background_of_sums(
// CHECK-NOT:     background
// CHECK:         return
func.func @zero_background_of_sums(%p: !bsr.pattern<8x12, block = 4x4, slots = 4>, %v: tensor<4x4x4xf32>) -> tensor<12xf32> {
  %c = arith.constant dense<0.0> : tensor<f32>
  %x = bsr.reduce_vec %p, %v background %c dim = 1
      : !bsr.pattern<8x12, block = 4x4, slots = 4>, tensor<4x4x4xf32>, tensor<f32> -> tensor<12xf32>
  return %x : tensor<12xf32>
}

// sample(p, to_dense(p, v)) -> v, both transposed or neither
// CHECK-LABEL: func.func @sample(
// CHECK-SAME:    %[[V:[^ :]*]]: tensor<4x4x4xf32>)
// CHECK-NEXT:    return %[[V]], %[[V]]
func.func @sample(%p: !bsr.pattern<8x12, block = 4x4, slots = 4>, %v: tensor<4x4x4xf32>)
    -> (tensor<4x4x4xf32>, tensor<4x4x4xf32>) {
  %d = bsr.to_dense %p, %v : !bsr.pattern<8x12, block = 4x4, slots = 4>, tensor<4x4x4xf32> -> tensor<8x12xf32>
  %s = bsr.sample %p, %d : !bsr.pattern<8x12, block = 4x4, slots = 4>, tensor<8x12xf32> -> tensor<4x4x4xf32>
  %t = bsr.to_dense %p, %v transpose
      : !bsr.pattern<8x12, block = 4x4, slots = 4>, tensor<4x4x4xf32> -> tensor<12x8xf32>
  %u = bsr.sample %p, %t transpose
      : !bsr.pattern<8x12, block = 4x4, slots = 4>, tensor<12x8xf32> -> tensor<4x4x4xf32>
  return %s, %u : tensor<4x4x4xf32>, tensor<4x4x4xf32>
}

// not of another pattern, nor of the transposed matrix
// CHECK-LABEL: func.func @sample_of_another(
// CHECK-COUNT-2: bsr.sample
// CHECK:         return
func.func @sample_of_another(%p: !bsr.pattern<8x8, block = 4x4, slots = 4>, %q: !bsr.pattern<8x8, block = 4x4, slots = 4>,
                             %v: tensor<4x4x4xf32>) -> (tensor<4x4x4xf32>, tensor<4x4x4xf32>) {
  %d = bsr.to_dense %p, %v : !bsr.pattern<8x8, block = 4x4, slots = 4>, tensor<4x4x4xf32> -> tensor<8x8xf32>
  %s = bsr.sample %q, %d : !bsr.pattern<8x8, block = 4x4, slots = 4>, tensor<8x8xf32> -> tensor<4x4x4xf32>
  %t = bsr.sample %p, %d transpose : !bsr.pattern<8x8, block = 4x4, slots = 4>, tensor<8x8xf32> -> tensor<4x4x4xf32>
  return %s, %t : tensor<4x4x4xf32>, tensor<4x4x4xf32>
}

// barrier(constant) -> constant; nothing else.
// CHECK-LABEL: func.func @barrier(
// CHECK-SAME:    %[[A:.*]]: f32)
// CHECK:         %[[ONE:.*]] = arith.constant 1.0
// CHECK:         %[[KEPT:.*]] = bsr.barrier %[[A]]
// CHECK:         return %[[ONE]], %[[KEPT]]
func.func @barrier(%a: f32) -> (f32, f32) {
  %one = arith.constant 1.0 : f32
  %0 = bsr.barrier %one : f32
  %1 = bsr.barrier %a : f32
  return %0, %1 : f32, f32
}
