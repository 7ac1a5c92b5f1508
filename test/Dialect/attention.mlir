// RUN: sparse-opt %s | sparse-opt | FileCheck %s

#qg = affine_map<(t, r, i, j, d, e) -> (t, r, i, d)>
#kg = affine_map<(t, r, i, j, d, e) -> (t, j, d)>
#vg = affine_map<(t, r, i, j, d, e) -> (t, j, e)>
#yg = affine_map<(t, r, i, j, d, e) -> (t, r, i, e)>
#bg = affine_map<(t, r, i, j, d, e) -> (r, i, j)>
#fg = affine_map<(t, r, i, j, d, e) -> (t, r, i, j)>
#q = affine_map<(t, i, j, d, e) -> (t, i, d)>
#k = affine_map<(t, i, j, d, e) -> (t, j, d)>
#kt = affine_map<(t, i, j, d, e) -> (t, d, j)>
#v = affine_map<(t, i, j, d, e) -> (t, j, e)>
#y = affine_map<(t, i, j, d, e) -> (e, t, i)>
#b = affine_map<(t, i, j, d, e) -> (0, i, j)>
#m = affine_map<(t, i, j, d, e) -> (t, j)>

// CHECK-LABEL: func @attention
func.func @attention(%q: tensor<3x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>,
                     %dy: tensor<5x3x8xf32>)
    -> (tensor<5x3x8xf32>, tensor<3x8x4xf32>, tensor<3x4x6xf32>, tensor<3x6x5xf32>) {
  // CHECK: bsr.attention(%{{.*}}, %{{.*}}, %{{.*}}) scale = 5.000000e-01 maps = [#{{.*}}] :
  %y, %lse = bsr.attention(%q, %k, %v) scale = 5.000000e-01 maps = [#q, #k, #v, #y]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>) -> (tensor<5x3x8xf32>, tensor<2x3x8xf32>)
  // CHECK: bsr.attention_grad(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}) scale = 5.000000e-01 maps
  %dq, %dk, %dv = bsr.attention_grad(%q, %k, %v, %y, %lse, %dy) scale = 5.000000e-01
      maps = [#q, #k, #v, #y, #y, #q, #kt, #v]
      : (tensor<3x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<5x3x8xf32>, tensor<2x3x8xf32>,
         tensor<5x3x8xf32>) -> (tensor<3x8x4xf32>, tensor<3x4x6xf32>, tensor<3x6x5xf32>)
  return %y, %dq, %dk, %dv
      : tensor<5x3x8xf32>, tensor<3x8x4xf32>, tensor<3x4x6xf32>, tensor<3x6x5xf32>
}

// CHECK-LABEL: func @masked
func.func @masked(%q: tensor<3x8x4xbf16>, %k: tensor<3x6x4xbf16>, %v: tensor<3x6x5xbf16>,
                  %bias: tensor<1x8x6xf32>, %mask: tensor<3x6xi1>,
                  %p: !bsr.pattern<8x6, block = 4x2, slots = 3>)
    -> (tensor<5x3x8xbf16>, tensor<2x3x8xf32>) {
  // CHECK: bsr.attention({{.*}}) bias %{{.*}} mask %{{.*}} pattern %{{.*}} scale = 1.000000e+00
  // CHECK-SAME: fill = -1.000000e+09 zero_empty maps
  %y, %lse = bsr.attention(%q, %k, %v) bias %bias mask %mask pattern %p scale = 1.000000e+00
      fill = -1.000000e+09 zero_empty maps = [#q, #k, #v, #y, #b, #m]
      : (tensor<3x8x4xbf16>, tensor<3x6x4xbf16>, tensor<3x6x5xbf16>, tensor<1x8x6xf32>, tensor<3x6xi1>,
         !bsr.pattern<8x6, block = 4x2, slots = 3>) -> (tensor<5x3x8xbf16>, tensor<2x3x8xf32>)
  return %y, %lse : tensor<5x3x8xbf16>, tensor<2x3x8xf32>
}

// Without batch dimensions, in f64.
// CHECK-LABEL: func @one
func.func @one(%q: tensor<8x4xf64>, %k: tensor<6x4xf64>, %v: tensor<6x5xf64>)
    -> (tensor<8x5xf64>, tensor<2x8xf64>) {
  // CHECK: bsr.attention
  %y, %lse = bsr.attention(%q, %k, %v) scale = 1.000000e+00
      maps = [affine_map<(i, j, d, e) -> (i, d)>, affine_map<(i, j, d, e) -> (j, d)>,
              affine_map<(i, j, d, e) -> (j, e)>, affine_map<(i, j, d, e) -> (i, e)>]
      : (tensor<8x4xf64>, tensor<6x4xf64>, tensor<6x5xf64>) -> (tensor<8x5xf64>, tensor<2x8xf64>)
  return %y, %lse : tensor<8x5xf64>, tensor<2x8xf64>
}

// Two heads share keys and values; probabilities are dropped out; a bias is trained.
// CHECK-LABEL: func @grouped
func.func @grouped(%q: tensor<3x2x8x4xf32>, %k: tensor<3x6x4xf32>, %v: tensor<3x6x5xf32>,
                   %bias: tensor<2x8x6xf32>, %factor: tensor<3x2x8x6xf32>, %dy: tensor<3x2x8x5xf32>)
    -> (tensor<3x2x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<2x8x6xf32>) {
  // CHECK: bsr.attention({{.*}}) bias %{{.*}} factor %{{.*}} scale = 1.000000e+00
  %y, %lse = bsr.attention(%q, %k, %v) bias %bias factor %factor scale = 1.000000e+00
      maps = [#qg, #kg, #vg, #yg, #bg, #fg]
      : (tensor<3x2x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<2x8x6xf32>, tensor<3x2x8x6xf32>)
      -> (tensor<3x2x8x5xf32>, tensor<2x3x2x8xf32>)
  // CHECK: %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} = bsr.attention_grad({{.*}}) bias %{{.*}} factor %{{.*}} scale
  %dq, %dk, %dv, %db = bsr.attention_grad(%q, %k, %v, %y, %lse, %dy) bias %bias factor %factor
      scale = 1.000000e+00 maps = [#qg, #kg, #vg, #yg, #yg, #qg, #kg, #vg, #bg, #bg, #fg]
      : (tensor<3x2x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<3x2x8x5xf32>, tensor<2x3x2x8xf32>,
         tensor<3x2x8x5xf32>, tensor<2x8x6xf32>, tensor<3x2x8x6xf32>)
      -> (tensor<3x2x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<2x8x6xf32>)
  return %dq, %dk, %dv, %db : tensor<3x2x8x4xf32>, tensor<3x6x4xf32>, tensor<3x6x5xf32>, tensor<2x8x6xf32>
}
