// RUN: sparse-opt %s --split-input-file --verify-diagnostics --bsr-fold-copies --bsr-layout=report --canonicalize --cse | FileCheck %s

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// Attention between sparse projections: queries are the lanes of the scores, keys
// are what softmax reduces, heads are no lanes.
// CHECK-LABEL: func @attention
// CHECK:         %[[Q:.*]] = bsr.spmm {{.*}} feature_dim = 1 {bsr.lanes} : {{.*}} -> tensor<2x64x48xf32>
// CHECK:         %[[K:.*]] = bsr.spmm {{.*}} feature_dim = 1 {bsr.lanes} : {{.*}} -> tensor<2x64x40xf32>
// CHECK-DAG:     %[[QH:.*]] = tensor.expand_shape %[[Q]] {{.*}} into tensor<2x4x16x48xf32>
// CHECK-DAG:     %[[KH:.*]] = tensor.expand_shape %[[K]] {{.*}} into tensor<2x4x16x40xf32>
// CHECK:         %[[SCORES:.*]] = linalg.generic {{.*}} ins(%[[QH]], %[[KH]] {{.*}} outs(%{{.*}} : tensor<2x4x40x48xf32>)
// CHECK:         linalg.generic {{.*}} ins(%[[SCORES]] : tensor<2x4x40x48xf32>) outs(%{{.*}} : tensor<2x4x48xf32>)
// CHECK-NEXT:    ^bb0
// CHECK-NEXT:      arith.maximumf
#q = affine_map<(b, h, q, k, d) -> (b, q, h, d)>
#k = affine_map<(b, h, q, k, d) -> (b, k, h, d)>
#s = affine_map<(b, h, q, k, d) -> (b, h, q, k)>
#s4 = affine_map<(b, h, q, k) -> (b, h, q, k)>
#m4 = affine_map<(b, h, q, k) -> (b, h, q)>
// expected-remark @below {{expected one layout for whatever reads 'tensor<2x48x32xf32>' of an argument, but got a copy with dimensions in order 0, 2, 1}}
func.func @attention(%p: !pattern, %wq: tensor<3x16x16xf32>, %wk: tensor<3x16x16xf32>, %x: tensor<2x48x32xf32>,
                     // expected-remark @below {{expected one layout for whatever reads 'tensor<2x40x32xf32>' of an argument, but got a copy with dimensions in order 0, 2, 1}}
                     %z: tensor<2x40x32xf32>)
    -> tensor<2x4x48xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %q = bsr.spmm %p, %wq, %x feature_dim = 2 : !pattern, tensor<3x16x16xf32>, tensor<2x48x32xf32> -> tensor<2x48x64xf32>
  %k = bsr.spmm %p, %wk, %z feature_dim = 2 : !pattern, tensor<3x16x16xf32>, tensor<2x40x32xf32> -> tensor<2x40x64xf32>
  %qh = tensor.expand_shape %q [[0], [1], [2, 3]] output_shape [2, 48, 4, 16] : tensor<2x48x64xf32> into tensor<2x48x4x16xf32>
  %kh = tensor.expand_shape %k [[0], [1], [2, 3]] output_shape [2, 40, 4, 16] : tensor<2x40x64xf32> into tensor<2x40x4x16xf32>
  %e = tensor.empty() : tensor<2x4x48x40xf32>
  // expected-remark @below {{expected one layout for whatever reads 'tensor<2x4x48x40xf32>' of 'linalg.fill', but got a copy with dimensions in order 0, 1, 3, 2}}
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<2x4x48x40xf32>) -> tensor<2x4x48x40xf32>
  %scores = linalg.generic {indexing_maps = [#q, #k, #s],
                            iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%qh, %kh : tensor<2x48x4x16xf32>, tensor<2x40x4x16xf32>) outs(%init : tensor<2x4x48x40xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %sum, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x4x48x40xf32>
  %em = tensor.empty() : tensor<2x4x48xf32>
  %im = linalg.fill ins(%low : f32) outs(%em : tensor<2x4x48xf32>) -> tensor<2x4x48xf32>
  %max = linalg.generic {indexing_maps = [#s4, #m4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%scores : tensor<2x4x48x40xf32>) outs(%im : tensor<2x4x48xf32>) {
  ^bb0(%a: f32, %b: f32):
    %0 = arith.maximumf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x4x48xf32>
  return %max : tensor<2x4x48xf32>
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>
#id = affine_map<(b, f, t) -> (b, f, t)>

// Features are in the middle already: nothing to do.
// CHECK-LABEL: func @feature_in_the_middle
// CHECK-NOT:     linalg.yield %in
// CHECK:         bsr.spmm {{.*}} feature_dim = 1
// CHECK:         math.tanh
// CHECK:         bsr.sddmm {{.*}} feature_dim = 1
func.func @feature_in_the_middle(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<2x32x48xf32>)
    -> (tensor<2x64x48xf32>, tensor<3x16x16xf32>) {
  %y = bsr.spmm %p, %w, %x feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<2x32x48xf32> -> tensor<2x64x48xf32>
  %e = tensor.empty() : tensor<2x64x48xf32>
  %z = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y : tensor<2x64x48xf32>) outs(%e : tensor<2x64x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<2x64x48xf32>
  %g = bsr.sddmm %p, %x, %z feature_dim = 1 : !pattern, tensor<2x32x48xf32>, tensor<2x64x48xf32> -> tensor<3x16x16xf32>
  return %z, %g : tensor<2x64x48xf32>, tensor<3x16x16xf32>
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>
#id = affine_map<(t, f) -> (t, f)>
#f = affine_map<(t, f) -> (f)>

// Tokens split and merged between two products; a bias; one slice of the tokens and
// one of the features. Only the argument is converted, and the results.
// CHECK-LABEL: func @reshapes_and_slices
// CHECK-SAME:    %[[X:[^:]*]]: tensor<2x24x32xf32>
// CHECK:         tensor.collapse_shape %[[X]] {{.*}} into tensor<48x32xf32>
// CHECK:         linalg.generic
// CHECK:           linalg.yield %in
// CHECK:         %[[Y:.*]] = bsr.spmm {{.*}} feature_dim = 0 {bsr.lanes} : {{.*}} -> tensor<64x48xf32>
// CHECK:         %[[H:.*]] = linalg.generic {{.*}} ins(%[[Y]], %{{.*}} : tensor<64x48xf32>, tensor<64xf32>)
// CHECK:         %[[PART:.*]] = tensor.extract_slice %[[H]][32, 0] [32, 48] [1, 1] : tensor<64x48xf32> to tensor<32x48xf32>
// CHECK-NEXT:    %[[TOKENS:.*]] = tensor.extract_slice %[[PART]][0, 16] [32, 32] [1, 1] : tensor<32x48xf32> to tensor<32x32xf32>
// CHECK-NEXT:    %[[Z:.*]] = bsr.spmm {{.*}}, %[[TOKENS]] feature_dim = 0 {bsr.lanes} : {{.*}} -> tensor<64x32xf32>
// CHECK:         %[[R:.*]] = linalg.generic {{.*}} ins(%[[Z]] : tensor<64x32xf32>)
// CHECK:           linalg.yield %in
// CHECK:         return %[[R]] : tensor<32x64xf32>
func.func @reshapes_and_slices(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<2x24x32xf32>, %bias: tensor<64xf32>)
    -> tensor<32x64xf32> {
  // expected-remark @below {{expected one layout for whatever reads 'tensor<48x32xf32>' of 'tensor.collapse_shape', but got a copy with dimensions in order 1, 0}}
  %flat = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x24x32xf32> into tensor<48x32xf32>
  %y = bsr.spmm %p, %w, %flat feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<48x32xf32> -> tensor<48x64xf32>
  %e = tensor.empty() : tensor<48x64xf32>
  %h = linalg.generic {indexing_maps = [#id, #f, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %bias : tensor<48x64xf32>, tensor<64xf32>) outs(%e : tensor<48x64xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.addf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<48x64xf32>
  %part = tensor.extract_slice %h[0, 32] [48, 32] [1, 1] : tensor<48x64xf32> to tensor<48x32xf32>
  %tokens = tensor.extract_slice %part[16, 0] [32, 32] [1, 1] : tensor<48x32xf32> to tensor<32x32xf32>
  // expected-remark @below {{expected one layout for whatever reads 'tensor<64x32xf32>' of 'bsr.spmm', but got a copy with dimensions in order 1, 0}}
  %z = bsr.spmm %p, %w, %tokens feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<32x32xf32> -> tensor<32x64xf32>
  return %z : tensor<32x64xf32>
}

// -----

!channels = !bsr.pattern<32x32, block = 16x16, slots = 3>
!tokens = !bsr.pattern<48x48, block = 16x16, slots = 3>

// Products along either dimension of one tensor: each has lanes along its tokens,
// whatever lanes the operand got from another product.
// CHECK-LABEL: func @mixer
// CHECK:         %[[Y:.*]] = bsr.spmm {{.*}} feature_dim = 1 {bsr.lanes} : {{.*}} -> tensor<2x32x48xf32>
// CHECK:         %[[T:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<2x32x48xf32>) outs(%{{.*}} : tensor<2x48x32xf32>)
// CHECK:         %[[Z:.*]] = bsr.spmm {{.*}}, %[[T]] feature_dim = 1 {bsr.lanes} : {{.*}} -> tensor<2x48x32xf32>
// CHECK:         bsr.sddmm {{.*}}, %[[T]], %[[Z]] feature_dim = 1 : {{.*}}, tensor<2x48x32xf32>, tensor<2x48x32xf32>
// expected-remark @below {{expected one layout for whatever reads 'tensor<2x48x32xf32>' of an argument, but got a copy with dimensions in order 0, 2, 1}}
func.func @mixer(%p: !channels, %w: tensor<3x16x16xf32>, %q: !tokens, %v: tensor<3x16x16xf32>, %x: tensor<2x48x32xf32>)
    -> (tensor<2x48x32xf32>, tensor<3x16x16xf32>) {
  // expected-remark @below {{expected one layout for whatever reads 'tensor<2x32x48xf32>' of 'bsr.spmm', but got a copy with dimensions in order 0, 2, 1}}
  %y = bsr.spmm %p, %w, %x feature_dim = 2 : !channels, tensor<3x16x16xf32>, tensor<2x48x32xf32> -> tensor<2x48x32xf32>
  %z = bsr.spmm %q, %v, %y feature_dim = 1 : !tokens, tensor<3x16x16xf32>, tensor<2x48x32xf32> -> tensor<2x48x32xf32>
  %g = bsr.sddmm %q, %y, %z feature_dim = 1 : !tokens, tensor<2x48x32xf32>, tensor<2x48x32xf32> -> tensor<3x16x16xf32>
  return %z, %g : tensor<2x48x32xf32>, tensor<3x16x16xf32>
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// A vector is one token and stays.
// CHECK-LABEL: func @vectors
// CHECK-SAME:    %[[X:[^:]*]]: tensor<32xf32>
// CHECK-NEXT:    %[[Y:.*]] = bsr.spmm {{.*}}, %[[X]] feature_dim = 0 : {{.*}} -> tensor<64xf32>
// CHECK-NEXT:    bsr.sddmm {{.*}}, %[[X]], %[[Y]] feature_dim = 0 : {{.*}}, tensor<32xf32>, tensor<64xf32>
func.func @vectors(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32xf32>) -> (tensor<64xf32>, tensor<3x16x16xf32>) {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 : !pattern, tensor<3x16x16xf32>, tensor<32xf32> -> tensor<64xf32>
  %g = bsr.sddmm %p, %x, %y feature_dim = 0 : !pattern, tensor<32xf32>, tensor<64xf32> -> tensor<3x16x16xf32>
  return %y, %g : tensor<64xf32>, tensor<3x16x16xf32>
}

// -----

#id = affine_map<(t, f) -> (t, f)>

// No sparse product, no tokens: everything stays, but for the transpose, which
// goes into the map of what reads it.
// CHECK-DAG:   #[[$ID:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG:   #[[$T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func @dense
// CHECK:         linalg.generic {indexing_maps = [#[[$T]], #[[$ID]]]
// CHECK-NOT:     linalg.generic
func.func @dense(%x: tensor<48x32xf32>) -> tensor<32x48xf32> {
  %e = tensor.empty() : tensor<32x48xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<48x32xf32>) outs(%e : tensor<32x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<32x48xf32>
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t : tensor<32x48xf32>) outs(%e : tensor<32x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> tensor<32x48xf32>
  return %y : tensor<32x48xf32>
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>
#id = affine_map<(t, f) -> (t, f)>

// Two results, one of them the step's: it keeps its layout.
// CHECK-DAG:   #[[$ID:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG:   #[[$T:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func @pinned_result
// CHECK:         linalg.generic {indexing_maps = [#[[$T]], #[[$ID]], #[[$T]]]
// CHECK-SAME:      outs(%{{.*}}, %{{.*}} : tensor<48x64xf32>, tensor<64x48xf32>)
// expected-remark @below {{expected one layout for whatever reads 'tensor<48x32xf32>' of an argument, but got a copy with dimensions in order 1, 0}}
func.func @pinned_result(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<48x32xf32>)
    -> (tensor<48x64xf32>, tensor<48x32xf32>) {
  %y = bsr.spmm %p, %w, %x feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<48x32xf32> -> tensor<48x64xf32>
  %e = tensor.empty() : tensor<48x64xf32>
  %z:2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<48x64xf32>) outs(%e, %e : tensor<48x64xf32>, tensor<48x64xf32>) {
  ^bb0(%a: f32, %o: f32, %q: f32):
    %0 = math.tanh %a : f32
    %1 = math.exp %a : f32
    linalg.yield %0, %1 : f32, f32
  } -> (tensor<48x64xf32>, tensor<48x64xf32>)
  // expected-remark @below {{expected one layout for whatever reads 'tensor<32x48xf32>' of 'bsr.spmm', but got a copy with dimensions in order 1, 0}}
  %dx = bsr.spmm %p, %w, %z#1 transpose feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<48x64xf32> -> tensor<48x32xf32>
  return %z#0, %dx : tensor<48x64xf32>, tensor<48x32xf32>
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// Pieces have the lanes of the whole, and the whole those of the product that reads
// it: the dimension that they are put together along is another one.
// CHECK-LABEL: func @concatenation
// CHECK-COUNT-2: linalg.yield %in
// CHECK:         %[[Y:.*]] = tensor.concat dim(0) %{{.*}}, %{{.*}} {bsr.lanes} : (tensor<40x48xf32>, tensor<24x48xf32>) -> tensor<64x48xf32>
// CHECK-NEXT:    bsr.spmm {{.*}}, %[[Y]] transpose feature_dim = 0
// expected-remark @below {{expected one layout for whatever reads 'tensor<48x40xf32>' of an argument, but got a copy with dimensions in order 1, 0}}
// expected-remark @below {{expected one layout for whatever reads 'tensor<48x24xf32>' of an argument, but got a copy with dimensions in order 1, 0}}
func.func @concatenation(%p: !pattern, %w: tensor<3x16x16xf32>, %a: tensor<48x40xf32>, %b: tensor<48x24xf32>)
    -> tensor<48x32xf32> {
  %y = tensor.concat dim(1) %a, %b : (tensor<48x40xf32>, tensor<48x24xf32>) -> tensor<48x64xf32>
  // expected-remark @below {{expected one layout for whatever reads 'tensor<32x48xf32>' of 'bsr.spmm', but got a copy with dimensions in order 1, 0}}
  %x = bsr.spmm %p, %w, %y transpose feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<48x64xf32> -> tensor<48x32xf32>
  return %x : tensor<48x32xf32>
}

// -----

!pattern = !bsr.pattern<48x48, block = 16x16, slots = 3>
#id = affine_map<(t, f) -> (t, f)>

// One sum has lanes along tokens, the other is returned as it is: each starts from
// zeros of its own, which are not copied.
// CHECK-LABEL: func @shared_zeros
// CHECK-COUNT-2: linalg.generic {{.*}} ins(%{{.*}} : f32)
// expected-remark @below {{expected one layout for whatever reads 'tensor<48x48xf32>' of an argument, but got a copy with dimensions in order 1, 0}}
func.func @shared_zeros(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<48x48xf32>, %m: tensor<48x48xf32>)
    -> (tensor<48x48xf32>, tensor<48x48xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<48x48xf32>
  %zeros = linalg.generic {indexing_maps = [affine_map<(t, f) -> ()>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%e : tensor<48x48xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<48x48xf32>
  %y = bsr.spmm %p, %w, %x feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<48x48xf32> -> tensor<48x48xf32>
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<48x48xf32>) outs(%zeros : tensor<48x48xf32>) {
  ^bb0(%a: f32, %sum: f32):
    %0 = arith.addf %a, %sum : f32
    linalg.yield %0 : f32
  } -> tensor<48x48xf32>
  // expected-remark @below {{expected one layout for whatever reads 'tensor<48x48xf32>' of 'bsr.spmm', but got a copy with dimensions in order 1, 0}}
  %z = bsr.spmm %p, %w, %h feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<48x48xf32> -> tensor<48x48xf32>
  %s = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<48x48xf32>) outs(%zeros : tensor<48x48xf32>) {
  ^bb0(%a: f32, %sum: f32):
    %0 = arith.addf %a, %sum : f32
    linalg.yield %0 : f32
  } -> tensor<48x48xf32>
  return %z, %s : tensor<48x48xf32>, tensor<48x48xf32>
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// A target without vectors takes activations as they are.
// CHECK-LABEL: func @scalar
// CHECK-NEXT:    bsr.spmm %{{.*}}, %{{.*}}, %{{.*}} feature_dim = 1 :
// CHECK-SAME:      tensor<48x32xf32> -> tensor<48x64xf32>
// CHECK-NEXT:    return
module attributes {bsr.target = #bsr.scalar} {
  func.func @scalar(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<48x32xf32>) -> tensor<48x64xf32> {
    %y = bsr.spmm %p, %w, %x feature_dim = 1
        : !pattern, tensor<3x16x16xf32>, tensor<48x32xf32> -> tensor<48x64xf32>
    return %y : tensor<48x64xf32>
  }
}

// -----

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// What a region reads keeps its layout, and has a copy of its own in it: what
// else reads the same value goes along with its lanes.
// CHECK-LABEL: func @region
// CHECK:         %[[Y:.*]] = bsr.spmm {{.*}} feature_dim = 0 {bsr.lanes} : {{.*}} -> tensor<64x48xf32>
// CHECK:         linalg.generic {{.*}} ins(%[[Y]] : tensor<64x48xf32>) outs(%{{.*}} : tensor<64x48xf32>) attrs = {{.*}}bsr.lanes
// CHECK:         %[[COPY:.*]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<64x48xf32>) outs(%{{.*}} : tensor<48x64xf32>)
// CHECK:         scf.if
// CHECK:           linalg.generic {{.*}} ins(%[[COPY]], %[[SECOND:.*]] : tensor<48x64xf32>, tensor<48x64xf32>)
#id = affine_map<(t, f) -> (t, f)>
#sum = affine_map<(t, f) -> (t)>
func.func @region(%p: !pattern, %w: tensor<3x16x16xf32>,
                  // expected-remark @below {{expected one layout for whatever reads 'tensor<48x32xf32>' of an argument, but got a copy with dimensions in order 1, 0}}
                  %x: tensor<48x32xf32>, %c: i1, %i: tensor<48xf32>)
    -> (tensor<48x64xf32>, tensor<48xf32>) {
  %y = bsr.spmm %p, %w, %x feature_dim = 1 : !pattern, tensor<3x16x16xf32>, tensor<48x32xf32> -> tensor<48x64xf32>
  %e = tensor.empty() : tensor<48x64xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<48x64xf32>) outs(%e : tensor<48x64xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.negf %a : f32
    linalg.yield %1 : f32
  } -> tensor<48x64xf32>
  %in = scf.if %c -> tensor<48x64xf32> {
    %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
        ins(%y, %n : tensor<48x64xf32>, tensor<48x64xf32>) outs(%e : tensor<48x64xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %1 = math.powf %a, %b : f32
      linalg.yield %1 : f32
    } -> tensor<48x64xf32>
    scf.yield %0 : tensor<48x64xf32>
  } else {
    scf.yield %e : tensor<48x64xf32>
  }
  %s = linalg.generic {indexing_maps = [#id, #sum], iterator_types = ["parallel", "reduction"]}
      ins(%n : tensor<48x64xf32>) outs(%i : tensor<48xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %a, %o : f32
    linalg.yield %1 : f32
  } -> tensor<48xf32>
  return %in, %s : tensor<48x64xf32>, tensor<48xf32>
}
