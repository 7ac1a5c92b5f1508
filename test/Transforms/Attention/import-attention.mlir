// RUN: sparse-opt %s --split-input-file --bsr-import-attention --mlir-print-local-scope | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-import-attention=min-keys=7 | FileCheck %s --check-prefix=FEW
// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.gpu" --bsr-import-attention | FileCheck %s --check-prefix=GPU

// Calls of functions that say that they compute attention become attention; what is broadcast stays small.
// Few keys, or none of the kernels that a GPU has: calls stay.

// FEW-NOT: bsr.attention(
// FEW: call @attend
// GPU-NOT: bsr.attention(
// GPU: call @attend

!q = tensor<2x3x4x8xf32>
!k = tensor<2x3x6x8xf32>
!v = tensor<2x3x6x10xf32>
!y = tensor<2x3x4x10xf32>

// CHECK-LABEL: func.func @masked
// CHECK: %[[FACTOR:.*]] = linalg.generic {{.*}} ins(%arg6 : tensor<2x1x4x6xi1>) outs(%{{.*}} : tensor<2x1x4x6xf32>)
// CHECK: %[[KEPT:.*]] = arith.constant 2.000000e+00 : f32
// CHECK: %[[NONE:.*]] = arith.constant 0.000000e+00 : f32
// CHECK: arith.select %{{.*}}, %[[KEPT]], %[[NONE]] : f32
// CHECK: %[[Y:.*]], %[[LSE:.*]] = bsr.attention(%arg0, %arg1, %arg2) bias %arg4 mask %arg5 factor %[[FACTOR]] scale = -2.500000e-01 zero_empty
// CHECK-SAME: maps = [affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d4)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d3, d4)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d3, d5)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d5)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d1, d2, d3)>, affine_map<(d0, d1, d2, d3, d4, d5) -> (0, d3)>,
// CHECK-SAME: affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, 0, d2, d3)>]
// CHECK-SAME: -> (tensor<2x3x4x10xf32>, tensor<2x2x3x4xf32>)
// CHECK: %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = bsr.attention_grad(%arg0, %arg1, %arg2, %[[Y]], %[[LSE]], %arg3) bias %arg4 mask %arg5 factor %[[FACTOR]] scale = -2.500000e-01 zero_empty
// CHECK: return %[[Y]], %[[DQ]], %[[DK]], %[[DV]]
func.func @masked(%q: !q {bsr.name = "q"}, %k: !k {bsr.name = "k"}, %v: !v {bsr.name = "v"}, %dy: !y {bsr.name = "dy"},
                  %bias: tensor<2x3x4x6xf32> {bsr.name = "bias"}, %mask: tensor<1x6xi1> {bsr.name = "mask"},
                  %kept: tensor<2x1x4x6xi1> {bsr.name = "kept"})
    -> (!y {bsr.name = "y"}, !q {bsr.name = "dq"}, !k {bsr.name = "dk"}, !v {bsr.name = "dv"}) {
  %y = call @attend(%q, %k, %v, %bias, %mask, %kept)
      : (!q, !k, !v, tensor<2x3x4x6xf32>, tensor<1x6xi1>, tensor<2x1x4x6xi1>) -> !y
  %dq, %dk, %dv = call @attend_back(%q, %k, %v, %dy, %bias, %mask, %kept)
      : (!q, !k, !v, !y, tensor<2x3x4x6xf32>, tensor<1x6xi1>, tensor<2x1x4x6xi1>) -> (!q, !k, !v)
  return %y, %dq, %dk, %dv : !y, !q, !k, !v
}
func.func private @attend(!q, !k, !v, tensor<2x3x4x6xf32>, tensor<1x6xi1>, tensor<2x1x4x6xi1>) -> !y
    attributes {bsr.attention = {operands = ["q", "k", "v", "bias", "mask", "kept"], scale = -0.25, kept_factor = 2.0}}
func.func private @attend_back(!q, !k, !v, !y, tensor<2x3x4x6xf32>, tensor<1x6xi1>, tensor<2x1x4x6xi1>) -> (!q, !k, !v)
    attributes {bsr.attention = {operands = ["q", "k", "v", "dy", "bias", "mask", "kept"], scale = -0.25, kept_factor = 2.0}}

// -----

// What is computed again is computed once; another scale is another attention.

!t = tensor<4x8xbf16>

// CHECK-LABEL: func.func @again
// CHECK: %[[Y:.*]], %[[LSE:.*]] = bsr.attention(%arg0, %arg1, %arg1) scale = 1.000000e+00 maps
// CHECK-SAME: -> (tensor<4x8xbf16>, tensor<2x4xf32>)
// CHECK-NOT: call @attend(
// CHECK: bsr.attention_grad(%arg0, %arg1, %arg1, %[[Y]], %[[LSE]], %arg0)
// CHECK: bsr.attention_grad(%arg0, %arg1, %arg1, %[[Y]], %[[LSE]], %arg1)
// CHECK: %[[OTHER:.*]], %{{.*}} = bsr.attention(%arg0, %arg1, %arg1) scale = 2.000000e+00
// CHECK: return %[[Y]], %[[Y]], %[[OTHER]]
func.func @again(%q: !t {bsr.name = "q"}, %k: !t {bsr.name = "k"})
    -> (!t {bsr.name = "0"}, !t {bsr.name = "1"}, !t {bsr.name = "2"}, !t {bsr.name = "3"}, !t {bsr.name = "4"}) {
  %0 = call @attend(%q, %k, %k) : (!t, !t, !t) -> !t
  %1 = call @attend(%q, %k, %k) : (!t, !t, !t) -> !t
  %dq:3 = call @attend_back(%q, %k, %k, %q) : (!t, !t, !t, !t) -> (!t, !t, !t)
  %dk:3 = call @attend_back(%q, %k, %k, %k) : (!t, !t, !t, !t) -> (!t, !t, !t)
  %2 = call @other(%q, %k, %k) : (!t, !t, !t) -> !t
  return %0, %1, %2, %dq#0, %dk#1 : !t, !t, !t, !t, !t
}
func.func private @attend(!t, !t, !t) -> !t attributes {bsr.attention = {operands = ["q", "k", "v"], scale = 1.0}}
func.func private @attend_back(!t, !t, !t, !t) -> (!t, !t, !t)
    attributes {bsr.attention = {operands = ["q", "k", "v", "dy"], scale = 1.0}}
func.func private @other(!t, !t, !t) -> !t attributes {bsr.attention = {operands = ["q", "k", "v"], scale = 2.0}}

// -----

// A gradient alone has an attention of its own, for the statistics of its rows.

!t = tensor<4x8xf32>

// CHECK-LABEL: func.func @alone
// CHECK: %[[Y:.*]], %[[LSE:.*]] = bsr.attention(%arg0, %arg0, %arg0)
// CHECK: bsr.attention_grad(%arg0, %arg0, %arg0, %[[Y]], %[[LSE]], %arg0)
func.func @alone(%q: !t {bsr.name = "q"}) -> (!t {bsr.name = "0"}) {
  %d:3 = call @attend_back(%q, %q, %q, %q) : (!t, !t, !t, !t) -> (!t, !t, !t)
  return %d#0 : !t
}
func.func private @attend_back(!t, !t, !t, !t) -> (!t, !t, !t)
    attributes {bsr.attention = {operands = ["q", "k", "v", "dy"], scale = 1.0}}

// -----

// What is in a region, has other shapes than attention or says nothing stays a call.

!t = tensor<4x8xf32>
!u = tensor<5x8xf32>

// CHECK-LABEL: func.func @calls
// CHECK-NOT: bsr.attention(
// CHECK: call @attend(
// CHECK: call @longer(
// CHECK: call @plain(
// CHECK: call @more(
func.func @calls(%q: !t {bsr.name = "q"}, %u: !u {bsr.name = "u"}, %yes: i1 {bsr.name = "yes"})
    -> (!t {bsr.name = "0"}, !t {bsr.name = "1"}, !t {bsr.name = "2"}, !t {bsr.name = "3"}) {
  %0 = scf.if %yes -> !t {
    %y = func.call @attend(%q, %q, %q) : (!t, !t, !t) -> !t
    scf.yield %y : !t
  } else {
    scf.yield %q : !t
  }
  %1 = call @longer(%q, %u, %q) : (!t, !u, !t) -> !t
  %2 = call @plain(%q, %q, %q) : (!t, !t, !t) -> !t
  %3 = call @more(%q, %q, %q) : (!t, !t, !t) -> !t
  return %0, %1, %2, %3 : !t, !t, !t, !t
}
func.func private @attend(!t, !t, !t) -> !t attributes {bsr.attention = {operands = ["q", "k", "v"], scale = 1.0}}
func.func private @longer(!t, !u, !t) -> !t attributes {bsr.attention = {operands = ["q", "k", "v"], scale = 1.0}}
func.func private @plain(!t, !t, !t) -> !t
func.func private @more(!t, !t, !t) -> !t attributes {bsr.attention = {operands = ["q", "k", "v", "mask"], scale = 1.0}}
