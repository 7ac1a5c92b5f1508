// RUN: sparse-opt %s --split-input-file --bsr-propagate=require-sparse | FileCheck %s --implicit-check-not=bsr.sample

// The rules that pull samples up, named as in the description of bsr-propagate.

// S1: sample(p, to_dense(p, v)) -> v
// CHECK-LABEL: func.func @meet(
// CHECK-SAME:    %[[V:[^ :]*]]: tensor<2x4x4xf32>)
// CHECK-NEXT:    return %[[V]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @meet(%p: !p, %v: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %d = bsr.to_dense %p, %v transpose : !bsr.pattern<8x12, block = 4x4, slots = 2>, tensor<2x4x4xf32> -> tensor<12x8xf32>
  %s = bsr.sample %p, %d transpose : !bsr.pattern<8x12, block = 4x4, slots = 2>, tensor<12x8xf32> -> tensor<2x4x4xf32>
  return %s : tensor<2x4x4xf32>
}

// -----

// S2: operands as they are, transposed and scalar; a background does not matter.
// Both results are computed by one operation, once, whatever samples them.
// CHECK-LABEL: func.func @element_wise(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[A:[^:]*]]: tensor<2x4x4xf32>, %[[B:[^:]*]]: tensor<2x4x4xbf16>,
// CHECK-SAME:    %[[S:[^:]*]]: tensor<f32>, %[[C:[^:]*]]: f32)
// CHECK:         %[[R:.*]]:2 = linalg.generic
// CHECK-SAME:      ["parallel", "parallel", "parallel"]
// CHECK-SAME:      ins(%[[A]], %[[B]], %[[S]], %[[C]] : tensor<2x4x4xf32>, tensor<2x4x4xbf16>, tensor<f32>, f32)
// CHECK-SAME:      outs(%{{.*}}, %{{.*}} : tensor<2x4x4xf32>, tensor<2x4x4xbf16>)
// CHECK-NEXT:    ^bb0(%[[A0:.*]]: f32, %[[B0:.*]]: bf16, %[[S0:.*]]: f32, %[[C0:.*]]: f32, %{{.*}}: f32, %{{.*}}: bf16)
// CHECK-NEXT:      %[[X:.*]] = arith.extf %[[B0]]
// CHECK-NEXT:      %[[Y:.*]] = arith.mulf %[[X]], %[[S0]]
// CHECK-NEXT:      %[[Z:.*]] = arith.divf %[[Y]], %[[C0]]
// CHECK-NEXT:      %[[U:.*]] = arith.subf %[[A0]], %[[Z]]
// CHECK-NEXT:      linalg.yield %[[U]], %[[B0]]
// CHECK-NOT:     linalg.generic
// CHECK:         return %[[R]]#0, %[[R]]#1, %[[R]]#0
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @element_wise(%p: !p, %a: tensor<2x4x4xf32>, %b: tensor<2x4x4xbf16>, %s: tensor<f32>, %c: f32)
    -> (tensor<2x4x4xf32>, tensor<2x4x4xbf16>, tensor<2x4x4xf32>) {
  %bg = arith.constant dense<1.0> : tensor<f32>
  %da = bsr.to_dense %p, %a background %bg : !p, tensor<2x4x4xf32>, tensor<f32> -> tensor<8x12xf32>
  %db = bsr.to_dense %p, %b transpose : !p, tensor<2x4x4xbf16> -> tensor<12x8xbf16>
  %e0 = tensor.empty() : tensor<8x12xf32>
  %e1 = tensor.empty() : tensor<12x8xbf16>
  %0, %1 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>,
                       affine_map<(d0, d1) -> ()>, affine_map<(d0, d1) -> ()>,
                       affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1, d0)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%da, %db, %s, %c : tensor<8x12xf32>, tensor<12x8xbf16>, tensor<f32>, f32)
      outs(%e0, %e1 : tensor<8x12xf32>, tensor<12x8xbf16>) {
  ^bb0(%x: f32, %y: bf16, %z: f32, %w: f32, %o0: f32, %o1: bf16):
    %2 = arith.extf %y : bf16 to f32
    %3 = arith.mulf %2, %z : f32
    %4 = arith.divf %3, %w : f32
    %5 = arith.subf %x, %4 : f32
    linalg.yield %5, %y : f32, bf16
  } -> (tensor<8x12xf32>, tensor<12x8xbf16>)
  %s0 = bsr.sample %p, %0 : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  %s1 = bsr.sample %p, %1 transpose : !p, tensor<12x8xbf16> -> tensor<2x4x4xbf16>
  %s2 = bsr.sample %p, %0 : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %s0, %s1, %s2 : tensor<2x4x4xf32>, tensor<2x4x4xbf16>, tensor<2x4x4xf32>
}

// -----

// S2 with uniform operands: a broadcast scalar, a fill, a constant and a function
// of them are scalars on values, too; constants stand in the body.
// CHECK-LABEL: func.func @uniform(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[A:[^:]*]]: tensor<2x4x4xf32>, %[[S:[^:]*]]: tensor<f32>)
// CHECK:         %[[M:.*]] = linalg.generic {{.*}}iterator_types = []} ins(%[[S]] : tensor<f32>)
// CHECK:         linalg.generic {{.*}} ins(%[[A]], %[[M]] : tensor<2x4x4xf32>, tensor<f32>)
// CHECK-NOT:     8x12xf32
// CHECK:         return
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
#scalar = affine_map<(d0, d1) -> ()>
func.func @uniform(%p: !p, %a: tensor<2x4x4xf32>, %s: tensor<f32>) -> tensor<2x4x4xf32> {
  %d = bsr.to_dense %p, %a : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %e = tensor.empty() : tensor<8x12xf32>
  %one = arith.constant 1.0 : f32
  %two = arith.constant dense<2.0> : tensor<8x12xf32>
  %fill = linalg.fill ins(%one : f32) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %broadcast = linalg.generic {indexing_maps = [#scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<f32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<8x12xf32>
  %product = linalg.mul ins(%broadcast, %two : tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d, %product, %fill : tensor<8x12xf32>, tensor<8x12xf32>, tensor<8x12xf32>) outs(%e : tensor<8x12xf32>) {
  ^bb0(%x: f32, %y: f32, %z: f32, %o: f32):
    %1 = arith.mulf %x, %y : f32
    %2 = arith.subf %1, %z : f32
    linalg.yield %2 : f32
  } -> tensor<8x12xf32>
  %v = bsr.sample %p, %0 : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %v : tensor<2x4x4xf32>
}

// -----

// S3: token dimensions in the same order, the features last: taken as they are.
// CHECK-LABEL: func.func @product(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[X:[^:]*]]: tensor<3x5x8xf32>, %[[Y:[^:]*]]: tensor<3x5x12xf32>)
// CHECK-NEXT:    %[[V:.*]] = bsr.sddmm %[[P]], %[[X]], %[[Y]] feature_dim = 2
// CHECK-NEXT:    return %[[V]]
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @product(%p: !p, %x: tensor<3x5x8xf32>, %y: tensor<3x5x12xf32>) -> tensor<2x4x4xf32> {
  // The gradient as JAX writes it: transposed, by a product and a copy.
  %e = tensor.empty() : tensor<12x8xf32>
  %zero = arith.constant 0.0 : f32
  %c = linalg.fill ins(%zero : f32) outs(%e : tensor<12x8xf32>) -> tensor<12x8xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d2, d3, d0)>, affine_map<(d0, d1, d2, d3) -> (d2, d3, d1)>,
                       affine_map<(d0, d1, d2, d3) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%y, %x : tensor<3x5x12xf32>, tensor<3x5x8xf32>) outs(%c : tensor<12x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<12x8xf32>
  %et = tensor.empty() : tensor<8x12xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<12x8xf32>) outs(%et : tensor<8x12xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8x12xf32>
  %v = bsr.sample %p, %t : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %v : tensor<2x4x4xf32>
}

// -----

// S3, S5: the transpose in front of an operand is looked through where the
// orders then agree; the sample of a transpose is a transposed sample.
// CHECK-LABEL: func.func @torch(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<12x8, block = 4x4, slots = 2>, %[[X:[^:]*]]: tensor<5x8xf32>, %[[DY:[^:]*]]: tensor<5x12xf32>)
// CHECK-NEXT:    %[[V:.*]] = bsr.sddmm %[[P]], %[[DY]], %[[X]] feature_dim = 1
// CHECK-NEXT:    return %[[V]]
!p = !bsr.pattern<12x8, block = 4x4, slots = 2>
func.func @torch(%p: !p, %x: tensor<5x8xf32>, %dy: tensor<5x12xf32>) -> tensor<2x4x4xf32> {
  %e = tensor.empty() : tensor<12x5xf32>
  %t = linalg.transpose ins(%dy : tensor<5x12xf32>) outs(%e : tensor<12x5xf32>) permutation = [1, 0]
  %c = arith.constant dense<0.0> : tensor<12x8xf32>
  %0 = linalg.matmul ins(%t, %x : tensor<12x5xf32>, tensor<5x8xf32>) outs(%c : tensor<12x8xf32>) -> tensor<12x8xf32>
  %e1 = tensor.empty() : tensor<8x12xf32>
  %1 = linalg.transpose ins(%0 : tensor<12x8xf32>) outs(%e1 : tensor<8x12xf32>) permutation = [1, 0]
  %v = bsr.sample %p, %1 transpose : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %v : tensor<2x4x4xf32>
}

// -----

// S3: where the orders differ, the smaller operand is transposed; features may
// be in the middle.
// CHECK-LABEL: func.func @align(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[X:[^:]*]]: tensor<8x5x3xf32>, %[[Y:[^:]*]]: tensor<3x12x5xf32>)
// CHECK:         %[[T:.*]] = linalg.transpose ins(%[[X]] : tensor<8x5x3xf32>) outs(%{{.*}} : tensor<3x8x5xf32>) permutation = [2, 0, 1]
// CHECK:         bsr.sddmm %[[P]], %[[T]], %[[Y]] feature_dim = 1
// CHECK-NOT:     linalg.generic
// CHECK:         return
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @align(%p: !p, %x: tensor<8x5x3xf32>, %y: tensor<3x12x5xf32>) -> tensor<2x4x4xf32> {
  %c = arith.constant dense<0.0> : tensor<8x12xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>, affine_map<(d0, d1, d2, d3) -> (d3, d1, d2)>,
                       affine_map<(d0, d1, d2, d3) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %y : tensor<8x5x3xf32>, tensor<3x12x5xf32>) outs(%c : tensor<8x12xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<8x12xf32>
  %v = bsr.sample %p, %0 : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %v : tensor<2x4x4xf32>
}

// -----

// S3b: a product that adds to something samples that as well; the element types
// of operands and result may differ.
// CHECK-LABEL: func.func @accumulate(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x12, block = 4x4, slots = 2>, %[[X:[^:]*]]: tensor<5x8xbf16>, %[[Y:[^:]*]]: tensor<5x12xbf16>, %[[C:[^:]*]]: tensor<2x4x4xf32>)
// CHECK:         %[[V:.*]] = bsr.sddmm %[[P]], %[[X]], %[[Y]] feature_dim = 1 {{.*}} -> tensor<2x4x4xf32>
// CHECK:         linalg.add ins(%[[V]], %[[C]] : tensor<2x4x4xf32>, tensor<2x4x4xf32>)
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @accumulate(%p: !p, %x: tensor<5x8xbf16>, %y: tensor<5x12xbf16>, %c: tensor<2x4x4xf32>) -> tensor<2x4x4xf32> {
  %d = bsr.to_dense %p, %c : !p, tensor<2x4x4xf32> -> tensor<8x12xf32>
  %0 = linalg.matmul
      indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%x, %y : tensor<5x8xbf16>, tensor<5x12xbf16>) outs(%d : tensor<8x12xf32>) -> tensor<8x12xf32>
  %v = bsr.sample %p, %0 : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %v : tensor<2x4x4xf32>
}

// -----

// S4: what is the same everywhere is so on the values.
// CHECK-LABEL: func.func @splats(
// CHECK-NOT:     tensor<8x12
// CHECK:         return %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x4xf32>
!p = !bsr.pattern<8x12, block = 4x4, slots = 2>
func.func @splats(%x: f32, %p: !p)
    -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>) {
  %constant = arith.constant dense<2.0> : tensor<8x12xf32>
  %splat = tensor.splat %x : tensor<8x12xf32>
  %empty = tensor.empty() : tensor<8x12xf32>
  %fill = linalg.fill ins(%x : f32) outs(%empty : tensor<8x12xf32>) -> tensor<8x12xf32>
  %0 = bsr.sample %p, %constant : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  %1 = bsr.sample %p, %splat : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  %2 = bsr.sample %p, %empty : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  %3 = bsr.sample %p, %fill : !p, tensor<8x12xf32> -> tensor<2x4x4xf32>
  return %0, %1, %2, %3 : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>
}

// -----

// A constant pattern is available everywhere, wherever it was written.
// CHECK-LABEL: func.func @constant_pattern(
// CHECK-NEXT:    %[[P:.*]] = bsr.constant_pattern
// CHECK-NEXT:    bsr.sddmm %[[P]]
func.func @constant_pattern(%x: tensor<5x8xf32>, %y: tensor<5x8xf32>) -> tensor<1x4x4xf32> {
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  %0 = linalg.matmul
      indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%x, %y : tensor<5x8xf32>, tensor<5x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = bsr.constant_pattern row_ptr = [0, 1, 1] col_idx = [1] : !bsr.pattern<8x8, block = 4x4, slots = 1>
  %v = bsr.sample %p, %0 : !bsr.pattern<8x8, block = 4x4, slots = 1>, tensor<8x8xf32> -> tensor<1x4x4xf32>
  return %v : tensor<1x4x4xf32>
}

// -----

// S6: an update that is taken as a whole or not.
// CHECK-LABEL: func.func @select(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern<8x8, block = 4x4, slots = 2>, %[[V:[^:]*]]: tensor<2x4x4xf32>, %[[U:[^:]*]]: tensor<2x4x4xf32>, %[[C:[^:]*]]: i1)
// CHECK-NEXT:    %[[S:.*]] = arith.select %[[C]], %[[V]], %[[U]] : tensor<2x4x4xf32>
// CHECK-NEXT:    return %[[S]]
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
func.func @select(%p: !p, %v: tensor<2x4x4xf32>, %u: tensor<2x4x4xf32>, %c: i1) -> tensor<2x4x4xf32> {
  %a = bsr.to_dense %p, %v : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %b = bsr.to_dense %p, %u : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %d = arith.select %c, %a, %b : tensor<8x8xf32>
  %s = bsr.sample %p, %d : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  return %s : tensor<2x4x4xf32>
}
