// RUN: sparse-opt %s --split-input-file --bsr-forward-slices --canonicalize --cse | FileCheck %s

// What a loop stored for the backward pass is a value: also where the stored form
// has a dimension more.

// CHECK-LABEL: func.func @saved(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<4x8xf32>
// CHECK-NOT:     insert_slice
// CHECK:         %[[Y:.*]] = linalg.exp ins(%[[X]] :
// CHECK:         %[[Z:.*]] = linalg.negf ins(%[[Y]] :
// CHECK:         return %[[Z]]
!x = tensor<4x8xf32>
!saved = tensor<2x4x8xf32>
#id = affine_map<(l, r, c) -> (l, r, c)>
#back = affine_map<(l, r, c) -> (r, c)>
func.func @saved(%x: !x) -> !x {
  %e = tensor.empty() : !x
  %e1 = tensor.empty() : tensor<1x4x8xf32>
  %saved = tensor.empty() : !saved
  %y = linalg.exp ins(%x : !x) outs(%e : !x) -> !x
  %y1 = linalg.generic {indexing_maps = [#back, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y : !x) outs(%e1 : tensor<1x4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<1x4x8xf32>
  %x1 = tensor.expand_shape %x [[0, 1], [2]] output_shape [1, 4, 8] : !x into tensor<1x4x8xf32>
  %s0 = tensor.insert_slice %y1 into %saved[0, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<1x4x8xf32> into !saved
  %s1 = tensor.insert_slice %x1 into %s0[1, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<1x4x8xf32> into !saved
  %r = tensor.extract_slice %s1[0, 0, 0] [1, 4, 8] [1, 1, 1] : !saved to tensor<1x4x8xf32>
  %r0 = tensor.collapse_shape %r [[0, 1], [2]] : tensor<1x4x8xf32> into !x
  %z = linalg.negf ins(%r0 : !x) outs(%e : !x) -> !x
  return %z : !x
}

// -----

// What was inserted elsewhere is passed by; of what overlaps, or may, the slice
// stays.

// CHECK-LABEL: func.func @elsewhere(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<1x8xf32>, %[[S:[^:]*]]: tensor<4x8xf32>, %[[I:[^:]*]]: index
// CHECK-DAG:     %[[Y:.*]] = tensor.extract_slice %[[S]][3, 0] [1, 8] [1, 1]
// CHECK-DAG:     %[[A:.*]] = tensor.insert_slice %[[X]] into %[[S]][1, 0] [1, 8] [1, 1]
// CHECK-DAG:     %[[Z:.*]] = tensor.extract_slice %[[A]][0, 0] [2, 8] [1, 1]
// CHECK-DAG:     %[[B:.*]] = tensor.insert_slice %[[X]] into %[[S]][%[[I]], 0] [1, 8] [1, 1]
// CHECK-DAG:     %[[U:.*]] = tensor.extract_slice %[[B]][0, 0] [1, 8] [1, 1]
// CHECK:         return %[[Y]], %[[Z]], %[[U]]
func.func @elsewhere(%x: tensor<1x8xf32>, %s: tensor<4x8xf32>, %i: index)
    -> (tensor<1x8xf32>, tensor<2x8xf32>, tensor<1x8xf32>) {
  %a = tensor.insert_slice %x into %s[1, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
  %y = tensor.extract_slice %a[3, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<1x8xf32>
  %z = tensor.extract_slice %a[0, 0] [2, 8] [1, 1] : tensor<4x8xf32> to tensor<2x8xf32>
  %b = tensor.insert_slice %x into %s[%i, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
  %u = tensor.extract_slice %b[0, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<1x8xf32>
  return %y, %z, %u : tensor<1x8xf32>, tensor<2x8xf32>, tensor<1x8xf32>
}

// -----

// Slices have all dimensions, on both sides: what has fewer is a reshape of it.

// CHECK-LABEL: func.func @ranks(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<8xf32>, %[[S:[^:]*]]: tensor<4x8xf32>
// CHECK:         %[[ROW:.*]] = tensor.expand_shape %[[X]] {{\[\[}}0, 1]] output_shape [1, 8]
// CHECK:         %[[A:.*]] = tensor.insert_slice %[[ROW]] into %[[S]][1, 0] [1, 8] [1, 1] : tensor<1x8xf32> into tensor<4x8xf32>
// CHECK:         %[[R:.*]] = tensor.extract_slice %[[S]][2, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<1x8xf32>
// CHECK:         %[[Y:.*]] = tensor.collapse_shape %[[R]] {{\[\[}}0, 1]]
// CHECK:         return %[[A]], %[[Y]]
func.func @ranks(%x: tensor<8xf32>, %s: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>) {
  %a = tensor.insert_slice %x into %s[1, 0] [1, 8] [1, 1] : tensor<8xf32> into tensor<4x8xf32>
  %y = tensor.extract_slice %a[2, 0] [1, 8] [1, 1] : tensor<4x8xf32> to tensor<8xf32>
  return %a, %y : tensor<4x8xf32>, tensor<8xf32>
}
