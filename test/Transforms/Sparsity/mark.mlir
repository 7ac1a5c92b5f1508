// RUN: sparse-opt %s --split-input-file \
// RUN:   --bsr-mark="match='(up|down)\.w$' block=4x8 density=0.25" | FileCheck %s

// A weight and the moments its next value depends on, element by element,
// however the optimizer is called: through a transpose and back, through scalars,
// but not through products; and an average of the weights.

// CHECK-LABEL: func.func @adam(
// CHECK-SAME:    %{{[^:]*}}: tensor<8x16xf32> {bsr.mark = #bsr.mark<block = 4x8, density = 2.500000e-01, weight = "up.w">, bsr.name = "up.w", bsr.result = 0 : i64},
// CHECK-SAME:    %{{[^:]*}}: tensor<8x16xf32> {bsr.mark = #bsr.mark<block = 4x8, density = 2.500000e-01, weight = "up.w">, bsr.name = "m", bsr.result = 1 : i64},
// CHECK-SAME:    %{{[^:]*}}: tensor<8x16xbf16> {bsr.mark = #bsr.mark<block = 4x8, density = 2.500000e-01, weight = "up.w">, bsr.name = "v", bsr.result = 2 : i64},
// CHECK-SAME:    %{{[^:]*}}: tensor<8x16xf32> {bsr.name = "static mask"},
// CHECK-SAME:    %{{[^:]*}}: tensor<8x16xf32> {bsr.mark = #bsr.mark<block = 4x8, density = 2.500000e-01, weight = "up.w">, bsr.name = "average", bsr.result = 3 : i64},
// CHECK-SAME:    %{{[^:]*}}: tensor<f32> {bsr.name = "count", bsr.result = 4 : i64})
#id = affine_map<(d0, d1) -> (d0, d1)>
#swap = affine_map<(d0, d1) -> (d1, d0)>
#scalar = affine_map<(d0, d1) -> ()>
func.func @adam(%w: tensor<8x16xf32> {bsr.name = "up.w", bsr.result = 0 : i64},
                %m: tensor<8x16xf32> {bsr.name = "m", bsr.result = 1 : i64},
                %v: tensor<8x16xbf16> {bsr.name = "v", bsr.result = 2 : i64},
                %mask: tensor<8x16xf32> {bsr.name = "static mask"},
                %average: tensor<8x16xf32> {bsr.name = "average", bsr.result = 3 : i64},
                %t: tensor<f32> {bsr.name = "count", bsr.result = 4 : i64})
    -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xbf16>, tensor<8x16xf32>, tensor<f32>) {
  %e = tensor.empty() : tensor<8x16xf32>
  %et = tensor.empty() : tensor<16x8xf32>
  %eb = tensor.empty() : tensor<8x16xbf16>
  %mt = linalg.transpose ins(%m : tensor<8x16xf32>) outs(%et : tensor<16x8xf32>) permutation = [1, 0]
  %next_m = linalg.generic {indexing_maps = [#swap, #id, #scalar, #id], iterator_types = ["parallel", "parallel"]}
      ins(%mt, %mask, %t : tensor<16x8xf32>, tensor<8x16xf32>, tensor<f32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %c : f32
    linalg.yield %1 : f32
  } -> tensor<8x16xf32>
  %next_w, %next_v = linalg.generic {indexing_maps = [#id, #id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%w, %next_m, %v : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xbf16>)
      outs(%e, %eb : tensor<8x16xf32>, tensor<8x16xbf16>) {
  ^bb0(%a: f32, %b: f32, %c: bf16, %out: f32, %outb: bf16):
    %0 = arith.extf %c : bf16 to f32
    %1 = arith.mulf %0, %b : f32
    %2 = arith.subf %a, %1 : f32
    linalg.yield %2, %c : f32, bf16
  } -> (tensor<8x16xf32>, tensor<8x16xbf16>)
  // An average of the weight follows the weight, not the other way round.
  %next_average = linalg.add ins(%average, %next_w : tensor<8x16xf32>, tensor<8x16xf32>)
                             outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %next_w, %next_m, %next_v, %next_average, %t
      : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xbf16>, tensor<8x16xf32>, tensor<f32>
}

// -----

// Roles say what is a weight: a state is not, whatever its name, and a parameter
// is never the moment of another. A weight that is not updated has no moments.

// CHECK-LABEL: func.func @roles(
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 4x8, density = 2.500000e-01, weight = "p.up.w">, bsr.name = "p.up.w", bsr.result = 0 : i64, bsr.role = "param"
// CHECK-SAME:    tensor<8x16xf32> {bsr.name = "p.norm", bsr.result = 1 : i64, bsr.role = "param"}
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 4x8, density = 2.500000e-01, weight = "p.up.w">, bsr.name = "m.up.w", bsr.result = 2 : i64, bsr.role = "state"
// CHECK-SAME:    bsr.mark = #bsr.mark<block = 4x8, density = 2.500000e-01, weight = "p.down.w">, bsr.name = "p.down.w", bsr.role = "param"
func.func @roles(
    %w: tensor<8x16xf32> {bsr.name = "p.up.w", bsr.role = "param", bsr.result = 0 : i64},
    %n: tensor<8x16xf32> {bsr.name = "p.norm", bsr.role = "param", bsr.result = 1 : i64},
    %m: tensor<8x16xf32> {bsr.name = "m.up.w", bsr.role = "state", bsr.result = 2 : i64},
    %frozen: tensor<8x16xf32> {bsr.name = "p.down.w", bsr.role = "param"})
    -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) {
  %e = tensor.empty() : tensor<8x16xf32>
  %0 = linalg.add ins(%w, %m : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %1 = linalg.add ins(%0, %n : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  %2 = linalg.add ins(%1, %frozen : tensor<8x16xf32>, tensor<8x16xf32>) outs(%e : tensor<8x16xf32>) -> tensor<8x16xf32>
  return %2, %n, %m : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}
