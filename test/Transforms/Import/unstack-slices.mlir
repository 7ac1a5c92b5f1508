// RUN: sparse-opt %s --split-input-file --bsr-unstack | FileCheck %s

// A slice of what was inserted is a value only if the value is all of it: not of
// another shape, not where an insert lies across it, and not between strides.

// CHECK-LABEL: func.func @slices(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<4x8xf32> {bsr.name = "x"}, %[[Y:[^:]*]]: tensor<2x4x8xf32>
// CHECK:         %[[ROWS:.*]] = tensor.insert_slice %[[X]] into %{{.*}}[0, 0, 0] [4, 1, 8]
// CHECK:         %[[A:.*]] = tensor.extract_slice %[[ROWS]][0, 0, 0] [1, 4, 8] [1, 1, 1]
// CHECK:         %[[ONE:.*]] = tensor.insert_slice %[[X]] into %{{.*}}[0, 0, 0] [1, 4, 8]
// CHECK:         %[[B:.*]] = tensor.extract_slice %[[ONE]][0, 0, 0] [1, 4, 8] [1, 1, 1]
// CHECK:         %[[SECOND:.*]] = tensor.insert_slice %[[X]] into %{{.*}}[1, 0, 0] [1, 4, 8]
// CHECK:         %[[C:.*]] = tensor.extract_slice %[[SECOND]][0, 0, 0] [2, 4, 8]
// CHECK:         %[[APART:.*]] = tensor.insert_slice %[[Y]] into %{{.*}}[0, 0, 0] [2, 4, 8] [2, 1, 1]
// CHECK:         %[[D:.*]] = tensor.extract_slice %[[APART]][1, 0, 0] [1, 4, 8]
// CHECK:         return %{{.*}}, %[[A]], %[[B]], %[[C]], %[[D]]
!s = tensor<1x8x8xf32>
!x = tensor<4x8xf32>
!one = tensor<1x4x8xf32>
!two = tensor<2x4x8xf32>
!saved = tensor<4x4x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
func.func @slices(%x: !x {bsr.name = "x"}, %y: !two {bsr.name = "y"}, %saved: !saved {bsr.name = "saved"},
                  %w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64}) -> (!s, !x, !one, !two, !one) {
  %0 = tensor.insert_slice %x into %saved[0, 0, 0] [4, 1, 8] [1, 1, 1] : !x into !saved
  %a = tensor.extract_slice %0[0, 0, 0] [1, 4, 8] [1, 1, 1] : !saved to !x
  %1 = tensor.insert_slice %x into %saved[0, 0, 0] [1, 4, 8] [1, 1, 1] : !x into !saved
  %b = tensor.extract_slice %1[0, 0, 0] [1, 4, 8] [1, 1, 1] : !saved to !one
  %2 = tensor.insert_slice %x into %saved[1, 0, 0] [1, 4, 8] [1, 1, 1] : !x into !saved
  %c = tensor.extract_slice %2[0, 0, 0] [2, 4, 8] [1, 1, 1] : !saved to !two
  %3 = tensor.insert_slice %y into %saved[0, 0, 0] [2, 4, 8] [2, 1, 1] : !two into !saved
  %d = tensor.extract_slice %3[1, 0, 0] [1, 4, 8] [1, 1, 1] : !saved to !one
  return %w, %a, %b, %c, %d : !s, !x, !one, !two, !one
}

// -----

// A copy is a reshape only if it keeps all elements in their order.

// CHECK-LABEL: func.func @copies(
// CHECK-NOT:     expand_shape
// CHECK:         %[[A:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<8x8xf32>) outs(%{{.*}} : tensor<1x8x8xf32>)
// CHECK:         %[[B:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<8x8xf32>) outs(%{{.*}} : tensor<2x8x8xf32>)
// CHECK:         %[[C:.*]] = linalg.generic {{.*}} ins(%{{.*}} : tensor<8x8xf32>) outs(%{{.*}} : tensor<1x8x8xf32>)
// CHECK:         return %{{.*}}, %[[A]], %[[B]], %[[C]]
!s = tensor<1x8x8xf32>
!m = tensor<8x8xf32>
!two = tensor<2x8x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
#id = affine_map<(l, r, c) -> (l, r, c)>
#turned = affine_map<(l, r, c) -> (l, c, r)>
#tail = affine_map<(l, r, c) -> (r, c)>
#swapped = affine_map<(l, r, c) -> (c, r)>
func.func @copies(%x: !m {bsr.name = "x"}, %v: !s {bsr.name = "v"}, %u: !two {bsr.name = "u"},
                  %w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64}) -> (!s, !s, !two, !s) {
  %a = linalg.generic {indexing_maps = [#swapped, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : !m) outs(%v : !s) {
  ^bb0(%p: f32, %o: f32):
    linalg.yield %p : f32
  } -> !s
  %b = linalg.generic {indexing_maps = [#tail, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : !m) outs(%u : !two) {
  ^bb0(%p: f32, %o: f32):
    linalg.yield %p : f32
  } -> !two
  %c = linalg.generic {indexing_maps = [#tail, #turned], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : !m) outs(%v : !s) {
  ^bb0(%p: f32, %o: f32):
    linalg.yield %p : f32
  } -> !s
  return %w, %a, %b, %c : !s, !s, !two, !s
}

// -----

// A slice of a part of what was inserted is a slice of that, but not if it reaches
// beyond.

// CHECK-LABEL: func.func @inside(
// CHECK-SAME:    %[[Y:[^:]*]]: tensor<2x4x8xf32>
// CHECK:         %[[PAIR:.*]] = tensor.insert_slice %[[Y]] into %{{.*}}[1, 0, 0] [2, 4, 8]
// CHECK-DAG:     %[[A:.*]] = tensor.extract_slice %[[Y]][1, 0, 0] [1, 4, 8]
// CHECK-DAG:     %[[B:.*]] = tensor.extract_slice %[[PAIR]][2, 0, 0] [2, 4, 8]
// CHECK:         return %{{.*}}, %[[A]], %[[B]]
!s = tensor<1x8x8xf32>
!one = tensor<1x4x8xf32>
!two = tensor<2x4x8xf32>
!saved = tensor<4x4x8xf32>
#mark = #bsr.mark<block = 4x4, density = 0.5, dims = [stack, row, col], weight = "w">
func.func @inside(%y: !two {bsr.name = "y"}, %saved: !saved {bsr.name = "saved"},
                  %w: !s {bsr.name = "w", bsr.mark = #mark, bsr.result = 0 : i64}) -> (!s, !one, !two) {
  %0 = tensor.insert_slice %y into %saved[1, 0, 0] [2, 4, 8] [1, 1, 1] : !two into !saved
  %a = tensor.extract_slice %0[2, 0, 0] [1, 4, 8] [1, 1, 1] : !saved to !one
  %b = tensor.extract_slice %0[2, 0, 0] [2, 4, 8] [1, 1, 1] : !saved to !two
  return %w, %a, %b : !s, !one, !two
}
