// RUN: sparse-opt %s --split-input-file --bsr-propagate=report --verify-diagnostics | FileCheck %s

// What stays dense is named, and reported per weight.

// Two dense uses and a sum that no rule takes: each is one line.
// CHECK-LABEL: func.func @uses(
// CHECK-SAME:    %[[P:[^:]*]]: !bsr.pattern
// CHECK:         bsr.to_dense %[[P]]
// CHECK-NOT:     bsr.spmm %[[P]]
// CHECK:         return
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
// expected-remark @below {{weight "params.w": 0 spmm, 0 spmm transposed, 0 sddmm, 2 left dense}}
// expected-remark @below {{weight "params.u": 1 spmm, 1 spmm transposed, 1 sddmm, 0 left dense}}
// expected-remark @below {{total of 2 weights: 1 spmm, 1 spmm transposed, 1 sddmm, 2 left dense}}
func.func @uses(%p: !p {bsr.name = "params.w", bsr.role = "pattern"}, %w: tensor<2x4x4xf32>,
                %q: !p {bsr.name = "params.u", bsr.role = "pattern"}, %u: tensor<2x4x4xf32>,
                %x: tensor<5x8xf32>)
    -> (tensor<8xf32>, tensor<8x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>, tensor<2x4x4xf32>) {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %c = arith.constant dense<0.0> : tensor<8xf32>
  // expected-remark @below {{expected only stored blocks of "params.w", but got 'linalg.reduce', which reads the whole matrix}}
  %r = linalg.reduce ins(%d : tensor<8x8xf32>) outs(%c : tensor<8xf32>) dimensions = [0]
      (%a: f32, %o: f32) {
        %0 = arith.maximumf %a, %o : f32
        linalg.yield %0 : f32
      }
  %du = bsr.to_dense %q, %u : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %e = arith.constant dense<0.0> : tensor<5x8xf32>
  %y = linalg.matmul ins(%x, %du : tensor<5x8xf32>, tensor<8x8xf32>) outs(%e : tensor<5x8xf32>) -> tensor<5x8xf32>
  %z = linalg.matmul
      indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%x, %du : tensor<5x8xf32>, tensor<8x8xf32>) outs(%e : tensor<5x8xf32>) -> tensor<5x8xf32>
  %f = arith.constant dense<0.0> : tensor<8x8xf32>
  %g = linalg.matmul
      indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%x, %x : tensor<5x8xf32>, tensor<5x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %v = bsr.sample %q, %g : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  // expected-remark @below {{expected only stored blocks of "params.w", but got 'func.return', which reads the whole matrix}}
  return %r, %d, %y, %z, %v : tensor<8xf32>, tensor<8x8xf32>, tensor<5x8xf32>, tensor<5x8xf32>, tensor<2x4x4xf32>
}

// -----

// A product of which blocks are sampled, but of which a norm needs all: the
// blocks are a sparse product, and the dense one is still there.
// CHECK-LABEL: func.func @gradient(
// CHECK-DAG:     bsr.sddmm
// CHECK-DAG:     linalg.matmul
// CHECK:         return
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
// expected-remark @below {{weight "w": 0 spmm, 0 spmm transposed, 1 sddmm, 1 left dense}}
// expected-remark @below {{total of 1 weights}}
func.func @gradient(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %x: tensor<8x5xf32>, %y: tensor<5x8xf32>)
    -> (tensor<2x4x4xf32>, tensor<8x8xf32>) {
  %f = arith.constant dense<0.0> : tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.matmul', which computes the whole gradient for another use}}
  %g = linalg.matmul ins(%x, %y : tensor<8x5xf32>, tensor<5x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %v = bsr.sample %p, %g : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  return %v, %g : tensor<2x4x4xf32>, tensor<8x8xf32>
}

// -----

// Samples that nothing takes: of an argument, of a product in batches (left as it
// is), and of an operation that reads a diagonal.
// CHECK-LABEL: func.func @samples(
// CHECK:         bsr.sample
// CHECK-NOT:     bsr.sddmm
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
// expected-remark @below {{weight "w"}}
// expected-remark @below {{total of 1 weights}}
func.func @samples(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %x: tensor<8x8xf32>, %v: tensor<8x8x8xf32>)
    -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>) {
  // expected-remark @below {{expected only stored blocks of "w", but got 'bsr.sample', which reads a dense argument}}
  %0 = bsr.sample %p, %x : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.generic', which computes the whole matrix}}
  %1 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1, d0)>, affine_map<(d0, d1) -> (d0, d1)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<8x8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %3 = math.sqrt %a : f32
    linalg.yield %3 : f32
  } -> tensor<8x8xf32>
  %2 = bsr.sample %p, %1 : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  return %0, %2 : tensor<2x4x4xf32>, tensor<2x4x4xf32>
}

// -----

// No rule applies where its side condition fails: two patterns in one operation,
// a body with an index, a body that reads its init, a dense factor that may be
// infinite off the pattern, a background in front of a product.
// CHECK-LABEL: func.func @conditions(
// CHECK-NOT:     bsr.spmm
// CHECK-COUNT-3: bsr.to_dense
// CHECK:         return
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
#scalar = affine_map<(d0, d1) -> ()>
// expected-remark @below {{weight "w": 0 spmm, 0 spmm transposed, 0 sddmm, 5 left dense}}
// expected-remark @below {{weight "u": 0 spmm, 0 spmm transposed, 0 sddmm, 1 left dense}}
// expected-remark @below {{total of 2 weights}}
func.func @conditions(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %q: !p {bsr.name = "u", bsr.role = "pattern"},
                      %w: tensor<2x4x4xf32>, %u: tensor<2x4x4xf32>, %x: tensor<8x8xf32>, %s: tensor<f32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %du = bsr.to_dense %q, %u : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.add'}}
  // expected-remark @below {{expected only stored blocks of "u", but got 'linalg.add'}}
  %0 = linalg.add ins(%d, %du : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.generic', which reads the whole matrix: its body asks for the place of an element}}
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i32
    %k = arith.sitofp %j : i32 to f32
    %f = arith.mulf %a, %k : f32
    linalg.yield %f : f32
  } -> tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.generic', which reads the whole matrix: its body reads its destination}}
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<8x8xf32>) outs(%x : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %f = arith.mulf %a, %o : f32
    linalg.yield %f : f32
  } -> tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.mul'}}
  %3 = linalg.mul ins(%d, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %scaled = linalg.generic {indexing_maps = [#id, #scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d, %s : tensor<8x8xf32>, tensor<f32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %f = arith.mulf %a, %b : f32
    linalg.yield %f : f32
  } -> tensor<8x8xf32>
  %c = arith.constant dense<0.0> : tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.matmul'}}
  %4 = linalg.matmul ins(%x, %scaled : tensor<8x8xf32>, tensor<8x8xf32>) outs(%c : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1, %2, %3, %4 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// A product of rounded entries is no product of the matrix, nor is a sum of
// something else than products.
// CHECK-LABEL: func.func @no_products(
// CHECK-NOT:     bsr.spmm
// CHECK:         return
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
// expected-remark @below {{weight "w": 0 spmm, 0 spmm transposed, 0 sddmm, 2 left dense}}
// expected-remark @below {{total of 1 weights}}
func.func @no_products(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %w: tensor<2x4x4xf32>, %x: tensor<5x8xf32>,
                       %y: tensor<8x5xf32>) -> (tensor<5x8xf32>, tensor<8x5xf32>) {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %c = arith.constant dense<0.0> : tensor<5x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.generic', which reads the whole matrix}}
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %d : tensor<5x8xf32>, tensor<8x8xf32>) outs(%c : tensor<5x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %i = arith.fptosi %b : f32 to i32
    %f = arith.sitofp %i : i32 to f32
    %m = arith.mulf %a, %f : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<5x8xf32>
  %c1 = arith.constant dense<0.0> : tensor<8x5xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.generic', which reads the whole matrix}}
  %1 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d2)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%d, %y : tensor<8x8xf32>, tensor<8x5xf32>) outs(%c1 : tensor<8x5xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %m = arith.maximumf %a, %b : f32
    %s = arith.addf %o, %m : f32
    linalg.yield %s : f32
  } -> tensor<8x5xf32>
  return %0, %1 : tensor<5x8xf32>, tensor<8x5xf32>
}

// -----

// A constant pattern is the weight's that it names.
// CHECK-LABEL: func.func @static(
// CHECK:         bsr.spmm
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
// expected-remark @below {{weight "w": 1 spmm, 0 spmm transposed, 0 sddmm, 1 left dense}}
// expected-remark @below {{total of 1 weights}}
func.func @static(%w: tensor<2x4x4xf32>, %x: tensor<5x8xf32>) -> (tensor<5x8xf32>, tensor<8x8xf32>) {
  %p = bsr.constant_pattern row_ptr = [0, 1, 2] col_idx = [1, 0] {bsr.name = "w"} : !p
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %e = arith.constant dense<0.0> : tensor<5x8xf32>
  %y = linalg.matmul ins(%x, %d : tensor<5x8xf32>, tensor<8x8xf32>) outs(%e : tensor<5x8xf32>) -> tensor<5x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'func.return', which reads the whole matrix}}
  return %y, %d : tensor<5x8xf32>, tensor<8x8xf32>
}

// -----

// 0 times what may not be finite: a bound that NaN gets past, the inverse root of what may
// be 0, a number that may be too large for its type, one that nothing is known of, a quotient
// by what may be 0, and the root of what may be negative.
// CHECK-LABEL: func.func @unbounded(
// CHECK:         bsr.to_dense
// CHECK:         return
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
// expected-remark @below {{weight "w": 0 spmm, 0 spmm transposed, 0 sddmm, 6 left dense}}
// expected-remark @below {{total of 1 weights}}
func.func @unbounded(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %w: tensor<2x4x4xf32>, %x: tensor<8x8xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %f:6 = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e, %e, %e, %e, %e, %e : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  ^bb0(%a: f32, %o0: f32, %o1: f32, %o2: f32, %o3: f32, %o4: f32, %o5: f32):
    %least = arith.constant 0.25 : f32
    %most = arith.constant 4.0 : f32
    %zero = arith.constant 0.0 : f32
    %large = arith.constant 2.0e38 : f32
    %below = arith.cmpf olt, %a, %least : f32
    %0 = arith.select %below, %least, %a : f32
    %above = arith.cmpf ogt, %0, %most : f32
    %nan = arith.select %above, %most, %0 : f32
    %negative = arith.cmpf ult, %a, %zero : f32
    %1 = arith.select %negative, %zero, %a : f32
    %infinite = math.rsqrt %1 : f32
    %above_large = arith.cmpf ugt, %1, %large : f32
    %2 = arith.select %above_large, %large, %1 : f32
    %overflow = arith.addf %2, %2 : f32
    %unknown = math.exp %2 : f32
    %ratio = arith.divf %2, %large : f32
    %half = arith.constant -0.5 : f32
    %around = arith.addf %ratio, %half : f32
    %quotient = arith.divf %least, %around : f32
    %root = math.sqrt %around : f32
    linalg.yield %nan, %infinite, %overflow, %unknown, %quotient, %root : f32, f32, f32, f32, f32, f32
  } -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>)
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.mul'}}
  %0 = linalg.mul ins(%d, %f#0 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.mul'}}
  %1 = linalg.mul ins(%d, %f#1 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.mul'}}
  %2 = linalg.mul ins(%d, %f#2 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.mul'}}
  %3 = linalg.mul ins(%d, %f#3 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.mul'}}
  %4 = linalg.mul ins(%d, %f#4 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.mul'}}
  %5 = linalg.mul ins(%d, %f#5 : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// No product of this dialect has f16 and bf16: such a one stays as it is.
// CHECK-LABEL: func.func @halves(
// CHECK:         bsr.to_dense
// CHECK:         linalg.generic
// CHECK-NOT:     bsr.spmm
// CHECK:         return
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
// expected-remark @below {{weight "w": 0 spmm, 0 spmm transposed, 0 sddmm, 1 left dense}}
// expected-remark @below {{total of 1 weights: 0 spmm, 0 spmm transposed, 0 sddmm, 1 left dense}}
func.func @halves(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %w: tensor<2x4x4xf16>, %x: tensor<5x8xbf16>) -> tensor<5x8xf32> {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf16> -> tensor<8x8xf16>
  %e = arith.constant dense<0.0> : tensor<5x8xf32>
  // expected-remark @below {{expected only stored blocks of "w", but got 'linalg.generic', which reads the whole matrix}}
  %y = linalg.generic {
      indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %d : tensor<5x8xbf16>, tensor<8x8xf16>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%a: bf16, %b: f16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.extf %b : f16 to f32
    %2 = arith.mulf %0, %1 : f32
    %3 = arith.addf %o, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<5x8xf32>
  return %y : tensor<5x8xf32>
}

// -----

// Of what has no sums it is said why it is not element-wise.
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
#id = affine_map<(d0, d1) -> (d0, d1)>
// expected-remark @below {{weight "w": 0 spmm, 0 spmm transposed, 0 sddmm, 2 left dense}}
// expected-remark @below {{total of 1 weights}}
func.func @obstacles(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %w: tensor<2x4x4xf32>, %x: tensor<8xf32>)
    -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %c0 = arith.constant 0 : index
  // expected-remark @below {{'linalg.generic', which reads the whole matrix: its body reads a tensor at an index}}
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = tensor.extract %x[%c0] : tensor<8xf32>
    %2 = arith.mulf %a, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<8x8xf32>
  // expected-remark @below {{'linalg.generic', which reads the whole matrix: its body has regions or side effects}}
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%d : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %c = arith.cmpf olt, %a, %a : f32
    %4 = scf.if %c -> f32 {
      scf.yield %a : f32
    } else {
      %5 = arith.negf %a : f32
      scf.yield %5 : f32
    }
    linalg.yield %4 : f32
  } -> tensor<8x8xf32>
  return %0, %3 : tensor<8x8xf32>, tensor<8x8xf32>
}

// -----

// Kernels on patterns stand outside of branches: what is in one reads the matrix.
// CHECK-LABEL: func.func @branch(
// CHECK:         scf.if
// CHECK-NEXT:      linalg.matmul
// CHECK:         } else {
// CHECK-NEXT:      linalg.exp
!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
// expected-remark @below {{weight %arg0: 0 spmm, 0 spmm transposed, 0 sddmm, 2 left dense}}
// expected-remark @below {{total of 1 weights: 0 spmm, 0 spmm transposed, 0 sddmm, 2 left dense}}
func.func @branch(%p: !p, %w: tensor<2x4x4xf32>, %x: tensor<8x8xf32>, %c: i1) -> tensor<8x8xf32> {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %z = arith.constant dense<0.0> : tensor<8x8xf32>
  %0 = scf.if %c -> tensor<8x8xf32> {
    // expected-remark @below {{'linalg.matmul', which reads the whole matrix: it is in a branch}}
    %1 = linalg.matmul ins(%x, %d : tensor<8x8xf32>, tensor<8x8xf32>) outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
    scf.yield %1 : tensor<8x8xf32>
  } else {
    // expected-remark @below {{'linalg.exp', which reads the whole matrix: it is in a branch}}
    %1 = linalg.exp ins(%d : tensor<8x8xf32>) outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
    scf.yield %1 : tensor<8x8xf32>
  }
  return %0 : tensor<8x8xf32>
}
