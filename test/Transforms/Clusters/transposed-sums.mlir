// RUN: sparse-opt %s --bsr-cluster --split-input-file | FileCheck %s

!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>
!t = tensor<64x128xf32>
!r = tensor<128x64xf32>
#rows = affine_map<(t, f) -> (t, f)>
#panels = affine_map<(t, f) -> (f, t)>

module attributes {bsr.target = #bsr.cpu<vector_bits = 512, num_registers = 32>} {
// What alone reads a product and transposes it is computed in the product's
// kernel, at the peak of memory as well: the product needs none.
// CHECK-LABEL: func @rows
// CHECK:         %[[Y:.*]] = bsr.launch @[[ROWS:[a-z0-9_]*]] ins(%{{.*}}, %{{.*}}, %{{.*}} : !bsr.pattern
// CHECK-NOT:     bsr.launch
// CHECK:         return %[[Y]]
func.func @rows(%p: !p, %v: !v, %x: !t) -> !r {
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %e = tensor.empty() : !r
  %y = linalg.generic {indexing_maps = [#panels, #rows], iterator_types = ["parallel", "parallel"], bsr.peak}
      ins(%s : !t) outs(%e : !r) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> !r
  return %y : !r
}

// What else reads the product needs it in memory.
// CHECK-LABEL: func @read_twice
// CHECK:         %[[S:.*]] = bsr.launch @{{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : !bsr.pattern
// CHECK:         %[[Y:.*]] = bsr.launch @{{.*}} ins(%[[S]] :
// CHECK:         return %[[S]], %[[Y]]
func.func @read_twice(%p: !p, %v: !v, %x: !t) -> (!t, !r) {
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %e = tensor.empty() : !r
  %y = linalg.generic {indexing_maps = [#panels, #rows], iterator_types = ["parallel", "parallel"], bsr.peak}
      ins(%s : !t) outs(%e : !r) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> !r
  return %s, %y : !t, !r
}

// What keeps the order of the product waits for the peak.
// CHECK-LABEL: func @panels
// CHECK:         %[[S:.*]] = bsr.launch @{{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : !bsr.pattern
// CHECK:         %[[Y:.*]] = bsr.launch @{{.*}} ins(%[[S]] :
// CHECK:         return %[[Y]]
func.func @panels(%p: !p, %v: !v, %x: !t) -> !t {
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %e = tensor.empty() : !t
  %y = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"], bsr.peak}
      ins(%s : !t) outs(%e : !t) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.negf %a : f32
    linalg.yield %0 : f32
  } -> !t
  return %y : !t
}
}

// -----

!p = !bsr.pattern<64x64, block = 16x16, slots = 4>
!v = tensor<4x16x16xf32>
!t = tensor<64x128xf32>
!r = tensor<128x64xf32>
#rows = affine_map<(t, f) -> (t, f)>
#panels = affine_map<(t, f) -> (f, t)>

module attributes {bsr.target = #bsr.cpu<vector_bits = 256, num_registers = 16>} {
// Shorter vectors transpose no sums.
// CHECK-LABEL: func @short_vectors
// CHECK:         %[[S:.*]] = bsr.launch @{{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : !bsr.pattern
// CHECK:         %[[Y:.*]] = bsr.launch @{{.*}} ins(%[[S]] :
// CHECK:         return %[[Y]]
func.func @short_vectors(%p: !p, %v: !v, %x: !t) -> !r {
  %s = bsr.spmm %p, %v, %x feature_dim = 0 : !p, !v, !t -> !t
  %e = tensor.empty() : !r
  %y = linalg.generic {indexing_maps = [#panels, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%s : !t) outs(%e : !r) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> !r
  return %y : !r
}
}
