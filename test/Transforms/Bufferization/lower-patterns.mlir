// RUN: sparse-opt %s --bsr-lower-patterns --split-input-file --verify-diagnostics | FileCheck %s

!p = !bsr.pattern<4x8, block = 2x2, slots = 3>

// Two patterns: each becomes six arguments in its place, and `bsr.pattern_number` counts
// them. The column view takes the last three.
// CHECK-LABEL: func @two
// CHECK-SAME:    %[[A:.*]]: tensor<3x2x2xf32> {bsr.name = "a", bsr.pattern_number = 0 : i64}
// CHECK-SAME:    %[[B:.*]]: tensor<3x2x2xf32> {bsr.name = "b", bsr.pattern_number = 1 : i64}
// CHECK-SAME:    %[[A0:[^:]*]]: tensor<3xi32> {bsr.kind = "row_ptr", bsr.name = "a", bsr.pattern_number = 0 : i64, bsr.role = "pattern"}
// CHECK-SAME:    %[[A1:[^:]*]]: tensor<3xi32> {bsr.kind = "col_idx", bsr.name = "a", bsr.pattern_number = 0 : i64, bsr.role = "pattern"}
// CHECK-SAME:    %[[A2:[^:]*]]: tensor<3xi32> {bsr.kind = "slot", bsr.name = "a", bsr.pattern_number = 0 : i64, bsr.role = "pattern"}
// CHECK-SAME:    %[[A3:[^:]*]]: tensor<5xi32> {bsr.kind = "col_ptr"
// CHECK-SAME:    %[[A4:[^:]*]]: tensor<3xi32> {bsr.kind = "row_idx"
// CHECK-SAME:    %[[A5:[^:]*]]: tensor<3xi32> {bsr.kind = "slot_t"
// CHECK-SAME:    %[[B0:[^:]*]]: tensor<3xi32> {bsr.kind = "row_ptr", bsr.name = "b", bsr.pattern_number = 1 : i64, bsr.role = "pattern"}
// CHECK-SAME:    bsr.patterns = [{density = 5.000000e-01 : f64, name = "a", type = !bsr.pattern<4x8, block = 2x2, slots = 3>}, {name = "b", type = !bsr.pattern<4x8, block = 2x2, slots = 3>}]
// CHECK-NEXT:  return %[[B0]], %[[A4]], %[[A5]]
func.func @two(%a: tensor<3x2x2xf32> {bsr.name = "a", bsr.pattern = 2 : i64},
               %b: tensor<3x2x2xf32> {bsr.name = "b", bsr.pattern = 3 : i64},
               %p: !p {bsr.density = 0.5, bsr.name = "a", bsr.role = "pattern"},
               %q: !p {bsr.name = "b", bsr.role = "pattern"})
    -> (tensor<3xi32>, tensor<3xi32>, tensor<3xi32>) {
  %ptr, %idx, %slot = bsr.indices %q : !p -> tensor<3xi32>, tensor<3xi32>, tensor<3xi32>
  %ptr_t, %idx_t, %slot_t = bsr.indices %p transpose : !p -> tensor<5xi32>, tensor<3xi32>, tensor<3xi32>
  return %ptr, %idx_t, %slot_t : tensor<3xi32>, tensor<3xi32>, tensor<3xi32>
}

// CHECK-LABEL: func @constant
// CHECK-NOT:     bsr
// CHECK-DAG:     %[[PTR:.*]] = arith.constant dense<[0, 1, 1, 2, 3]>
// CHECK-DAG:     %[[SLOT:.*]] = arith.constant dense<[2, 0, 1]>
// CHECK:         return %[[PTR]], %[[SLOT]]
func.func @constant() -> (tensor<5xi32>, tensor<3xi32>) {
  %p = bsr.constant_pattern row_ptr = [0, 2, 3] col_idx = [2, 3, 0] : !p
  %ptr, %idx, %slot = bsr.indices %p transpose : !p -> tensor<5xi32>, tensor<3xi32>, tensor<3xi32>
  return %ptr, %slot : tensor<5xi32>, tensor<3xi32>
}

// Patterns that change are counted behind those that do not.
// CHECK-LABEL: func @static(
// CHECK-SAME:    tensor<1x2x2xf32> {bsr.name = "s", bsr.pattern_number = 0 : i64}
// CHECK-SAME:    tensor<3x2x2xf32> {bsr.name = "a", bsr.pattern_number = 1 : i64}
// CHECK-SAME:    tensor<3xi32> {bsr.kind = "row_ptr", bsr.name = "a", bsr.pattern_number = 1 : i64
// CHECK-SAME:    bsr.patterns = [{density = 1.250000e-01 : f64, name = "s", type = !bsr.pattern<4x8, block = 2x2, slots = 1>}, {name = "a", type = !bsr.pattern<4x8, block = 2x2, slots = 3>}]
func.func @static(%s: tensor<1x2x2xf32> {bsr.name = "s", bsr.pattern_number = 0 : i64},
                  %a: tensor<3x2x2xf32> {bsr.name = "a", bsr.pattern = 2 : i64},
                  %p: !p {bsr.name = "a", bsr.role = "pattern"})
    attributes {bsr.patterns = [{density = 0.125, name = "s", type = !bsr.pattern<4x8, block = 2x2, slots = 1>}]} {
  return
}

// CHECK-LABEL: func @no_pattern(%{{.*}}: tensor<4xf32>)
// CHECK-NOT:     bsr.patterns
// CHECK:         return
func.func @no_pattern(%x: tensor<4xf32>) {
  return
}

// -----

!p = !bsr.pattern<4x8, block = 2x2, slots = 3>

func.func @other_user(%p: !p {bsr.name = "w"}) -> tensor<3xi1> {
  // expected-error @below {{expected patterns to be used by 'bsr.indices' only, but got 'bsr.live'}}
  %live = bsr.live %p : !p -> tensor<3xi1>
  return %live : tensor<3xi1>
}

// -----

// A kernel written by hand has no body here.
// CHECK-LABEL: func private @by_hand(memref<4xf32>)
func.func private @by_hand(memref<4xf32>)

// -----

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>

func.func @loop(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64},
                %p: !p {bsr.name = "w", bsr.role = "pattern"}, %x: tensor<3x8xf32>) -> tensor<3x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = arith.constant 5000 : index
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%h = %x) -> tensor<3x8xf32> {
    // expected-error @below {{expected operations on a pattern outside of loops, but got 'bsr.spmm' in a loop of 5000 steps, which are more operations than bsr-unroll may make: give it fewer, or allow more with 'max-operations' (sparse-compile --max-operations)}}
    %0 = bsr.spmm %p, %w, %h feature_dim = 1 : !p, tensor<2x4x4xf32>, tensor<3x8xf32> -> tensor<3x8xf32>
    scf.yield %0 : tensor<3x8xf32>
  }
  return %y : tensor<3x8xf32>
}

// -----

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>

func.func @data(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64},
                %p: !p {bsr.name = "w", bsr.role = "pattern"}, %x: tensor<3x8xf32>, %n: index) -> tensor<3x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %y = scf.for %i = %c0 to %n step %c1 iter_args(%h = %x) -> tensor<3x8xf32> {
    // expected-error @below {{expected operations on a pattern outside of loops, but got 'bsr.spmm' in a loop of unknown length: give it a constant number of steps}}
    %0 = bsr.spmm %p, %w, %h feature_dim = 1 : !p, tensor<2x4x4xf32>, tensor<3x8xf32> -> tensor<3x8xf32>
    scf.yield %0 : tensor<3x8xf32>
  }
  return %y : tensor<3x8xf32>
}
