// RUN: sparse-opt %s --bsr-ramp-blocks=steps=10 --split-input-file --verify-diagnostics | FileCheck %s
// RUN: not sparse-opt %s --bsr-ramp-blocks=steps=1 --split-input-file 2>&1 | FileCheck %s --check-prefix=SHORT
// RUN: not sparse-opt %s --bsr-ramp-blocks=steps=20000000 --split-input-file 2>&1 | FileCheck %s --check-prefix=LONG
// SHORT: error: expected a ramp of 2 to 16777216 steps, but got 1
// LONG: error: expected a ramp of 2 to 16777216 steps, but got 20000000

#e = affine_map<(s, r, c) -> (s, r, c)>

// What is made of the next value, an average here, reads the one between; a run that adds
// up gradients makes nothing older.
// CHECK-LABEL: func.func @averaged(
// CHECK-SAME: [[W:%[^ ]+]]: tensor<2x4x4xbf16>
// CHECK-SAME: [[APPLY:%[^ ]+]]: tensor<i1> {bsr.name = "apply", bsr.role = "apply"}
// CHECK-SAME: [[AGE:%[^ ]+]]: tensor<2x1x1xf32> {bsr.init = "constant(10)", bsr.name = "block ramp of w", bsr.pattern = 2 : i64, bsr.result = 2 : i64, bsr.role = "count"}
// CHECK: [[NEXT:%.+]] = linalg.generic {{.*}} ins([[W]], {{.*}} : tensor<2x4x4xbf16>, tensor<2x4x4xf32>)
// CHECK: [[AGED:%.+]] = linalg.generic {{.*}} ins([[AGE]], [[APPLY]] : tensor<2x1x1xf32>, tensor<i1>)
// CHECK: ^bb0([[A:%.+]]: f32, [[IS:%.+]]: i1, {{.*}}):
// CHECK: [[MORE:%.+]] = arith.minimumf
// CHECK: arith.select [[IS]], [[MORE]], [[A]] : f32
// CHECK: [[RAMPED:%.+]] = linalg.generic {{.*}} ins([[W]], [[NEXT]], [[AGED]] : tensor<2x4x4xbf16>, tensor<2x4x4xbf16>, tensor<2x1x1xf32>)
// CHECK: ^bb0({{.*}}, [[OWN:%.+]]: bf16, {{.*}}: f32, {{.*}}):
// CHECK: [[BETWEEN:%.+]] = arith.truncf {{.*}} : f32 to bf16
// CHECK: arith.select {{.*}}, [[OWN]], [[BETWEEN]] : bf16
// CHECK: [[AVERAGE:%.+]] = linalg.generic {{.*}} ins([[RAMPED]] : tensor<2x4x4xbf16>)
// CHECK: return [[RAMPED]], [[AVERAGE]], [[AGED]]
func.func @averaged(%w: tensor<2x4x4xbf16> {bsr.name = "w", bsr.pattern = 2 : i64, bsr.result = 0 : i64},
                    %g: tensor<2x4x4xf32> {bsr.name = "g", bsr.pattern = 2 : i64, bsr.result = 1 : i64, bsr.role = "state"},
                    %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                    %apply: tensor<i1> {bsr.name = "apply", bsr.role = "apply"})
    -> (tensor<2x4x4xbf16>, tensor<2x4x4xf32>) {
  %narrow = tensor.empty() : tensor<2x4x4xbf16>
  %wide = tensor.empty() : tensor<2x4x4xf32>
  %new = linalg.generic {indexing_maps = [#e, #e, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w, %g : tensor<2x4x4xbf16>, tensor<2x4x4xf32>) outs(%narrow : tensor<2x4x4xbf16>) {
  ^bb0(%a: bf16, %b: f32, %o: bf16):
    %0 = arith.extf %a : bf16 to f32
    %1 = arith.subf %0, %b : f32
    %2 = arith.truncf %1 : f32 to bf16
    linalg.yield %2 : bf16
  } -> tensor<2x4x4xbf16>
  %average = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%new : tensor<2x4x4xbf16>) outs(%wide : tensor<2x4x4xf32>) {
  ^bb0(%a: bf16, %o: f32):
    %0 = arith.extf %a : bf16 to f32
    linalg.yield %0 : f32
  } -> tensor<2x4x4xf32>
  return %new, %average : tensor<2x4x4xbf16>, tensor<2x4x4xf32>
}

// -----

// Weights that stay, and those of a function that is no step, have no ramp.
// CHECK-LABEL: func.func @frozen(
// CHECK-NOT: block ramp
func.func @frozen(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                  %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"}) -> tensor<2x4x4xf32> {
  return %w : tensor<2x4x4xf32>
}

// -----

// A number of another type says whether a run makes a step; sums of f64 stay such.
#e = affine_map<(s, r, c) -> (s, r, c)>
// CHECK-LABEL: func.func @number(
// CHECK: ins({{.*}} : tensor<2x1x1xf32>, tensor<f32>)
// CHECK: arith.cmpf une
// CHECK: arith.extf {{.*}} : f32 to f64
// CHECK-NOT: truncf
// CHECK: arith.addf {{.*}} : f64
// CHECK-LABEL: func.func @flag(
// CHECK: arith.cmpi ne
func.func @number(%w: tensor<2x4x4xf64> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                  %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                  %apply: tensor<f32> {bsr.name = "apply", bsr.role = "apply"}) -> tensor<2x4x4xf64> {
  %blocks = tensor.empty() : tensor<2x4x4xf64>
  %new = linalg.generic {indexing_maps = [#e, #e], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%w : tensor<2x4x4xf64>) outs(%blocks : tensor<2x4x4xf64>) {
  ^bb0(%a: f64, %o: f64):
    %0 = arith.mulf %a, %a : f64
    linalg.yield %0 : f64
  } -> tensor<2x4x4xf64>
  return %new : tensor<2x4x4xf64>
}
func.func @flag(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 1 : i64, bsr.result = 0 : i64},
                %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                %apply: tensor<i32> {bsr.name = "apply", bsr.role = "apply"}) -> tensor<2x4x4xf32> {
  %0 = arith.addf %w, %w : tensor<2x4x4xf32>
  return %0 : tensor<2x4x4xf32>
}

// -----

// expected-error@+1 {{expected the next value of weight "v" to be its own, for a ramp of its new blocks, but got that of another weight}}
func.func @shared(%w: tensor<2x4x4xf32> {bsr.name = "w", bsr.pattern = 2 : i64, bsr.result = 0 : i64},
                  %v: tensor<2x4x4xf32> {bsr.name = "v", bsr.pattern = 3 : i64, bsr.result = 1 : i64},
                  %p: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "w", bsr.role = "pattern"},
                  %q: !bsr.pattern<8x8, block = 4x4, slots = 2> {bsr.name = "v", bsr.role = "pattern"})
    -> (tensor<2x4x4xf32>, tensor<2x4x4xf32>) {
  %0 = arith.addf %w, %v : tensor<2x4x4xf32>
  return %0, %0 : tensor<2x4x4xf32>, tensor<2x4x4xf32>
}
