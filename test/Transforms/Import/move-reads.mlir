// RUN: sparse-opt %s --bsr-move-reads | FileCheck %s

// A destination that the body of an element-wise operation reads becomes an
// operand; another one stays what it is.

// CHECK-DAG: #[[ID:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG: #[[T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
#id = affine_map<(i, j) -> (i, j)>
#t = affine_map<(i, j) -> (j, i)>

// CHECK-LABEL: func.func @update(
// CHECK-SAME:    %[[DW:.*]]: tensor<4x8xf32>, %[[M:.*]]: tensor<4x8xf32>, %[[W:.*]]: tensor<8x4xf32>)
// CHECK:         %[[E:.*]] = tensor.empty() : tensor<8x4xf32>
// CHECK:         %[[R:.*]]:2 = linalg.generic {indexing_maps = [#[[ID]], #[[T]], #[[ID]], #[[T]]], iterator_types = ["parallel", "parallel"]}
// CHECK-SAME:      ins(%[[DW]], %[[W]] : tensor<4x8xf32>, tensor<8x4xf32>) outs(%[[M]], %[[E]] : tensor<4x8xf32>, tensor<8x4xf32>)
// CHECK:         ^bb0(%[[G:.*]]: f32, %[[OLD:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32):
// CHECK:           %[[NEW:.*]] = arith.subf %[[OLD]], %[[G]]
// CHECK:           linalg.yield %[[G]], %[[NEW]]
// CHECK:         return %[[R]]#0, %[[R]]#1
func.func @update(%dw: tensor<4x8xf32>, %m: tensor<4x8xf32>, %w: tensor<8x4xf32>) -> (tensor<4x8xf32>, tensor<8x4xf32>) {
  %0:2 = linalg.generic {indexing_maps = [#id, #id, #t], iterator_types = ["parallel", "parallel"]}
      ins(%dw : tensor<4x8xf32>) outs(%m, %w : tensor<4x8xf32>, tensor<8x4xf32>) {
  ^bb0(%g: f32, %unread: f32, %out: f32):
    %1 = arith.subf %out, %g : f32
    linalg.yield %g, %1 : f32, f32
  } -> (tensor<4x8xf32>, tensor<8x4xf32>)
  return %0#0, %0#1 : tensor<4x8xf32>, tensor<8x4xf32>
}

// Two of one type; both are read.

// CHECK-LABEL: func.func @swap(
// CHECK-SAME:    %[[A:.*]]: tensor<4x4xf32>, %[[B:.*]]: tensor<4x4xf32>)
// CHECK:         linalg.generic
// CHECK-SAME:      ins(%[[A]], %[[B]] :
// CHECK:         ^bb0(%[[X:.*]]: f32, %[[Y:.*]]: f32, %{{.*}}: f32, %{{.*}}: f32):
// CHECK:           linalg.yield %[[Y]], %[[X]]
func.func @swap(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %0:2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      outs(%a, %b : tensor<4x4xf32>, tensor<4x4xf32>) {
  ^bb0(%x: f32, %y: f32):
    linalg.yield %y, %x : f32, f32
  } -> (tensor<4x4xf32>, tensor<4x4xf32>)
  return %0#0, %0#1 : tensor<4x4xf32>, tensor<4x4xf32>
}

// A map is an operation of the same kind; a sum needs what it adds to.

// CHECK-LABEL: func.func @map(
// CHECK-SAME:    %[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>
// CHECK:         linalg.generic
// CHECK-SAME:      ins(%[[X]], %[[Y]] :
// CHECK:         linalg.reduce { arith.addf } ins(%{{.*}} : tensor<4xf32>) outs(%{{.*}} : tensor<f32>)
func.func @map(%x: tensor<4xf32>, %y: tensor<4xf32>, %s: tensor<f32>) -> (tensor<4xf32>, tensor<f32>) {
  %0 = linalg.map ins(%x : tensor<4xf32>) outs(%y : tensor<4xf32>)
    (%a: f32, %out: f32) {
      %1 = arith.addf %a, %out : f32
      linalg.yield %1 : f32
    }
  %2 = linalg.reduce { arith.addf } ins(%0 : tensor<4xf32>) outs(%s : tensor<f32>) dimensions = [0]
  return %0, %2 : tensor<4xf32>, tensor<f32>
}

// What is added to zeros is the sum: an outer product, with zeros that a fill,
// a constant or a generic makes. Twice a destination is no sum with it.

#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>
// CHECK-LABEL: func.func @outer(
// CHECK-COUNT-3: %[[P:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK-NEXT:    linalg.yield %[[P]] : f32
// CHECK:         arith.addf
// CHECK-NOT:     arith.addf
func.func @outer(%a: tensor<4xf32>, %b: tensor<8xf32>)
    -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x8xf32>
  %filled = linalg.fill ins(%zero : f32) outs(%e : tensor<4x8xf32>) -> tensor<4x8xf32>
  %constant = arith.constant dense<0.0> : tensor<4x8xf32>
  %made = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<4x8xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<4x8xf32>
  %0 = linalg.generic {indexing_maps = [#row, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4xf32>, tensor<8xf32>) outs(%filled : tensor<4x8xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  %1 = linalg.generic {indexing_maps = [#row, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4xf32>, tensor<8xf32>) outs(%constant : tensor<4x8xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %p, %o : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  %2 = linalg.generic {indexing_maps = [#row, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<4xf32>, tensor<8xf32>) outs(%made : tensor<4x8xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %p, %o : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  %3 = linalg.generic {indexing_maps = [#id], iterator_types = ["parallel", "parallel"]} outs(%filled : tensor<4x8xf32>) {
  ^bb0(%o: f32):
    %s = arith.addf %o, %o : f32
    linalg.yield %s : f32
  } -> tensor<4x8xf32>
  return %0, %1, %2, %3 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
}
