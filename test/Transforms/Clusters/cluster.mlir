// RUN: sparse-opt %s --split-input-file --bsr-hoist-scalars --bsr-drop-unit-reductions --bsr-loosen-slices --bsr-cluster \
// RUN:   | FileCheck %s

#id = affine_map<(s, r, c) -> (s, r, c)>
#scalar = affine_map<(s, r, c) -> ()>

// An optimizer's update of a weight and its moments is one launch.
// CHECK-LABEL: func @optimizer
// CHECK-SAME:    %[[P:[^:]*]]: tensor<4x8x8xf32>, %[[M:[^:]*]]: tensor<4x8x8xf32>, %[[V:[^:]*]]: tensor<4x8x8xf32>
// CHECK:         %[[NEXT:.*]]:3 = bsr.launch @cluster
// CHECK-NOT:     bsr.launch
// CHECK:         return %[[NEXT]]#2, %[[NEXT]]#0, %[[NEXT]]#1
func.func @optimizer(%p: tensor<4x8x8xf32>, %m: tensor<4x8x8xf32>, %v: tensor<4x8x8xf32>,
                     %g: tensor<4x8x8xf32>, %lr: tensor<f32>)
    -> (tensor<4x8x8xf32>, tensor<4x8x8xf32>, tensor<4x8x8xf32>) {
  %e = tensor.empty() : tensor<4x8x8xf32>
  %beta = arith.constant 0.9 : f32
  %eps = arith.constant 1.0e-8 : f32
  %m1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%m, %g : tensor<4x8x8xf32>, tensor<4x8x8xf32>) outs(%e : tensor<4x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %beta : f32
    %1 = arith.addf %0, %b : f32
    linalg.yield %1 : f32
  } -> tensor<4x8x8xf32>
  %v1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%v, %g : tensor<4x8x8xf32>, tensor<4x8x8xf32>) outs(%e : tensor<4x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %beta : f32
    %1 = arith.mulf %b, %b : f32
    %2 = arith.addf %0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<4x8x8xf32>
  %p1 = linalg.generic {indexing_maps = [#id, #id, #id, #scalar, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %m1, %v1, %lr : tensor<4x8x8xf32>, tensor<4x8x8xf32>, tensor<4x8x8xf32>, tensor<f32>)
      outs(%e : tensor<4x8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %rate: f32, %o: f32):
    %0 = math.sqrt %c : f32
    %1 = arith.addf %0, %eps : f32
    %2 = arith.divf %b, %1 : f32
    %3 = arith.mulf %2, %rate : f32
    %4 = arith.subf %a, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<4x8x8xf32>
  return %p1, %m1, %v1 : tensor<4x8x8xf32>, tensor<4x8x8xf32>, tensor<4x8x8xf32>
}

// -----

!pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
#id = affine_map<(f, t) -> (f, t)>

// Equal layers share their function: two launches of one, a product with the
// element-wise operation that follows it.
// CHECK-LABEL: func @layers
// CHECK:         %[[H:.*]] = bsr.launch @[[LAYER:.*]] ins(%{{.*}}, %{{.*}}, %{{.*}} : !bsr.pattern
// CHECK:         bsr.launch @[[LAYER]] ins(%{{.*}}, %{{.*}}, %[[H]] : !bsr.pattern
// CHECK:         bsr.cluster private
// CHECK-SAME:    bsr.kind = "spmm"
// CHECK-NOT:     bsr.cluster
func.func @layers(%p: !pattern, %w: tensor<3x16x16xf32>, %q: !pattern, %v: tensor<3x16x16xf32>, %x: tensor<32x48xf32>)
    -> tensor<32x48xf32> {
  %e = tensor.empty() : tensor<32x48xf32>
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<32x48xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<32x48xf32>) outs(%e : tensor<32x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<32x48xf32>
  %z = bsr.spmm %q, %v, %h feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<32x48xf32>
  %r = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z : tensor<32x48xf32>) outs(%e : tensor<32x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<32x48xf32>
  return %r : tensor<32x48xf32>
}

// -----

!pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
#id = affine_map<(f, t) -> (f, t)>
#feature = affine_map<(f, t) -> (f)>

// A gradient follows the product with its sums over tokens, and with what is
// made after the product, but not the product itself if nobody else reads it.
// CHECK-LABEL: func @gradient
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern{{[^,]*}}, {{[^,]*}}, {{.*}}%[[W:[^:]*]]: tensor<3x16x16xf32>, %[[DY:[^:]*]]: tensor<32x48xf32>, %[[H:[^:]*]]: tensor<32x48xf32>
// CHECK:         %[[R:.*]]:2 = bsr.launch @[[F:.*]] ins(%[[P]], %[[W]], %[[DY]], {{.*}}%[[H]]
// CHECK-SAME:    -> tensor<32x48xf32>, tensor<32xf32>
// CHECK-NOT:     bsr.launch
// CHECK:         return %[[R]]#0, %[[R]]#1
// CHECK:         bsr.cluster private @[[F]]
// CHECK-SAME:    bsr.kind = "spmm_transposed"
func.func @gradient(%p: !pattern, %w: tensor<3x16x16xf32>, %dy: tensor<32x48xf32>, %h: tensor<32x48xf32>)
    -> (tensor<32x48xf32>, tensor<32xf32>) {
  %e = tensor.empty() : tensor<32x48xf32>
  %zero = arith.constant dense<0.0> : tensor<32xf32>
  %dh = bsr.spmm %p, %w, %dy transpose feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<32x48xf32>
  %t = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<32x48xf32>) outs(%e : tensor<32x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<32x48xf32>
  %d = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dh, %t : tensor<32x48xf32>, tensor<32x48xf32>) outs(%e : tensor<32x48xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = math.exp %b : f32
    %1 = arith.mulf %a, %0 : f32
    %2 = arith.mulf %1, %b : f32
    linalg.yield %2 : f32
  } -> tensor<32x48xf32>
  %s = linalg.generic {indexing_maps = [#id, #feature], iterator_types = ["parallel", "reduction"]}
      ins(%d : tensor<32x48xf32>) outs(%zero : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<32xf32>
  return %d, %s : tensor<32x48xf32>, tensor<32xf32>
}

// -----

!pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
#id = affine_map<(f, t) -> (f, t)>
#token = affine_map<(f, t) -> (t)>

// A sum over features needs more than a work item has: it does not follow. Nor
// does what reads other elements of the product.
// CHECK-LABEL: func @not_followed
// CHECK:         %[[Y:.*]] = bsr.launch @{{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : !bsr.pattern{{.*}} -> tensor<32x32xf32>
// CHECK:         bsr.launch @{{.*}} ins(%[[Y]] : tensor<32x32xf32>){{.*}} -> tensor<32xf32>
// CHECK:         bsr.launch @{{.*}} ins(%[[Y]] : tensor<32x32xf32>){{.*}} -> tensor<32x32xf32>
func.func @not_followed(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x32xf32>)
    -> (tensor<32xf32>, tensor<32x32xf32>) {
  %e = tensor.empty() : tensor<32x32xf32>
  %zero = arith.constant dense<0.0> : tensor<32xf32>
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
  %s = linalg.generic {indexing_maps = [#id, #token], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<32x32xf32>) outs(%zero : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<32xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(f, t) -> (t, f)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<32x32xf32>) outs(%e : tensor<32x32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<32x32xf32>
  return %s, %t : tensor<32xf32>, tensor<32x32xf32>
}

// -----

#id = affine_map<(f, t) -> (f, t)>
#feature = affine_map<(f, t) -> (f)>
#y = affine_map<(f, t, k) -> (f, t)>

// A dense product has followers, too: a bias, an activation, and sums over tokens.
// CHECK-LABEL: func @dense
// CHECK:         %[[R:.*]]:2 = bsr.launch @[[F:.*]] ins({{.*}} -> tensor<32x48xf32>, tensor<32xf32>
// CHECK-NOT:     bsr.launch
// CHECK:         return %[[R]]#0, %[[R]]#1
// CHECK:         bsr.cluster private @[[F]]
// CHECK-SAME:    bsr.flops = 61440 : i64, bsr.kind = "dense"
func.func @dense(%w: tensor<20x32xf32>, %x: tensor<20x48xf32>, %b: tensor<32xf32>) -> (tensor<32x48xf32>, tensor<32xf32>) {
  %e = tensor.empty() : tensor<32x48xf32>
  %zeros = arith.constant dense<0.0> : tensor<32x48xf32>
  %zero = arith.constant dense<0.0> : tensor<32xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(f, t, k) -> (k, f)>, affine_map<(f, t, k) -> (k, t)>, #y],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%w, %x : tensor<20x32xf32>, tensor<20x48xf32>) outs(%zeros : tensor<32x48xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %0 = arith.mulf %a, %c : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<32x48xf32>
  %h = linalg.generic {indexing_maps = [#id, #feature, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %b : tensor<32x48xf32>, tensor<32xf32>) outs(%e : tensor<32x48xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %0 = arith.addf %a, %c : f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> tensor<32x48xf32>
  %s = linalg.generic {indexing_maps = [#id, #feature], iterator_types = ["parallel", "reduction"]}
      ins(%h : tensor<32x48xf32>) outs(%zero : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<32xf32>
  return %h, %s : tensor<32x48xf32>, tensor<32xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>

// What is rounded is read, not the sums that it is rounded from.
// CHECK-LABEL: func @rounded
// CHECK:         %[[Y:.*]]:{{.*}} = bsr.launch {{.*}} -> tensor<8x8xbf16>, tensor<8x8xf32>
// CHECK:         bsr.launch {{.*}} ins(%[[Y]]#0 : tensor<8x8xbf16>)
func.func @rounded(%a: tensor<8x64xf32>, %b: tensor<64x8xf32>) -> tensor<8x8xf32> {
  %e = tensor.empty() : tensor<8x8xf32>
  %n = tensor.empty() : tensor<8x8xbf16>
  %zeros = arith.constant dense<0.0> : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>,
                                        affine_map<(i, j, k) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<8x64xf32>, tensor<64x8xf32>) outs(%zeros : tensor<8x8xf32>) {
  ^bb0(%c: f32, %d: f32, %o: f32):
    %0 = arith.mulf %c, %d : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<8x8xf32>) outs(%n : tensor<8x8xbf16>) {
  ^bb0(%c: f32, %o: bf16):
    %0 = arith.truncf %c : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<8x8xbf16>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%h : tensor<8x8xbf16>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%c: bf16, %o: f32):
    %0 = arith.extf %c : bf16 to f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>

// Where vectors run along what is summed up, sums are not there until the end.
// CHECK-LABEL: func @summed_across_lanes
// CHECK-COUNT-2: bsr.launch
// CHECK:         return
func.func @summed_across_lanes(%a: tensor<8x64xf32>, %b: tensor<12x64xf32>) -> tensor<8x12xf32> {
  %e = tensor.empty() : tensor<8x12xf32>
  %zeros = arith.constant dense<0.0> : tensor<8x12xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (j, k)>,
                                        affine_map<(i, j, k) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<8x64xf32>, tensor<12x64xf32>) outs(%zeros : tensor<8x12xf32>) {
  ^bb0(%c: f32, %d: f32, %o: f32):
    %0 = arith.mulf %c, %d : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<8x12xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%c: f32, %o: f32):
    %0 = math.tanh %c : f32
    linalg.yield %0 : f32
  } -> tensor<8x12xf32>
  return %h : tensor<8x12xf32>
}

// -----

!pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
#id = affine_map<(f, t) -> (f, t)>

// A product that lies nowhere else until it is read is a result.
// CHECK-LABEL: func @of_another_type
// CHECK:         %[[R:.*]]:2 = bsr.launch {{.*}} -> tensor<32x48xbf16>, tensor<32x48xf32>
// CHECK:         return %[[R]]#0
func.func @of_another_type(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x48xf32>) -> tensor<32x48xbf16> {
  %e = tensor.empty() : tensor<32x48xbf16>
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<32x48xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<32x48xf32>) outs(%e : tensor<32x48xbf16>) {
  ^bb0(%a: f32, %o: bf16):
    %0 = arith.truncf %a : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<32x48xbf16>
  return %h : tensor<32x48xbf16>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>

// So is what one element in a row of is gathered, and what takes more operations
// for each row, but few for each element.
// CHECK-LABEL: func @gathered
// CHECK-SAME:    %[[X:[^:]*]]: tensor<8x16xf32>, %[[B:[^:]*]]: tensor<16xf32>, %[[L:[^:]*]]: tensor<8xi32>, %[[W:[^:]*]]: tensor<8xf32>
// CHECK-NOT:     outs({{.*}} tensor<8x16xf32>
// CHECK:         return
// CHECK:         bsr.cluster private
func.func @gathered(%x: tensor<8x16xf32>, %b: tensor<16xf32>, %l: tensor<8xi32>, %w: tensor<8xf32>)
    -> (tensor<16xf32>, tensor<8xf32>, tensor<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x16xf32>
  %r = tensor.empty() : tensor<8xf32>
  %c = tensor.empty() : tensor<16xf32>
  %i = linalg.fill ins(%zero : f32) outs(%c : tensor<16xf32>) -> tensor<16xf32>
  %y = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %b : tensor<8x16xf32>, tensor<16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %d: f32, %o: f32):
    %0 = arith.addf %a, %d : f32
    linalg.yield %0 : f32
  } -> tensor<8x16xf32>
  %s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<8x16xf32>) outs(%i : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%l : tensor<8xi32>) outs(%r : tensor<8xf32>) {
  ^bb0(%label: i32, %o: f32):
    %0 = linalg.index 0 : index
    %1 = arith.index_cast %label : i32 to index
    %2 = tensor.extract %y[%0, %1] : tensor<8x16xf32>
    linalg.yield %2 : f32
  } -> tensor<8xf32>
  %w1 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%w : tensor<8xf32>) outs(%r : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %hot = linalg.generic {indexing_maps = [#row, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%l, %w1 : tensor<8xi32>, tensor<8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%label: i32, %a: f32, %o: f32):
    %0 = linalg.index 1 : index
    %1 = arith.index_cast %0 : index to i32
    %2 = arith.cmpi eq, %1, %label : i32
    %3 = arith.select %2, %a, %zero : f32
    linalg.yield %3 : f32
  } -> tensor<8x16xf32>
  %t = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%hot : tensor<8x16xf32>) outs(%i : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %m = linalg.generic {indexing_maps = [#id, #id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%hot, %y : tensor<8x16xf32>, tensor<8x16xf32>) outs(%t : tensor<16xf32>) {
  ^bb0(%a: f32, %d: f32, %o: f32):
    %0 = arith.maximumf %a, %d : f32
    %1 = arith.addf %0, %o : f32
    linalg.yield %1 : f32
  } -> tensor<16xf32>
  return %s, %g, %m : tensor<16xf32>, tensor<8xf32>, tensor<16xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>

// What is cheap (three operations) and used twice is computed again in both.
// CHECK-LABEL: func @cheap_producer
// CHECK:         bsr.launch {{.*}} ins(%arg0 :
// CHECK:         bsr.launch {{.*}} ins(%arg0 :
// CHECK-NOT:     bsr.launch
func.func @cheap_producer(%x: tensor<8x16xf32>) -> (tensor<8xf32>, tensor<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x16xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.negf %0 : f32
    %2 = arith.addf %1, %a : f32
    linalg.yield %2 : f32
  } -> tensor<8x16xf32>
  %e0 = tensor.empty() : tensor<8xf32>
  %i0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<8x16xf32>) outs(%i0 : tensor<8xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %e1 = tensor.empty() : tensor<16xf32>
  %i1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
  %c = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<8x16xf32>) outs(%i1 : tensor<16xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  return %r, %c : tensor<8xf32>, tensor<16xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>
#in = affine_map<(i, u, j) -> (i, u, j)>
#out = affine_map<(i, u, j) -> (i, j)>

// A sum over a loop of one iteration is cheap, too: an addition to its init.
// CHECK-LABEL: func @unit_sum
// CHECK:         bsr.launch @[[ROWS:.*]] ins(%arg0, %arg1 :
// CHECK:         bsr.launch {{.*}} ins(%arg0, %arg1 :
// CHECK-NOT:     bsr.launch
// CHECK:         bsr.cluster private @[[ROWS]](%[[X:.*]]: tensor<8x1x16xf32>, %[[B:.*]]: tensor<8x16xf32>)
// CHECK:           linalg.generic {{.*}}["parallel", "parallel", "parallel"]} ins(%[[X]] : tensor<8x1x16xf32>) outs(%[[B]] :
// CHECK-NEXT:      ^bb0(%[[A:.*]]: f32, %[[INIT:.*]]: f32):
// CHECK-NEXT:        arith.addf %[[A]], %[[INIT]]
func.func @unit_sum(%x: tensor<8x1x16xf32>, %b: tensor<8x16xf32>) -> (tensor<8xf32>, tensor<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %y = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<8x1x16xf32>) outs(%b : tensor<8x16xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<8x16xf32>
  %e0 = tensor.empty() : tensor<8xf32>
  %i0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<8x16xf32>) outs(%i0 : tensor<8xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %e1 = tensor.empty() : tensor<16xf32>
  %i1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
  %c = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<8x16xf32>) outs(%i1 : tensor<16xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  return %r, %c : tensor<8xf32>, tensor<16xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#col = affine_map<(i, j) -> (j)>

// One operation more, and it is stored, by the kernel that sums its rows.
// CHECK-LABEL: func @dear_producer
// CHECK:         %[[Y:.*]]:2 = bsr.launch {{.*}} ins(%arg0 :
// CHECK:         %[[C:.*]] = bsr.launch {{.*}} ins(%[[Y]]#0 :
// CHECK-NOT:     bsr.launch
// CHECK:         return %[[Y]]#1, %[[C]]
func.func @dear_producer(%x: tensor<8x16xf32>) -> (tensor<8xf32>, tensor<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x16xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %a : f32
    %1 = arith.negf %0 : f32
    %2 = arith.addf %1, %a : f32
    %3 = arith.addf %2, %a : f32
    linalg.yield %3 : f32
  } -> tensor<8x16xf32>
  %e0 = tensor.empty() : tensor<8xf32>
  %i0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<8xf32>) -> tensor<8xf32>
  %r = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<8x16xf32>) outs(%i0 : tensor<8xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %e1 = tensor.empty() : tensor<16xf32>
  %i1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<16xf32>) -> tensor<16xf32>
  %c = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<8x16xf32>) outs(%i1 : tensor<16xf32>) {
  ^bb0(%a: f32, %s: f32):
    %0 = arith.addf %a, %s : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  return %r, %c : tensor<8xf32>, tensor<16xf32>
}

// -----

!pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
#id = affine_map<(f, t) -> (f, t)>

// A product reads its operands from memory, however cheap they are.
// CHECK-LABEL: func @operand_of_a_product
// CHECK:         %[[H:.*]] = bsr.launch {{.*}} ins(%{{.*}} : tensor<32x48xf32>)
// CHECK:         bsr.launch {{.*}} ins(%{{.*}}, %{{.*}}, %[[H]] : !bsr.pattern
// CHECK-NOT:     bsr.launch
func.func @operand_of_a_product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x48xf32>) -> tensor<32x48xf32> {
  %e = tensor.empty() : tensor<32x48xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<32x48xf32>) outs(%e : tensor<32x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> tensor<32x48xf32>
  %y = bsr.spmm %p, %w, %h feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x48xf32> -> tensor<32x48xf32>
  return %y : tensor<32x48xf32>
}

// -----

#id = affine_map<(i) -> (i)>
#none = affine_map<(i) -> ()>

// Operations on one tensor are one cluster, unless one needs what is there when all
// work items are done: a total.
// CHECK-LABEL: func @not_before_its_operands
// CHECK:         %[[Y:.*]]:2 = bsr.launch {{.*}} ins(%[[X:[^ ]*]] : tensor<8xf32>) outs({{.*}} : tensor<8xf32>, tensor<f32>)
// CHECK:         %[[Z:.*]] = bsr.launch {{.*}} ins(%[[X]], %[[Y]]#1 :
// CHECK:         return %[[Y]]#0, %[[Z]]
func.func @not_before_its_operands(%x: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %e0 = tensor.empty() : tensor<f32>
  %i0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<f32>) -> tensor<f32>
  %s = linalg.generic {indexing_maps = [#id, #none], iterator_types = ["reduction"]}
      ins(%y : tensor<8xf32>) outs(%i0 : tensor<f32>) {
  ^bb0(%a: f32, %t: f32):
    %0 = arith.addf %a, %t : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %z = linalg.generic {indexing_maps = [#id, #none, #id], iterator_types = ["parallel"]}
      ins(%x, %s : tensor<8xf32>, tensor<f32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  return %y, %z : tensor<8xf32>, tensor<8xf32>
}

// -----

#id = affine_map<(b, f, t) -> (b, f, t)>
#token = affine_map<(b, f, t) -> (b, t)>
#feature = affine_map<(b, f, t) -> (f)>

// A chain along the tokens is one launch, with totals over tokens. Sums that only it
// reads are no results, nor are the powers: they lie where their quotients will.
// CHECK-LABEL: func @softmax
// CHECK:         %[[P:.*]]:2 = bsr.launch @[[CHAIN:.*]] ins(%arg0 :
// CHECK-NOT:     bsr.launch
// CHECK:         return %[[P]]#0, %[[P]]#1
// CHECK:         bsr.cluster private @[[CHAIN]](
// CHECK:           arith.maximumf
// CHECK:           linalg.generic {{.*}} {bsr.root = #bsr.root<nest = 1 loops = [0, -1, 1] place = 0>}
// CHECK-NEXT:      ^bb0
// CHECK:             math.exp
// CHECK:           arith.addf
// CHECK:           arith.divf
// CHECK:           bsr.yield %{{.*}}, %{{.*}} : tensor<2x5x16xf32>, tensor<5xf32>
func.func @softmax(%x: tensor<2x5x16xf32>) -> (tensor<2x5x16xf32>, tensor<5xf32>) {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<2x5x16xf32>
  %f = tensor.empty() : tensor<2x16xf32>
  %g = tensor.empty() : tensor<5xf32>
  %i = linalg.fill ins(%low : f32) outs(%f : tensor<2x16xf32>) -> tensor<2x16xf32>
  %m = linalg.generic {indexing_maps = [#id, #token], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<2x5x16xf32>) outs(%i : tensor<2x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.maximumf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x16xf32>
  %p = linalg.generic {indexing_maps = [#id, #token, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %m : tensor<2x5x16xf32>, tensor<2x16xf32>) outs(%e : tensor<2x5x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x5x16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%f : tensor<2x16xf32>) -> tensor<2x16xf32>
  %s = linalg.generic {indexing_maps = [#id, #token], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%p : tensor<2x5x16xf32>) outs(%z : tensor<2x16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<2x16xf32>
  %q = linalg.generic {indexing_maps = [#id, #token, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%p, %s : tensor<2x5x16xf32>, tensor<2x16xf32>) outs(%e : tensor<2x5x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x5x16xf32>
  %zf = linalg.fill ins(%zero : f32) outs(%g : tensor<5xf32>) -> tensor<5xf32>
  %r = linalg.generic {indexing_maps = [#id, #feature], iterator_types = ["reduction", "parallel", "reduction"]}
      ins(%q : tensor<2x5x16xf32>) outs(%zf : tensor<5xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<5xf32>
  return %q, %r : tensor<2x5x16xf32>, tensor<5xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#col = affine_map<(i, j) -> (j)>
#one = affine_map<(j) -> (j)>

// An update of an argument is a kernel of its own: it overwrites what it reads.
// CHECK-LABEL: func @update
// CHECK:         %[[S:.*]] = bsr.launch {{.*}} ins(%arg0 :
// CHECK:         %[[B:.*]] = bsr.launch {{.*}} ins(%arg1, %[[S]] :
// CHECK:         return %[[B]]
func.func @update(%x: tensor<8x16xf32>, %b: tensor<16xf32> {bsr.result = 0 : i64}) -> tensor<16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
  %s = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<8x16xf32>) outs(%i : tensor<16xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  %n = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%b, %s : tensor<16xf32>, tensor<16xf32>) outs(%e : tensor<16xf32>) {
  ^bb0(%a: f32, %c: f32, %o: f32):
    %0 = arith.subf %a, %c : f32
    linalg.yield %0 : f32
  } -> tensor<16xf32>
  return %n : tensor<16xf32>
}

// -----

// What no kernel computes stays where it is, and so do functions that are no step.
// CHECK-LABEL: func @not_for_kernels
// CHECK-NOT:     bsr.launch
// CHECK:         tensor.pad
// CHECK-LABEL: func private @helper
// CHECK-NOT:     bsr.launch
// CHECK:         bsr.num_absent
func.func @not_for_kernels(%x: tensor<4xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %y = tensor.pad %x low[0] high[4] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<8xf32>
  return %y : tensor<8xf32>
}
func.func private @helper(%p: !bsr.pattern<32x32, block = 16x16, slots = 3>) -> tensor<f32> {
  %n = bsr.num_absent %p : !bsr.pattern<32x32, block = 16x16, slots = 3> -> tensor<f32>
  return %n : tensor<f32>
}

// -----

#a = affine_map<(i, j, k) -> (i, k)>
#b = affine_map<(i, j, k) -> (k, j)>
#c = affine_map<(i, j, k) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
#at = affine_map<(i, j) -> (i, j)>
!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// A cluster says what kind of work it does, and the floating-point operations of
// its product: 2 * 3 * 16 * 16 * 8 and 2 * 4 * 6 * 8.
// CHECK-LABEL: func @kinds
func.func @kinds(%p: !pattern, %v: tensor<3x16x16xf32>, %x: tensor<32x8xf32>, %dy: tensor<64x8xf32>,
                 %l: tensor<4x8xf32>, %r: tensor<8x6xf32>, %i: tensor<8xi32>)
    -> (tensor<64x8xf32>, tensor<32x8xf32>, tensor<3x16x16xf32>, tensor<4x6xf32>, tensor<4xf32>,
        tensor<16x32xf32>, tensor<32x64xf32>) {
  // CHECK-DAG: bsr.cluster private @{{.*}} attributes {bsr.flops = 12288 : i64, bsr.kind = "spmm", plan = #bsr.plan<nests>}
  %0 = bsr.spmm %p, %v, %x feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x8xf32> -> tensor<64x8xf32>
  // CHECK-DAG: bsr.cluster private @{{.*}} attributes {bsr.flops = 12288 : i64, bsr.kind = "spmm_transposed", plan = #bsr.plan<nests>}
  %1 = bsr.spmm %p, %v, %dy transpose feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<64x8xf32> -> tensor<32x8xf32>
  // CHECK-DAG: bsr.cluster private @{{.*}} attributes {bsr.flops = 12288 : i64, bsr.kind = "sddmm", plan = #bsr.plan<nests>}
  %2 = bsr.sddmm %p, %x, %dy feature_dim = 0 : !pattern, tensor<32x8xf32>, tensor<64x8xf32> -> tensor<3x16x16xf32>
  // CHECK-DAG: bsr.cluster private @{{.*}} attributes {bsr.flops = 384 : i64, bsr.kind = "dense", plan = #bsr.plan<nests>}
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x6xf32>) -> tensor<4x6xf32>
  %3 = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%l, %r : tensor<4x8xf32>, tensor<8x6xf32>) outs(%f : tensor<4x6xf32>) {
  ^bb0(%s: f32, %t: f32, %o: f32):
    %m = arith.mulf %s, %t : f32
    %n = arith.addf %o, %m : f32
    linalg.yield %n : f32
  } -> tensor<4x6xf32>
  // CHECK-DAG: bsr.cluster private @{{.*}} attributes {bsr.kind = "reduction", plan = #bsr.plan<nests>}
  %e1 = tensor.empty() : tensor<4xf32>
  %f1 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = ["parallel"]} outs(%e1 : tensor<4xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<4xf32>
  %4 = linalg.generic {indexing_maps = [#at, #row], iterator_types = ["parallel", "reduction"]}
      ins(%l : tensor<4x8xf32>) outs(%f1 : tensor<4xf32>) {
  ^bb0(%s: f32, %o: f32):
    %n = arith.addf %o, %s : f32
    linalg.yield %n : f32
  } -> tensor<4xf32>
  // CHECK-DAG: bsr.cluster private @{{.*}} attributes {bsr.kind = "copy", plan = #bsr.plan<nests>}
  %e2 = tensor.empty() : tensor<8x32xf32>
  %u = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, #at], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<32x8xf32>) outs(%e2 : tensor<8x32xf32>) {
  ^bb0(%s: f32, %o: f32):
    linalg.yield %s : f32
  } -> tensor<8x32xf32>
  // CHECK-DAG: bsr.cluster private @{{.*}} attributes {bsr.kind = "scatter", plan = #bsr.plan<nests>}
  %5 = bsr.scatter_add %i, %u feature_dim = 1 : tensor<8xi32>, tensor<8x32xf32> -> tensor<16x32xf32>
  // CHECK-DAG: bsr.cluster private @{{.*}} attributes {bsr.kind = "other", plan = #bsr.plan<nests>}
  %6 = bsr.to_dense %p, %v : !pattern, tensor<3x16x16xf32> -> tensor<32x64xf32>
  return %0, %1, %2, %3, %4, %5, %6 : tensor<64x8xf32>, tensor<32x8xf32>, tensor<3x16x16xf32>, tensor<4x6xf32>, tensor<4xf32>, tensor<16x32xf32>, tensor<32x64xf32>
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#a = affine_map<(h, i, j, k) -> (h, i, k)>
#b = affine_map<(h, i, j, k) -> (h, k, j)>
#c = affine_map<(h, i, j, k) -> (h, i, j)>

// A concatenation is one launch, and what only it reads is computed there: a product,
// whose dimensions are merged, and a dear element-wise operation. The second product
// is read by another operation: it comes before. Both products count.
// CHECK-LABEL: func @concatenation
// CHECK-SAME:    bsr.products = {dense = 2 : i64, sddmm = 0 : i64, spmm = 0 : i64, spmm_transposed = 0 : i64}
// CHECK:         %[[SECOND:.*]] = bsr.launch @[[PRODUCT:.*]] ins(%{{.*}}, %{{.*}} : tensor<2x3x4xf32>, tensor<2x4x8xf32>) {{.*}} -> tensor<2x3x8xf32>
// CHECK:         %[[ALL:.*]] = bsr.launch @[[CONCATENATION:.*]] ins(%{{.*}}, %{{.*}}, %[[SECOND]], %{{.*}} : tensor<2x3x4xf32>, tensor<2x4x8xf32>, tensor<2x3x8xf32>, tensor<5x8xf32>) {{.*}} -> tensor<17x8xf32>
// CHECK-NEXT:    return %[[ALL]], %[[SECOND]]
// CHECK:       bsr.cluster private @[[PRODUCT]]
// CHECK:       bsr.cluster private @[[CONCATENATION]]({{.*}}bsr.flops = 384 : i64, bsr.kind = "dense"
// CHECK:         "reduction"
// CHECK:         math.exp
// CHECK:         tensor.concat
func.func @concatenation(%x: tensor<2x3x4xf32> {bsr.name = "x"}, %y: tensor<2x4x8xf32> {bsr.name = "y"},
                         %z: tensor<5x8xf32> {bsr.name = "z"}) -> (tensor<17x8xf32>, tensor<2x3x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x3x8xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<2x3x8xf32>) -> tensor<2x3x8xf32>
  %first = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<2x3x4xf32>, tensor<2x4x8xf32>) outs(%i : tensor<2x3x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %p, %q : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x3x8xf32>
  %second = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<2x3x4xf32>, tensor<2x4x8xf32>) outs(%i : tensor<2x3x8xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.mulf %q, %p : f32
    %1 = arith.addf %o, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x3x8xf32>
  %f = tensor.empty() : tensor<5x8xf32>
  %power = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z : tensor<5x8xf32>) outs(%f : tensor<5x8xf32>) {
  ^bb0(%p: f32, %o: f32):
    %0 = math.exp %p : f32
    linalg.yield %0 : f32
  } -> tensor<5x8xf32>
  %u = tensor.collapse_shape %first [[0, 1], [2]] : tensor<2x3x8xf32> into tensor<6x8xf32>
  %v = tensor.collapse_shape %second [[0, 1], [2]] : tensor<2x3x8xf32> into tensor<6x8xf32>
  %all = tensor.concat dim(0) %u, %v, %power : (tensor<6x8xf32>, tensor<6x8xf32>, tensor<5x8xf32>) -> tensor<17x8xf32>
  return %all, %second : tensor<17x8xf32>, tensor<2x3x8xf32>
}

// -----

#map = affine_map<(d0) -> (d0)>

// What is read again behind the peak of memory is no reason to be computed before
// it, and what is computed again is not merged with the first time.
// CHECK-LABEL: func @peak
// CHECK:         %[[Y:.*]] = bsr.launch @[[TANH:cluster[0-9_]*]] ins(%{{.*}}) outs(%{{.*}} : tensor<64xf32>)
// CHECK-NOT:     bsr.recomputed
// CHECK:         %[[Z:.*]] = bsr.launch @[[NEXT:cluster[0-9_]*]] ins(%[[Y]] :
// CHECK:         %[[AGAIN:.*]] = bsr.launch @[[TANH]] ins(%{{.*}}) outs({{.*}}) {bsr.recomputed}
// CHECK:         return %[[Y]], %[[Z]], %[[AGAIN]]
// CHECK:       bsr.cluster private @[[TANH]]
// CHECK-NOT:     bsr.recomputed
// CHECK-NOT:     bsr.peak
func.func @peak(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<f32>, tensor<64xf32>) {
  %e = tensor.empty() : tensor<64xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %z = linalg.generic {indexing_maps = [#map, #map, affine_map<(d0) -> ()>], iterator_types = ["reduction"], bsr.peak}
      ins(%y, %y : tensor<64xf32>, tensor<64xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %again = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"], bsr.recomputed}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %y, %z, %again : tensor<64xf32>, tensor<f32>, tensor<64xf32>
}

// -----

// Of many slices of one tensor, the offset is an argument: one function.
// CHECK-LABEL: func @steps
// CHECK-SAME:    %[[X:[^:]*]]: tensor<9x32x4xf32>
// CHECK-DAG:     %[[I0:.*]] = arith.constant 0 : index
// CHECK-DAG:     %[[I8:.*]] = arith.constant 8 : index
// CHECK:         bsr.launch @cluster ins(%{{.*}}, %{{.*}}, %[[X]], %[[I0]] : !bsr.pattern<{{.*}}>, tensor<3x16x16xf32>, tensor<9x32x4xf32>, index)
// CHECK-COUNT-7: bsr.launch @cluster ins(
// CHECK:         bsr.launch @cluster ins(%{{.*}}, %{{.*}}, %[[X]], %[[I8]] :
// CHECK:       bsr.cluster private @cluster({{.*}}, %[[X:.*]]: tensor<9x32x4xf32>, %[[I:.*]]: index) -> tensor<64x4xf32>
// CHECK:         tensor.extract_slice %[[X]][%[[I]], 0, 0] [1, 32, 4] [1, 1, 1]
// CHECK-NOT:   bsr.cluster private
!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>
!y = tensor<64x4xf32>
func.func @steps(%x: tensor<9x32x4xf32>, %p: !pattern, %w: tensor<3x16x16xf32>)
    -> (!y, !y, !y, !y, !y, !y, !y, !y, !y) {
  %x0 = tensor.extract_slice %x[0, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s0 = tensor.collapse_shape %x0 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y0 = bsr.spmm %p, %w, %s0 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  %x1 = tensor.extract_slice %x[1, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s1 = tensor.collapse_shape %x1 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y1 = bsr.spmm %p, %w, %s1 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  %x2 = tensor.extract_slice %x[2, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s2 = tensor.collapse_shape %x2 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y2 = bsr.spmm %p, %w, %s2 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  %x3 = tensor.extract_slice %x[3, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s3 = tensor.collapse_shape %x3 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y3 = bsr.spmm %p, %w, %s3 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  %x4 = tensor.extract_slice %x[4, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s4 = tensor.collapse_shape %x4 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y4 = bsr.spmm %p, %w, %s4 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  %x5 = tensor.extract_slice %x[5, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s5 = tensor.collapse_shape %x5 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y5 = bsr.spmm %p, %w, %s5 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  %x6 = tensor.extract_slice %x[6, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s6 = tensor.collapse_shape %x6 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y6 = bsr.spmm %p, %w, %s6 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  %x7 = tensor.extract_slice %x[7, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s7 = tensor.collapse_shape %x7 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y7 = bsr.spmm %p, %w, %s7 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  %x8 = tensor.extract_slice %x[8, 0, 0] [1, 32, 4] [1, 1, 1] : tensor<9x32x4xf32> to tensor<1x32x4xf32>
  %s8 = tensor.collapse_shape %x8 [[0, 1], [2]] : tensor<1x32x4xf32> into tensor<32x4xf32>
  %y8 = bsr.spmm %p, %w, %s8 feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32x4xf32> -> !y
  return %y0, %y1, %y2, %y3, %y4, %y5, %y6, %y7, %y8 : !y, !y, !y, !y, !y, !y, !y, !y, !y
}

// -----

// A sum that a scalar takes to a body is there before what reads it.
// CHECK-LABEL: func @divided
// CHECK:         %[[SUM:.*]] = bsr.launch @cluster ins(%{{.*}} : tensor<64x64xf32>) outs(%{{.*}} : tensor<f32>)
// CHECK:         bsr.launch @cluster_0 ins(%{{.*}}, %[[SUM]] : tensor<64x64xf32>, tensor<f32>)
func.func @divided(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %z = arith.constant dense<0.0> : tensor<f32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> ()>],
                       iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<64x64xf32>) outs(%z : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %o : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %n = tensor.extract %s[] : tensor<f32>
  %e = tensor.empty() : tensor<64x64xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.divf %a, %n : f32
    linalg.yield %0 : f32
  } -> tensor<64x64xf32>
  return %y : tensor<64x64xf32>
}

// -----

// Roots of which nothing is used, as recomputation leaves them, are no launch,
// even if they are as many as make a chain.
// CHECK-LABEL: func @dead
// CHECK-NEXT:    return
func.func @dead(%x: tensor<64xf32>) -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64xf32>
  %y0 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y1 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y2 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.log %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y3 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.erf %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y4 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.sin %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y5 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.cos %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y6 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.erfc %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y7 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.expm1 %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y8 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.log1p %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y9 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<64xf32>) outs(%e : tensor<64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.atan %a : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  return %x : tensor<64xf32>
}

// -----

// What nothing needs is in no cluster.
// CHECK-LABEL: func @dead(
// CHECK-NOT:     bsr.launch
// CHECK:         return
// CHECK-NOT:     bsr.cluster
func.func @dead(%x: tensor<8xf32>) -> tensor<8xf32> {
  %e = tensor.empty() : tensor<8xf32>
  %0 = linalg.exp ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %1 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %3 = math.exp %a : f32
    linalg.yield %3 : f32
  } -> tensor<8xf32>
  %2 = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%1 : tensor<8xf32>) outs(%e : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %3 = math.exp %a : f32
    linalg.yield %3 : f32
  } -> tensor<8xf32>
  return %x : tensor<8xf32>
}
