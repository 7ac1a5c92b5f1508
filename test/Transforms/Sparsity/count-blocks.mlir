// RUN: sparse-opt %s --bsr-count-blocks --canonicalize --cse --split-input-file --verify-diagnostics | FileCheck %s

#n = affine_map<() -> ()>
#s = affine_map<(s, r, c) -> ()>
#e = affine_map<(s, r, c) -> (s, r, c)>

// Adam, whose count is an integer that stops at the largest: its powers are computed for
// each block, and the rate, a function of the count, is not.
// CHECK-DAG: [[BLOCK:#.+]] = affine_map<(d0, d1, d2) -> (d0, 0, 0)>
// CHECK-DAG: [[NUMBER:#.+]] = affine_map<(d0, d1, d2) -> ()>
// CHECK-DAG: [[ENTRY:#.+]] = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @adam(
// CHECK-SAME: [[COUNTS:%[^ ]+]]: tensor<2x1x1xf32> {bsr.init = "zeros", bsr.name = "opt.count of w", bsr.pattern = 4 : i64, bsr.result = 4 : i64, bsr.role = "count"}
// CHECK-SAME: -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<i32>, tensor<2x1x1xf32>)
// CHECK-DAG: [[BETA1:%.+]] = arith.constant 0.899999976 : f32
// CHECK-DAG: [[BETA2:%.+]] = arith.constant 9.990000e-01 : f32
// CHECK-DAG: [[RATE:%.+]] = linalg.generic {{.*}} outs({{.*}} : tensor<f32>)
// CHECK-DAG: [[BIAS1:%.+]] = linalg.generic {indexing_maps = {{\[}}[[ENTRY]], [[ENTRY]]], {{.*}} ins([[COUNTS]] : tensor<2x1x1xf32>)
// CHECK: linalg.generic {indexing_maps = {{\[}}[[ENTRY]], [[ENTRY]], [[NUMBER]], [[ENTRY]], [[BLOCK]], [[BLOCK]], [[ENTRY]]]
// CHECK: [[NEXT:%.+]] = linalg.generic {{.*}} ins([[COUNTS]] : tensor<2x1x1xf32>)
// CHECK: return {{.*}}, [[NEXT]] : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<i32>, tensor<2x1x1xf32>
func.func @adam(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 4 : i64, bsr.result = 0 : i64},
                %m: tensor<2x4x4xf32> {bsr.name = "opt.m", bsr.pattern = 4 : i64, bsr.result = 1 : i64, bsr.role = "state"},
                %v: tensor<2x4x4xf32> {bsr.name = "opt.v", bsr.pattern = 4 : i64, bsr.result = 2 : i64, bsr.role = "state"},
                %t: tensor<i32> {bsr.name = "opt.count", bsr.result = 3 : i64, bsr.role = "state"},
                %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"})
    -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<i32>) {
  %beta1 = arith.constant 0.9 : f32
  %beta2 = arith.constant 0.999 : f32
  %one = arith.constant 1.0 : f32
  %warm = arith.constant 0.01 : f32
  %i1 = arith.constant 1 : i32
  %most = arith.constant 2147483647 : i32
  %ni = tensor.empty() : tensor<i32>
  %nf = tensor.empty() : tensor<f32>
  %blocks = tensor.empty() : tensor<2x4x4xf32>
  %next = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%t : tensor<i32>) outs(%ni : tensor<i32>) {
  ^bb0(%a: i32, %o: i32):
    %0 = arith.cmpi slt, %a, %most : i32
    %1 = arith.addi %a, %i1 : i32
    %2 = arith.select %0, %1, %most : i32
    linalg.yield %2 : i32
  } -> tensor<i32>
  %real = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%next : tensor<i32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: i32, %o: f32):
    %0 = arith.sitofp %a : i32 to f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %bias1 = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%real : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.powf %beta1, %a : f32
    %1 = arith.subf %one, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %bias2 = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%real : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.powf %beta2, %a : f32
    %1 = arith.subf %one, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  %rate = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%real : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %warm : f32
    %1 = arith.minimumf %0, %one : f32
    linalg.yield %1 : f32
  } -> tensor<f32>
  // Spread over all entries, as front ends do.
  %spread = linalg.generic {indexing_maps = [#s, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%bias2 : tensor<f32>) outs(%blocks : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<2x4x4xf32>
  %new = linalg.generic {indexing_maps = [#e, #e, #s, #s, #e, #e, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %m, %rate, %bias1, %v, %spread : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<f32>, tensor<f32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>)
      outs(%blocks : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %r: f32, %c: f32, %d: f32, %f: f32, %o: f32):
    %0 = arith.divf %b, %c : f32
    %1 = arith.divf %d, %f : f32
    %2 = math.sqrt %1 : f32
    %3 = arith.divf %0, %2 : f32
    %4 = arith.mulf %3, %r : f32
    %5 = arith.subf %a, %4 : f32
    linalg.yield %5 : f32
  } -> tensor<2x4x4xf32>
  return %new, %m, %v, %next : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<i32>
}

// -----

#n = affine_map<() -> ()>
#s = affine_map<(s, r, c) -> ()>
#e = affine_map<(s, r, c) -> (s, r, c)>

// NAdam: products that the step carries begin at one, and depend on the counts; all of it is
// one operation of a linear rate and of powers.
// CHECK-LABEL: func.func @nadam(
// CHECK-SAME: [[PRODUCTS:%[^ ]+]]: tensor<2x1x1xf32> {bsr.init = "ones", bsr.name = "product of w", bsr.pattern = 3 : i64, bsr.result = 3 : i64, bsr.role = "count"}
// CHECK-SAME: [[COUNTS:%[^ ]+]]: tensor<2x1x1xf32> {bsr.init = "zeros", bsr.name = "t of w", bsr.pattern = 3 : i64, bsr.result = 4 : i64, bsr.role = "count"}
// CHECK: linalg.generic {{.*}} ins([[PRODUCTS]], [[COUNTS]] : tensor<2x1x1xf32>, tensor<2x1x1xf32>)
// CHECK: arith.extf
// CHECK: arith.addf {{.*}} : f64
// CHECK: math.powf {{.*}} : f64
// CHECK: arith.truncf
func.func @nadam(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 3 : i64, bsr.result = 0 : i64},
                 %t: tensor<f32> {bsr.name = "t", bsr.result = 1 : i64, bsr.role = "state"},
                 %q: tensor<f32> {bsr.name = "product", bsr.result = 2 : i64, bsr.role = "state"},
                 %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                 %g: tensor<2x4x4xf32> {bsr.name = "g"})
    -> (tensor<2x4x4xf32>, tensor<f32>, tensor<f32>) {
  %base = arith.constant 0.96 : f64
  %half = arith.constant 0.5 : f64
  %beta = arith.constant 0.9 : f64
  %one = arith.constant 1.0 : f64
  %nf = tensor.empty() : tensor<f32>
  %nd = tensor.empty() : tensor<f64>
  %blocks = tensor.empty() : tensor<2x4x4xf32>
  %next = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%t : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.extf %a : f32 to f64
    %1 = arith.addf %0, %one : f64
    %2 = arith.truncf %1 : f64 to f32
    linalg.yield %2 : f32
  } -> tensor<f32>
  %after = linalg.generic {indexing_maps = [#n, #n, #n], iterator_types = []}
      ins(%q, %t : tensor<f32>, tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.extf %b : f32 to f64
    %1 = arith.addf %0, %one : f64
    %2 = math.powf %base, %1 : f64
    %3 = arith.mulf %2, %half : f64
    %4 = arith.subf %one, %3 : f64
    %5 = arith.mulf %beta, %4 : f64
    %6 = arith.extf %a : f32 to f64
    %7 = arith.mulf %6, %5 : f64
    %8 = arith.truncf %7 : f64 to f32
    linalg.yield %8 : f32
  } -> tensor<f32>
  %new = linalg.generic {indexing_maps = [#e, #e, #s, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %g, %after : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<f32>) outs(%blocks : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %0 = arith.extf %c : f32 to f64
    %1 = arith.subf %one, %0 : f64
    %2 = arith.truncf %1 : f64 to f32
    %3 = arith.divf %b, %2 : f32
    %4 = arith.subf %a, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<2x4x4xf32>
  return %new, %next, %after : tensor<2x4x4xf32>, tensor<f32>, tensor<f32>
}

// -----

#n = affine_map<() -> ()>
#s = affine_map<(s, r, c) -> ()>
#e = affine_map<(s, r, c) -> (s, r, c)>

// RAdam: the count that multiplies a power is a block's; the rate that decays by another
// power of the same count, and 1 - rate * decay, are the matrix's.
// CHECK-LABEL: func.func @radam(
// CHECK-SAME: [[T:%[^ ]+]]: tensor<f32>
// CHECK-SAME: [[COUNTS:%[^ ]+]]: tensor<2x1x1xf32> {bsr.init = "zeros", bsr.name = "t of w"
// CHECK: [[RHO:%.+]] = linalg.generic {{.*}} ins([[COUNTS]] : tensor<2x1x1xf32>)
// CHECK: [[NEXT:%.+]] = arith.addf
// CHECK: [[POWER:%.+]] = math.exp
// CHECK: [[TIMES:%.+]] = arith.mulf [[NEXT]], [[POWER]]
// CHECK: arith.divf [[TIMES]]
// CHECK: linalg.generic {{.*}} tensor<f32>, tensor<2x1x1xf32>) outs({{.*}} : tensor<2x4x4xf32>)
func.func @radam(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64, bsr.result = 0 : i64},
                 %t: tensor<f32> {bsr.name = "t", bsr.result = 1 : i64, bsr.role = "state"},
                 %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                 %g: tensor<2x4x4xf32> {bsr.name = "g"})
    -> (tensor<2x4x4xf32>, tensor<f32>) {
  %log = arith.constant -0.001 : f32
  %fall = arith.constant 0.99 : f32
  %decay = arith.constant 0.1 : f32
  %one = arith.constant 1.0 : f32
  %nf = tensor.empty() : tensor<f32>
  %blocks = tensor.empty() : tensor<2x4x4xf32>
  %next = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%t : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %one : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %rho = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%next : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.mulf %a, %log : f32
    %1 = math.exp %0 : f32
    %2 = arith.mulf %a, %1 : f32
    %3 = arith.subf %one, %1 : f32
    %4 = arith.divf %2, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<f32>
  %rate = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%next : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.powf %fall, %a : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %new = linalg.generic {indexing_maps = [#e, #e, #s, #s, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %g, %rate, %rho : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<f32>, tensor<f32>) outs(%blocks : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %d: f32, %o: f32):
    %0 = arith.mulf %c, %decay : f32
    %1 = arith.subf %one, %0 : f32
    %2 = arith.mulf %a, %1 : f32
    %3 = arith.mulf %b, %d : f32
    %4 = arith.mulf %3, %c : f32
    %5 = arith.subf %2, %4 : f32
    linalg.yield %5 : f32
  } -> tensor<2x4x4xf32>
  return %new, %next : tensor<2x4x4xf32>, tensor<f32>
}

// -----

#e = affine_map<(s, r, c) -> (s, r, c)>

// A weight that the step does not change, and one whose pattern is static, have no new blocks.
// CHECK-LABEL: func.func @still(
// CHECK-NOT: "count"
// CHECK: return
func.func @still(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                 %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                 %u: tensor<2x4x4xf32> {bsr.name = "u", bsr.pattern_number = 0 : i64, bsr.result = 1 : i64})
    -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>)
    attributes {bsr.patterns = [{col_idx = array<i32: 0, 1>, name = "u", row_ptr = array<i32: 0, 1, 2>,
                                 type = !bsr.pattern<8x8, block = 4x4, slots = 2>}]} {
  %blocks = tensor.empty() : tensor<2x4x4xf32>
  %new = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%u : tensor<2x4x4xf32>) outs(%blocks : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %a : f32
    linalg.yield %0 : f32
  } -> tensor<2x4x4xf32>
  return %w, %new : tensor<2x4x4xf32>, tensor<2x4x4xf32>
}

// -----

#s = affine_map<(s, r, c) -> ()>
#e = affine_map<(s, r, c) -> (s, r, c)>

// expected-error @below {{expected the update of weight "w" to correct bias by 1 - beta^t, to count the steps of its blocks, but got none that does}}
func.func @sgd(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
               %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
               %g: tensor<2x4x4xf32> {bsr.name = "g"}, %lr: tensor<f32> {bsr.name = "lr"})
    -> tensor<2x4x4xf32> {
  %blocks = tensor.empty() : tensor<2x4x4xf32>
  %new = linalg.generic {indexing_maps = [#e, #e, #s, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %g, %lr : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<f32>) outs(%blocks : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %0 = arith.mulf %b, %c : f32
    %1 = arith.subf %a, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<2x4x4xf32>
  return %new : tensor<2x4x4xf32>
}

// -----

#n = affine_map<() -> ()>
#s = affine_map<(s, r, c) -> ()>
#e = affine_map<(s, r, c) -> (s, r, c)>

// expected-error @below {{expected the update of weight "w" to use beta^t in 1 - beta^t, to count the steps of its blocks, but got it in 'math.sqrt'}}
func.func @unknown(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64, bsr.result = 0 : i64},
                   %t: tensor<f32> {bsr.name = "t", bsr.result = 1 : i64, bsr.role = "state"},
                   %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"})
    -> (tensor<2x4x4xf32>, tensor<f32>) {
  %beta = arith.constant 0.9 : f32
  %one = arith.constant 1.0 : f32
  %nf = tensor.empty() : tensor<f32>
  %blocks = tensor.empty() : tensor<2x4x4xf32>
  %next = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%t : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %a, %one : f32
    linalg.yield %0 : f32
  } -> tensor<f32>
  %bias = linalg.generic {indexing_maps = [#n, #n], iterator_types = []}
      ins(%next : tensor<f32>) outs(%nf : tensor<f32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = math.powf %beta, %a : f32
    %1 = arith.subf %one, %0 : f32
    %2 = math.sqrt %0 : f32
    %3 = arith.divf %1, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<f32>
  %new = linalg.generic {indexing_maps = [#e, #s, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %bias : tensor<2x4x4xf32>, tensor<f32>) outs(%blocks : tensor<2x4x4xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<2x4x4xf32>
  return %new, %next : tensor<2x4x4xf32>, tensor<f32>
}
