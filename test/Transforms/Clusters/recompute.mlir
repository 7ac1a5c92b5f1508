// RUN: sparse-opt %s --bsr-recompute --split-input-file | FileCheck %s
// RUN: sparse-opt %s --bsr-recompute=max-cost=0 --split-input-file | FileCheck %s --check-prefix=NONE
// RUN: sparse-opt %s --bsr-recompute --split-input-file --mlir-debug-counter=bsr-recompute-count=0 | FileCheck %s --check-prefix=NONE

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<64x64xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// An activation is computed again for its gradient, from the product before it,
// which that reads as well; the gradient of the next weight moves behind it.
// NONE-NOT:    bsr.recomputed
// CHECK-LABEL: func @activation
// CHECK:         %[[X:.*]] = bsr.spmm
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[X]] :
// CHECK-NEXT:    ^bb0
// CHECK-NEXT:      math.tanh
// CHECK:         %[[Z:.*]] = bsr.spmm %{{.*}}, %{{.*}}, %[[Y]] feature_dim
// CHECK:         bsr.spmm %{{.*}}, %{{.*}}, %{{.*}} transpose
// CHECK:         %[[AGAIN:.*]] = linalg.generic {{.*}} ins(%[[X]] : {{.*}} attrs = {bsr.recomputed}
// CHECK-NEXT:    ^bb0
// CHECK-NEXT:      math.tanh
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[AGAIN]], %[[X]] :
// CHECK:         bsr.sddmm %{{.*}}, %[[AGAIN]], %{{.*}}
func.func @activation(%p: !p, %v: !v, %x: !t, %dz: !t) -> (!t, !v, !t) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %y feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %loss = bsr.spmm %p, %v, %u feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%loss, %u, %z : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  %dv = bsr.sddmm %p, %y, %dz feature_dim = 0 : !p, !t, !t -> !v
  %dy = bsr.spmm %p, %v, %dz transpose feature_dim = 0 : !p, !v, !t -> !t
  %dx = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %y, %s : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %b, %b : f32
    %1 = arith.mulf %a, %0 : f32
    %2 = arith.addf %1, %c : f32
    linalg.yield %2 : f32
  } -> !t
  return %more, %dv, %dx : !t, !v, !t
}

// -----

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<64x64xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// Nothing else keeps what it was computed from: it stays.
// CHECK-LABEL: func @kept
// CHECK-NOT:     bsr.recomputed
// NONE-NOT:      bsr.recomputed
func.func @kept(%p: !p, %v: !v, %x: !t, %dz: !t) -> (!t, !v) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %y feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u, %z : !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> !t
  %dv = bsr.sddmm %p, %y, %dz feature_dim = 0 : !p, !t, !t -> !v
  return %more, %dv : !t, !v
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#col = affine_map<(i, j) -> (j)>
!t = tensor<64x64xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// A product needs softmax again: what it was divided from is not kept, but
// multiplied, for what reads it element by element.
// CHECK-LABEL: func @softmax
// CHECK:         math.exp
// CHECK:         %[[S:.*]] = linalg.generic
// CHECK:           arith.addf
// CHECK:         %[[Q:.*]] = linalg.generic
// CHECK:           arith.divf
// CHECK:         bsr.spmm {{.*}} transpose
// CHECK:         %[[E:.*]] = linalg.generic {{.*}} ins(%[[Q]], %[[S]] :
// CHECK-NEXT:    ^bb0
// CHECK-NEXT:      arith.mulf
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[E]] :
// CHECK:         bsr.sddmm %{{.*}}, %[[Q]],
func.func @softmax(%p: !p, %v: !v, %x: !t, %dz: !t) -> (!t, !v, !t) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %low = arith.constant dense<0xFF800000> : tensor<64xf32>
  %zero = arith.constant dense<0.0> : tensor<64xf32>
  %max = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%s : !t) outs(%low : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.maximumf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %y = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %max : !t, tensor<64xf32>) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.subf %a, %b : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> !t
  %sums = linalg.generic {indexing_maps = [#id, #col], iterator_types = ["reduction", "parallel"]}
      ins(%y : !t) outs(%zero : tensor<64xf32>) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.addf %a, %out : f32
    linalg.yield %0 : f32
  } -> tensor<64xf32>
  %q = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %sums : !t, tensor<64xf32>) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %q feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %loss = bsr.spmm %p, %v, %u feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%loss, %u, %z : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  %dy = bsr.spmm %p, %v, %dz transpose feature_dim = 0 : !p, !v, !t -> !t
  %dx = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %y : !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %b, %b : f32
    %1 = arith.mulf %a, %0 : f32
    linalg.yield %1 : f32
  } -> !t
  %dv = bsr.sddmm %p, %q, %dz feature_dim = 0 : !p, !t, !t -> !v
  return %more, %dv, %dx : !t, !v, !t
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#col = affine_map<(i, j) -> (j)>
!t = tensor<64x64xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// Another divisor may be 0 or infinite: e / s * s is NaN then.
// CHECK-LABEL: func @quotient
// CHECK:         bsr.spmm {{.*}} transpose
// CHECK-NOT:     arith.mulf %{{.*}}, %{{.*}} : f32{{[[:space:]]*}}linalg.yield
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} :
// CHECK-NEXT:    ^bb0
// CHECK-NEXT:      arith.mulf
// CHECK-NEXT:      arith.mulf
// CHECK:         bsr.sddmm
func.func @quotient(%sums: tensor<64xf32>, %p: !p, %v: !v, %x: !t, %dz: !t) -> (!t, !v, !t) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.exp %a : f32
    linalg.yield %0 : f32
  } -> !t
  %q = linalg.generic {indexing_maps = [#id, #col, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %sums : !t, tensor<64xf32>) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %q feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %loss = bsr.spmm %p, %v, %u feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%loss, %u, %z : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  %dy = bsr.spmm %p, %v, %dz transpose feature_dim = 0 : !p, !v, !t -> !t
  %dx = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %y : !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %b, %b : f32
    %1 = arith.mulf %a, %0 : f32
    linalg.yield %1 : f32
  } -> !t
  %dv = bsr.sddmm %p, %q, %dz feature_dim = 0 : !p, !t, !t -> !v
  return %more, %dv, %dx : !t, !v, !t
}

// -----

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<64x64xf32>
!b = tensor<64x64xbf16>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// What half as many bytes would have to be kept for is kept itself on processors, and computed again on GPUs.
// CHECK-LABEL: func @widened
// CHECK-NOT:     bsr.recomputed
// NONE-NOT:      bsr.recomputed
func.func @widened(%p: !p, %v: !v, %h: tensor<4x16x16xbf16>, %x: !b, %dz: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %h, %x feature_dim = 0 : !p, tensor<4x16x16xbf16>, !b -> !b
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !b) outs(%e : !t) {
  ^bb0(%a: bf16, %out: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %y feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %loss = bsr.spmm %p, %v, %u feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%loss, %u, %z : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  %dy = bsr.spmm %p, %v, %dz transpose feature_dim = 0 : !p, !v, !t -> !t
  %dx = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %y : !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> !t
  return %more, %dx : !t, !t
}

// -----

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<64x64xf32>
!b = tensor<64x64xbf16>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// CHECK-LABEL: func @widened_on_a_gpu
// CHECK:         %[[S:.*]] = bsr.spmm
// CHECK:         linalg.generic {{.*}} ins(%[[S]] : {{.*}} attrs = {bsr.recomputed}
// NONE-NOT:      bsr.recomputed
module attributes {bsr.target = #bsr.gpu} {
func.func @widened_on_a_gpu(%p: !p, %v: !v, %h: tensor<4x16x16xbf16>, %x: !b, %dz: !t) -> (!t, !t) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %h, %x feature_dim = 0 : !p, tensor<4x16x16xbf16>, !b -> !b
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !b) outs(%e : !t) {
  ^bb0(%a: bf16, %out: f32):
    %0 = arith.extf %a : bf16 to f32
    %1 = math.tanh %0 : f32
    linalg.yield %1 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %y feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %loss = bsr.spmm %p, %v, %u feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%loss, %u, %z : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  %dy = bsr.spmm %p, %v, %dz transpose feature_dim = 0 : !p, !v, !t -> !t
  %dx = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %y : !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    linalg.yield %0 : f32
  } -> !t
  return %more, %dx : !t, !t
}
}

// -----

#id = affine_map<(i, j) -> (i, j)>
#left = affine_map<(i, j, k) -> (i, k)>
#right = affine_map<(i, j, k) -> (k, j)>
#sum = affine_map<(i, j, k) -> (i, j)>
!t = tensor<64x64xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// A large product of small operands is computed where it is read, with what converts it.
// CHECK-LABEL: func @sunk
// CHECK-SAME:    %[[A:[a-z0-9]+]]: tensor<64x2xf32>, %[[B:[a-z0-9]+]]: tensor<2x64xf32>
// CHECK:         bsr.spmm
// CHECK:         %[[U:.*]] = bsr.spmm
// CHECK:         %[[G:.*]] = linalg.generic {{.*}} ins(%[[A]], %[[B]] :
// CHECK:         %[[H:.*]] = linalg.generic {{.*}} ins(%[[G]] : tensor<64x64xf32>)
// CHECK:         linalg.generic {{.*}} ins(%[[U]], %[[H]] :
func.func @sunk(%p: !p, %v: !v, %x: !t, %a: tensor<64x2xf32>, %b: tensor<2x64xf32>) -> !t {
  %e = tensor.empty() : !t
  %eh = tensor.empty() : tensor<64x64xbf16>
  %zero = arith.constant dense<0.0> : !t
  %g = linalg.generic {indexing_maps = [#left, #right, #sum], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<64x2xf32>, tensor<2x64xf32>) outs(%zero : !t) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %0 = arith.mulf %l, %r : f32
    %1 = arith.addf %out, %0 : f32
    linalg.yield %1 : f32
  } -> !t
  %h = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%g : !t) outs(%eh : tensor<64x64xbf16>) {
  ^bb0(%l: f32, %out: bf16):
    %0 = arith.truncf %l : f32 to bf16
    linalg.yield %0 : bf16
  } -> tensor<64x64xbf16>
  %z = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %y = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%u, %h : !t, tensor<64x64xbf16>) outs(%e : !t) {
  ^bb0(%l: f32, %r: bf16, %out: f32):
    %0 = arith.extf %r : bf16 to f32
    %1 = arith.addf %l, %0 : f32
    linalg.yield %1 : f32
  } -> !t
  return %y : !t
}

// -----

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<64x64xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// A product reads what is computed again from what is needed only later: that is computed again as early.
// CHECK-LABEL: func @earlier
// CHECK:         %[[X:.*]] = bsr.spmm
// CHECK:         %[[ONE:.*]] = linalg.generic {{.*}} ins(%[[X]] : {{.*}} attrs = {bsr.recomputed}
// CHECK:         %[[TWO:.*]] = linalg.generic {{.*}} ins(%[[ONE]] : {{.*}} attrs = {bsr.recomputed}
// CHECK:         bsr.sddmm %{{.*}}, %[[TWO]], %{{.*}}
// CHECK:         linalg.generic {{.*}} ins(%{{.*}}, %[[ONE]], %[[X]] :
func.func @earlier(%p: !p, %v: !v, %x: !t, %dz: !t) -> (!t, !v, !t) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %one = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> !t
  %two = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%one : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %two feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %loss = bsr.spmm %p, %v, %u feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%loss, %u, %z : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  %dv = bsr.sddmm %p, %two, %dz feature_dim = 0 : !p, !t, !t -> !v
  %dy = bsr.spmm %p, %v, %more transpose feature_dim = 0 : !p, !v, !t -> !t
  %dx = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %one, %s : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  return %more, %dv, %dx : !t, !v, !t
}
// -----

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<64x16384xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// On a GPU, what nobody else reads behind the peak is computed again for it, too.
// CHECK-LABEL: func @alone
// CHECK:         %[[X:.*]] = bsr.spmm
// CHECK:         %[[ONE:.*]] = linalg.generic {{.*}} ins(%[[X]] : {{.*}} attrs = {bsr.recomputed}
// CHECK:         %[[TWO:.*]] = linalg.generic {{.*}} ins(%[[ONE]] : {{.*}} attrs = {bsr.recomputed}
// CHECK:         bsr.sddmm %{{.*}}, %[[TWO]], %{{.*}}
module attributes {bsr.target = #bsr.gpu} {
func.func @alone(%p: !p, %v: !v, %x: !t, %dz: !t) -> (!t, !v, !t) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %one = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> !t
  %two = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%one : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %two feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %loss = bsr.spmm %p, %v, %u feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%loss, %u, %one : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  %dv = bsr.sddmm %p, %two, %dz feature_dim = 0 : !p, !t, !t -> !v
  %dy = bsr.spmm %p, %v, %more transpose feature_dim = 0 : !p, !v, !t -> !t
  %dx = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %x, %s : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  return %more, %dv, %dx : !t, !v, !t
}
}

// -----

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<64x64xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// Not what moves fewer bytes than memory does while the launch starts that it would take.
// CHECK-LABEL: func @small
// CHECK:         %[[ONE:.*]] = linalg.generic
// CHECK:         %[[TWO:.*]] = linalg.generic {{.*}} ins(%[[ONE]]
// CHECK:         bsr.sddmm %{{.*}}, %[[TWO]], %{{.*}}
module attributes {bsr.target = #bsr.gpu} {
func.func @small(%p: !p, %v: !v, %x: !t, %dz: !t) -> (!t, !v, !t) {
  %e = tensor.empty() : !t
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %one = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> !t
  %two = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%one : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = math.tanh %a : f32
    linalg.yield %0 : f32
  } -> !t
  %z = bsr.spmm %p, %v, %two feature_dim = 0 : !p, !v, !t -> !t
  %u = bsr.spmm %p, %v, %z feature_dim = 0 : !p, !v, !t -> !t
  %loss = bsr.spmm %p, %v, %u feature_dim = 0 : !p, !v, !t -> !t
  %more = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%loss, %u, %one : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.addf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  %dv = bsr.sddmm %p, %two, %dz feature_dim = 0 : !p, !t, !t -> !v
  %dy = bsr.spmm %p, %v, %more transpose feature_dim = 0 : !p, !v, !t -> !t
  %dx = linalg.generic {indexing_maps = [#id, #id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%dy, %x, %s : !t, !t, !t) outs(%e : !t) {
  ^bb0(%a: f32, %b: f32, %c: f32, %out: f32):
    %0 = arith.mulf %a, %b : f32
    %1 = arith.mulf %0, %c : f32
    linalg.yield %1 : f32
  } -> !t
  return %more, %dv, %dx : !t, !v, !t
}
}

// -----

#id = affine_map<(i, j) -> (i, j)>
!t = tensor<64x64xf32>
!l = tensor<256x256xf32>
!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>

// A result lies in the caller's memory: it is computed where it is, and once.
// CHECK-LABEL: func @returned
// CHECK-NOT:   bsr.recomputed
func.func @returned(%p: !p, %v: !v, %x: !t, %l: !l) -> (!t, !t, !l) {
  %e = tensor.empty() : !t
  %el = tensor.empty() : !l
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s : !t) outs(%e : !t) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> !t
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%l : !l) outs(%el : !l) {
  ^bb0(%a: f32, %out: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> !l
  return %s, %y, %n : !t, !t, !l
}
