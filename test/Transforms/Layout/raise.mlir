// RUN: sparse-opt %s --split-input-file --bsr-raise | FileCheck %s

#t = affine_map<(t, v) -> (t)>
#tv = affine_map<(t, v) -> (t, v)>
#scatter_a = affine_map<(v, f, t) -> (t, v)>
#scatter_b = affine_map<(v, f, t) -> (t, f)>
#scatter_c = affine_map<(v, f, t) -> (v, f)>

// The other order of operands, a cast of the condition, and merged tokens.
// CHECK-LABEL: func @scatter_add_of_merged_tokens
// CHECK-SAME:    %[[IDS:.*]]: tensor<6xi32>, %[[U:.*]]: tensor<2x3x8xf32>
// CHECK:         %[[WIDE:.*]] = tensor.expand_shape %[[IDS]] {{.*}} into tensor<2x3xi32>
// CHECK-NEXT:    %[[G:.*]] = bsr.scatter_add %[[WIDE]], %[[U]] feature_dim = 2
// CHECK-NEXT:    return %[[G]]
func.func @scatter_add_of_merged_tokens(%ids: tensor<6xi32>, %u: tensor<2x3x8xf32>) -> tensor<10x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x10xf32>
  %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<6xi32>) outs(%e : tensor<6x10xf32>) {
  ^bb0(%id: i32, %out: f32):
    %i = linalg.index 1 : index
    %v = arith.index_cast %i : index to i32
    %is = arith.cmpi eq, %id, %v : i32
    %x = arith.uitofp %is : i1 to f32
    linalg.yield %x : f32
  } -> tensor<6x10xf32>
  %flat = tensor.collapse_shape %u [[0, 1], [2]] : tensor<2x3x8xf32> into tensor<6x8xf32>
  %empty = tensor.empty() : tensor<10x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<10x8xf32>) -> tensor<10x8xf32>
  %g = linalg.generic {indexing_maps = [#scatter_b, #scatter_a, #scatter_c],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%flat, %hot : tensor<6x8xf32>, tensor<6x10xf32>) outs(%init : tensor<10x8xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %m : f32
    linalg.yield %s : f32
  } -> tensor<10x8xf32>
  return %g : tensor<10x8xf32>
}

// -----

#t = affine_map<(t, v) -> (t)>
#tv = affine_map<(t, v) -> (t, v)>
#a = affine_map<(t, f, v) -> (t, v)>
#b = affine_map<(t, f, v) -> (v, f)>
#c = affine_map<(t, f, v) -> (t, f)>

// A product that sums over the rows looks them up; outside of the table, zero.
// CHECK-LABEL: func @gather
// CHECK-SAME:    %[[IDS:.*]]: tensor<6xi32>, %[[W:.*]]: tensor<10x8xf32>
// CHECK:         linalg.generic {{.*}} ins(%[[IDS]] : tensor<6xi32>) outs(%{{.*}} : tensor<6x8xf32>)
// CHECK:           %[[ROW:.*]] = arith.index_cast
// CHECK:           %[[INSIDE:.*]] = arith.cmpi ult, %[[ROW]], %c10
// CHECK:           %[[SAFE:.*]] = arith.select %[[INSIDE]], %[[ROW]], %c0
// CHECK:           %[[F:.*]] = linalg.index 1
// CHECK:           %[[X:.*]] = tensor.extract %[[W]][%[[SAFE]], %[[F]]]
// CHECK:           arith.select %[[INSIDE]], %[[X]]
// CHECK-NOT:     arith.mulf
func.func @gather(%ids: tensor<6xi32>, %w: tensor<10x8xf32>) -> tensor<6x8xf32> {
  %one = arith.constant 1.0 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x10xf32>
  %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<6xi32>) outs(%e : tensor<6x10xf32>) {
  ^bb0(%id: i32, %out: f32):
    %i = linalg.index 1 : index
    %v = arith.index_cast %i : index to i32
    %is = arith.cmpi eq, %v, %id : i32
    %x = arith.select %is, %one, %zero : f32
    linalg.yield %x : f32
  } -> tensor<6x10xf32>
  %empty = tensor.empty() : tensor<6x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<6x8xf32>) -> tensor<6x8xf32>
  %g = linalg.generic {indexing_maps = [#a, #b, #c],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%hot, %w : tensor<6x10xf32>, tensor<10x8xf32>) outs(%init : tensor<6x8xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %m : f32
    linalg.yield %s : f32
  } -> tensor<6x8xf32>
  return %g : tensor<6x8xf32>
}

// -----

#t = affine_map<(t, v) -> (t)>
#tv = affine_map<(t, v) -> (t, v)>
#a = affine_map<(t, f, v) -> (t, v)>
#b = affine_map<(t, f, v) -> (v, f)>
#c = affine_map<(t, f, v) -> (t, f)>

// A sum that starts from something is added to it.
// CHECK-LABEL: func @init_is_not_zero
// CHECK-SAME:    %[[IDS:.*]]: tensor<6xi32>, %[[W:.*]]: tensor<10x8xf32>, %[[INIT:.*]]: tensor<6x8xf32>
// CHECK:         %[[ROWS:.*]] = linalg.generic {{.*}} ins(%[[IDS]] : tensor<6xi32>)
// CHECK:           tensor.extract %[[W]]
// CHECK-NOT:     arith.mulf
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[INIT]], %[[ROWS]] :
// CHECK:           arith.addf
// CHECK:         return %[[SUM]]
func.func @init_is_not_zero(%ids: tensor<6xi32>, %w: tensor<10x8xf32>, %init: tensor<6x8xf32>) -> tensor<6x8xf32> {
  %one = arith.constant 1.0 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x10xf32>
  %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<6xi32>) outs(%e : tensor<6x10xf32>) {
  ^bb0(%id: i32, %out: f32):
    %i = linalg.index 1 : index
    %v = arith.index_cast %i : index to i32
    %is = arith.cmpi eq, %v, %id : i32
    %x = arith.select %is, %one, %zero : f32
    linalg.yield %x : f32
  } -> tensor<6x10xf32>
  %g = linalg.generic {indexing_maps = [#a, #b, #c],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%hot, %w : tensor<6x10xf32>, tensor<10x8xf32>) outs(%init : tensor<6x8xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %m : f32
    linalg.yield %s : f32
  } -> tensor<6x8xf32>
  return %g : tensor<6x8xf32>
}

// -----

#t = affine_map<(t, v) -> (t)>
#tv = affine_map<(t, v) -> (t, v)>
#a = affine_map<(t, f, v) -> (t, v)>
#b = affine_map<(t, f, v) -> (v, f)>
#c = affine_map<(t, f, v) -> (t, f)>

// Twice the row is not the row.
// CHECK-LABEL: func @not_one_hot
// CHECK-NOT:     tensor.extract
// CHECK:         arith.mulf
func.func @not_one_hot(%ids: tensor<6xi32>, %w: tensor<10x8xf32>) -> tensor<6x8xf32> {
  %two = arith.constant 2.0 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x10xf32>
  %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<6xi32>) outs(%e : tensor<6x10xf32>) {
  ^bb0(%id: i32, %out: f32):
    %i = linalg.index 1 : index
    %v = arith.index_cast %i : index to i32
    %is = arith.cmpi eq, %v, %id : i32
    %x = arith.select %is, %two, %zero : f32
    linalg.yield %x : f32
  } -> tensor<6x10xf32>
  %empty = tensor.empty() : tensor<6x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<6x8xf32>) -> tensor<6x8xf32>
  %g = linalg.generic {indexing_maps = [#a, #b, #c],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%hot, %w : tensor<6x10xf32>, tensor<10x8xf32>) outs(%init : tensor<6x8xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %m : f32
    linalg.yield %s : f32
  } -> tensor<6x8xf32>
  return %g : tensor<6x8xf32>
}

// -----

#t = affine_map<(t, v) -> (t)>
#tv = affine_map<(t, v) -> (t, v)>
#a = affine_map<(t, f, v) -> (t, v)>
#b = affine_map<(t, f, v) -> (v, f)>
#c = affine_map<(t, f, v) -> (t, f)>

// 128 rows have numbers that fit in 8 bits, with a sign.
// CHECK-LABEL: func @rows_fit
// CHECK:         tensor.extract
// CHECK-NOT:     arith.mulf
func.func @rows_fit(%ids: tensor<6xi8>, %w: tensor<128x8xf32>) -> tensor<6x8xf32> {
  %one = arith.constant 1.0 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x128xf32>
  %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<6xi8>) outs(%e : tensor<6x128xf32>) {
  ^bb0(%id: i8, %out: f32):
    %i = linalg.index 1 : index
    %v = arith.index_cast %i : index to i8
    %is = arith.cmpi eq, %v, %id : i8
    %x = arith.select %is, %one, %zero : f32
    linalg.yield %x : f32
  } -> tensor<6x128xf32>
  %empty = tensor.empty() : tensor<6x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<6x8xf32>) -> tensor<6x8xf32>
  %g = linalg.generic {indexing_maps = [#a, #b, #c],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%hot, %w : tensor<6x128xf32>, tensor<128x8xf32>) outs(%init : tensor<6x8xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %m : f32
    linalg.yield %s : f32
  } -> tensor<6x8xf32>
  return %g : tensor<6x8xf32>
}

// -----

#t = affine_map<(t, v) -> (t)>
#tv = affine_map<(t, v) -> (t, v)>
#a = affine_map<(t, f, v) -> (t, v)>
#b = affine_map<(t, f, v) -> (v, f)>
#c = affine_map<(t, f, v) -> (t, f)>

// Row 128 is number -128 in 8 bits: the product is no look-up.
// CHECK-LABEL: func @rows_do_not_fit
// CHECK-NOT:     tensor.extract
// CHECK:         arith.mulf
func.func @rows_do_not_fit(%ids: tensor<6xi8>, %w: tensor<129x8xf32>) -> tensor<6x8xf32> {
  %one = arith.constant 1.0 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<6x129xf32>
  %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<6xi8>) outs(%e : tensor<6x129xf32>) {
  ^bb0(%id: i8, %out: f32):
    %i = linalg.index 1 : index
    %v = arith.index_cast %i : index to i8
    %is = arith.cmpi eq, %v, %id : i8
    %x = arith.select %is, %one, %zero : f32
    linalg.yield %x : f32
  } -> tensor<6x129xf32>
  %empty = tensor.empty() : tensor<6x8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<6x8xf32>) -> tensor<6x8xf32>
  %g = linalg.generic {indexing_maps = [#a, #b, #c],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%hot, %w : tensor<6x129xf32>, tensor<129x8xf32>) outs(%init : tensor<6x8xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %m : f32
    linalg.yield %s : f32
  } -> tensor<6x8xf32>
  return %g : tensor<6x8xf32>
}

// -----

#t = affine_map<(t, v) -> (t)>
#tv = affine_map<(t, v) -> (t, v)>
#scatter_a = affine_map<(v, f, t) -> (t, v)>
#scatter_b = affine_map<(v, f, t) -> (t, f)>
#scatter_c = affine_map<(v, f, t) -> (v, f)>

// Nor does a row to which nothing is added get 0 times infinity, where the rows
// are something before.
// CHECK-LABEL: func @scatter_add_to
// CHECK-SAME:    %[[IDS:.*]]: tensor<6xi32>, %[[U:.*]]: tensor<6x8xf32>, %[[INIT:.*]]: tensor<10x8xf32>
// CHECK:         %[[ROWS:.*]] = bsr.scatter_add %[[IDS]], %[[U]]
// CHECK-NOT:     arith.mulf
// CHECK:         %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[INIT]], %[[ROWS]] :
// CHECK:         return %[[SUM]]
func.func @scatter_add_to(%ids: tensor<6xi32>, %u: tensor<6x8xf32>, %init: tensor<10x8xf32>) -> tensor<10x8xf32> {
  %e = tensor.empty() : tensor<6x10xf32>
  %hot = linalg.generic {indexing_maps = [#t, #tv], iterator_types = ["parallel", "parallel"]}
      ins(%ids : tensor<6xi32>) outs(%e : tensor<6x10xf32>) {
  ^bb0(%id: i32, %out: f32):
    %i = linalg.index 1 : index
    %v = arith.index_cast %i : index to i32
    %is = arith.cmpi eq, %id, %v : i32
    %x = arith.uitofp %is : i1 to f32
    linalg.yield %x : f32
  } -> tensor<6x10xf32>
  %g = linalg.generic {indexing_maps = [#scatter_a, #scatter_b, #scatter_c],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%hot, %u : tensor<6x10xf32>, tensor<6x8xf32>) outs(%init : tensor<10x8xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %m = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %m : f32
    linalg.yield %s : f32
  } -> tensor<10x8xf32>
  return %g : tensor<10x8xf32>
}
