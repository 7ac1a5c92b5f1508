// RUN: sparse-opt %s --split-input-file --bsr-panel | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-plan-clusters --bsr-panel --bsr-emit --canonicalize | FileCheck %s --check-prefix=EMIT
// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.cpu<vector_bits=512,num_registers=32>" --bsr-panel | FileCheck %s --check-prefix=WIDE
// RUN: sparse-opt %s --split-input-file --bsr-panel --mlir-debug-counter=bsr-panel-count=0 | FileCheck %s --check-prefix=SKIPPED

// SKIPPED-NOT: bsr.panels

!pattern = !bsr.pattern<768x768, block = 16x16, slots = 3>

// What goes from kernel to kernel is cut in panels, arguments and results are not. A
// cluster whose operands are cut in two ways becomes two kernels. Panels of 48 KiB are
// padded, so that one does not evict the next. 512 bits: 64 lanes, no panels of 48.
// EMIT-LABEL: func private @product(
// EMIT-SAME:    %{{[^:]*}}: memref<3x785x16xf32>, %{{[^:]*}}: memref<768x48xf32>)
// EMIT-LABEL: func private @product_0(
// EMIT-SAME:    %{{[^:]*}}: memref<768x48xf32>, %{{[^:]*}}: memref<3x785x16xf32>)
bsr.cluster private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<768x48xf32>) -> tensor<768x48xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes} : !pattern, tensor<3x16x16xf32>, tensor<768x48xf32> -> tensor<768x48xf32>
  bsr.yield %y : tensor<768x48xf32>
}

// CHECK-LABEL: func @chain
// WIDE-LABEL: func @chain
// EMIT-LABEL: func @chain
func.func @chain(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<768x48xf32>) -> tensor<768x48xf32> {
  %e = tensor.empty() : tensor<768x48xf32>
  // CHECK: bsr.launch @product {{.*}} {bsr.panels = array<i64: 3>}
  // WIDE-NOT: bsr.panels
  // EMIT: %[[H:.*]] = bsr.launch @product_0 {{.*}} -> tensor<3x785x16xf32>
  %h = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<768x48xf32>) outs(%e : tensor<768x48xf32>) -> tensor<768x48xf32>
  // CHECK: bsr.launch @product {{.*}} {bsr.panels = array<i64: 2>}
  // EMIT: bsr.launch @product ins({{.*}}, %[[H]] : {{.*}}) {{.*}} -> tensor<768x48xf32>
  // EMIT-NOT: bsr.panels
  %y = bsr.launch @product ins(%p, %w, %h : !pattern, tensor<3x16x16xf32>, tensor<768x48xf32>) outs(%e : tensor<768x48xf32>) -> tensor<768x48xf32>
  return %y : tensor<768x48xf32>
}

// -----

!pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>

// No panels: lanes that they do not divide (40), and a value that more than kernels
// read.
bsr.cluster private @ragged(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x40xf32>) -> tensor<32x40xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes} : !pattern, tensor<3x16x16xf32>, tensor<32x40xf32> -> tensor<32x40xf32>
  bsr.yield %y : tensor<32x40xf32>
}
bsr.cluster private @even(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes} : !pattern, tensor<3x16x16xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
  bsr.yield %y : tensor<32x32xf32>
}
// CHECK-LABEL: func @uncut
// CHECK-NOT: bsr.panels
func.func @uncut(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x40xf32>, %z: tensor<32x32xf32>)
    -> (tensor<32x40xf32>, tensor<32x32xf32>, tensor<16x32xf32>) {
  %e = tensor.empty() : tensor<32x40xf32>
  %h = bsr.launch @ragged ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<32x40xf32>) outs(%e : tensor<32x40xf32>) -> tensor<32x40xf32>
  %y = bsr.launch @ragged ins(%p, %w, %h : !pattern, tensor<3x16x16xf32>, tensor<32x40xf32>) outs(%e : tensor<32x40xf32>) -> tensor<32x40xf32>
  %f = tensor.empty() : tensor<32x32xf32>
  %a = bsr.launch @even ins(%p, %w, %z : !pattern, tensor<3x16x16xf32>, tensor<32x32xf32>) outs(%f : tensor<32x32xf32>) -> tensor<32x32xf32>
  %b = bsr.launch @even ins(%p, %w, %a : !pattern, tensor<3x16x16xf32>, tensor<32x32xf32>) outs(%f : tensor<32x32xf32>) -> tensor<32x32xf32>
  %s = tensor.extract_slice %a[0, 0] [16, 32] [1, 1] : tensor<32x32xf32> to tensor<16x32xf32>
  return %y, %b, %s : tensor<32x40xf32>, tensor<32x32xf32>, tensor<16x32xf32>
}

// -----

#rc = affine_map<(r, c) -> (r, c)>
#none = affine_map<(r, c) -> ()>
#one = affine_map<(r, c) -> (0, 0)>

// Pieces along the rows, and along the lanes where panels divide them (32 and 16 of
// 48, not 24 and 24), are parts of the panels of the whole.
// EMIT-LABEL: func private @rows(
// EMIT-SAME:    %[[ALL:[^:]*]]: memref<3x40x16xf32>)
// EMIT:         memref.reinterpret_cast %[[ALL]] to offset: [0], sizes: [3, 8, 16], strides: [640, 16, 1]
// EMIT:         memref.reinterpret_cast %[[ALL]] to offset: [128], sizes: [3, 32, 16], strides: [640, 16, 1]
bsr.cluster private @rows(%x: tensor<8x48xf32>, %y: tensor<32x48xf32>) -> tensor<40x48xf32> {
  %all = tensor.concat dim(0) %x, %y {bsr.lanes} : (tensor<8x48xf32>, tensor<32x48xf32>) -> tensor<40x48xf32>
  bsr.yield %all : tensor<40x48xf32>
}
// EMIT-LABEL: func private @lanes(
// EMIT-SAME:    %[[ALL:[^:]*]]: memref<3x8x16xf32>)
// EMIT:         memref.reinterpret_cast %[[ALL]] to offset: [0], sizes: [2, 8, 16], strides: [128, 16, 1]
// EMIT:         memref.reinterpret_cast %[[ALL]] to offset: [256], sizes: [1, 8, 16], strides: [128, 16, 1]
bsr.cluster private @lanes(%x: tensor<8x32xf32>, %y: tensor<8x16xf32>) -> tensor<8x48xf32> {
  %all = tensor.concat dim(1) %x, %y {bsr.lanes} : (tensor<8x32xf32>, tensor<8x16xf32>) -> tensor<8x48xf32>
  bsr.yield %all : tensor<8x48xf32>
}
bsr.cluster private @halves(%x: tensor<8x24xf32>, %y: tensor<8x24xf32>) -> tensor<8x48xf32> {
  %all = tensor.concat dim(1) %x, %y {bsr.lanes} : (tensor<8x24xf32>, tensor<8x24xf32>) -> tensor<8x48xf32>
  bsr.yield %all : tensor<8x48xf32>
}
// CHECK-LABEL: func @concatenations
// CHECK: bsr.launch @rows {{.*}} {bsr.panels = array<i64: 2>}
// CHECK: bsr.launch @lanes {{.*}} {bsr.panels = array<i64: 2>}
// CHECK: bsr.launch @sum {{.*}} {bsr.panels = array<i64: 0, 1>}
func.func @concatenations(%a: tensor<8x48xf32>, %b: tensor<32x48xf32>, %c: tensor<8x32xf32>, %d: tensor<8x16xf32>,
                          %f: tensor<8x24xf32>) -> tensor<f32> {
  %e = tensor.empty() : tensor<40x48xf32>
  %g = tensor.empty() : tensor<8x48xf32>
  %h = tensor.empty() : tensor<f32>
  %rows = bsr.launch @rows ins(%a, %b : tensor<8x48xf32>, tensor<32x48xf32>) outs(%e : tensor<40x48xf32>) -> tensor<40x48xf32>
  %lanes = bsr.launch @lanes ins(%c, %d : tensor<8x32xf32>, tensor<8x16xf32>) outs(%g : tensor<8x48xf32>) -> tensor<8x48xf32>
  %halves = bsr.launch @halves ins(%f, %f : tensor<8x24xf32>, tensor<8x24xf32>) outs(%g : tensor<8x48xf32>) -> tensor<8x48xf32>
  %sum = bsr.launch @sum ins(%rows, %lanes, %halves : tensor<40x48xf32>, tensor<8x48xf32>, tensor<8x48xf32>)
      outs(%h : tensor<f32>) -> tensor<f32>
  return %sum : tensor<f32>
}
bsr.cluster private @sum(%x: tensor<40x48xf32>, %y: tensor<8x48xf32>, %z: tensor<8x48xf32>) -> tensor<f32> {
  %zero = arith.constant dense<0.0> : tensor<f32>
  %s = linalg.generic {indexing_maps = [#rc, #one, #one, #none], iterator_types = ["reduction", "reduction"]}
      ins(%x, %y, %z : tensor<40x48xf32>, tensor<8x48xf32>, tensor<8x48xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%a: f32, %b: f32, %c: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    %1 = arith.addf %0, %b : f32
    %2 = arith.addf %1, %c : f32
    linalg.yield %2 : f32
  } -> tensor<f32>
  bsr.yield %s : tensor<f32>
}

// -----

#id = affine_map<(r, c) -> (r, c)>

// Without inputs, the first result is operand 0, for the kernel too.
// EMIT-LABEL: func private @mask(
// EMIT-SAME:    %{{[^:]*}}: memref<3x8x16xf32>)
bsr.cluster private @mask() -> tensor<8x48xf32> {
  %one = arith.constant dense<1.0> : tensor<f32>
  %e = tensor.empty() : tensor<8x48xf32>
  %m = linalg.generic {indexing_maps = [affine_map<(r, c) -> ()>, #id], iterator_types = ["parallel", "parallel"]}
      ins(%one : tensor<f32>) outs(%e : tensor<8x48xf32>) attrs = {bsr.lanes} {
  ^bb0(%x: f32, %o: f32):
    linalg.yield %x : f32
  } -> tensor<8x48xf32>
  bsr.yield %m : tensor<8x48xf32>
}
bsr.cluster private @double(%m: tensor<8x48xf32>) -> tensor<8x48xf32> {
  %e = tensor.empty() : tensor<8x48xf32>
  %d = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<8x48xf32>) outs(%e : tensor<8x48xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %x, %x : f32
    linalg.yield %0 : f32
  } -> tensor<8x48xf32>
  bsr.yield %d : tensor<8x48xf32>
}
// CHECK-LABEL: func @no_inputs
// CHECK:         bsr.launch @mask outs({{.*}}) {bsr.panels = array<i64: 0>}
// CHECK:         bsr.launch @double {{.*}} {bsr.panels = array<i64: 0>}
func.func @no_inputs() -> tensor<8x48xf32> {
  %e = tensor.empty() : tensor<8x48xf32>
  %m = bsr.launch @mask outs(%e : tensor<8x48xf32>) -> tensor<8x48xf32>
  %f = tensor.empty() : tensor<8x48xf32>
  %d = bsr.launch @double ins(%m : tensor<8x48xf32>) outs(%f : tensor<8x48xf32>) -> tensor<8x48xf32>
  return %d : tensor<8x48xf32>
}

// -----

!table = !bsr.pattern<64x48, block = 16x16, slots = 3>

// Rows that are looked up, with features as the dimension that panels divide:
// each token has all of its features.
// EMIT-LABEL: func private @look_up(
// EMIT-SAME:    memref<3x4x16xf32>)
// EMIT:         scf.forall (%{{.*}}) in (4)
// EMIT:           scf.for
bsr.cluster private @look_up(%p: !table, %w: tensor<3x16x16xf32>, %at: tensor<4xi64>) -> tensor<4x48xf32> {
  %rows = bsr.gather_rows %p, %w, %at feature_dim = 1 {bsr.lanes} : !table, tensor<3x16x16xf32>, tensor<4xi64> -> tensor<4x48xf32>
  bsr.yield %rows : tensor<4x48xf32>
}
bsr.cluster private @twice(%m: tensor<4x48xf32>) -> tensor<4x48xf32> {
  %e = tensor.empty() : tensor<4x48xf32>
  %d = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r, c)>], iterator_types = ["parallel", "parallel"]}
      ins(%m : tensor<4x48xf32>) outs(%e : tensor<4x48xf32>) {
  ^bb0(%x: f32, %o: f32):
    %0 = arith.addf %x, %x : f32
    linalg.yield %0 : f32
  } -> tensor<4x48xf32>
  bsr.yield %d : tensor<4x48xf32>
}
// CHECK-LABEL: func @look_ups
// CHECK:         bsr.launch @look_up ins({{.*}}) {bsr.panels = array<i64: 3>}
func.func @look_ups(%p: !table, %w: tensor<3x16x16xf32>, %at: tensor<4xi64>) -> tensor<4x48xf32> {
  %e = tensor.empty() : tensor<4x48xf32>
  %m = bsr.launch @look_up ins(%p, %w, %at : !table, tensor<3x16x16xf32>, tensor<4xi64>) outs(%e : tensor<4x48xf32>) -> tensor<4x48xf32>
  %f = tensor.empty() : tensor<4x48xf32>
  %d = bsr.launch @twice ins(%m : tensor<4x48xf32>) outs(%f : tensor<4x48xf32>) -> tensor<4x48xf32>
  return %d : tensor<4x48xf32>
}

// -----

!pattern = !bsr.pattern<32x32, block = 16x16, slots = 3>
#in = affine_map<(f, n, s) -> (f, n, s)>
#out = affine_map<(f, n, s) -> (f)>

// No panels: a kernel that goes through the tokens of one feature after the other, and again
// with what they sum up to, would read a row of each twice.
bsr.cluster private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x256xf32>) -> tensor<32x256xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes} : !pattern, tensor<3x16x16xf32>, tensor<32x256xf32> -> tensor<32x256xf32>
  bsr.yield %y : tensor<32x256xf32>
}
bsr.cluster private @sums(%y: tensor<32x256xf32>) -> tensor<32xf32> {
  %0 = tensor.expand_shape %y [[0], [1, 2]] output_shape [32, 2, 128] : tensor<32x256xf32> into tensor<32x2x128xf32>
  %c = arith.constant dense<0.0> : tensor<32xf32>
  %s = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%0 : tensor<32x2x128xf32>) outs(%c : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %o, %a : f32
    linalg.yield %1 : f32
  } -> tensor<32xf32>
  bsr.yield %s : tensor<32xf32>
}
bsr.cluster private @centered(%y: tensor<32x256xf32>) -> tensor<32x2x128xf32> {
  %0 = tensor.expand_shape %y [[0], [1, 2]] output_shape [32, 2, 128] : tensor<32x256xf32> into tensor<32x2x128xf32>
  %c = arith.constant dense<0.0> : tensor<32xf32>
  %s = linalg.generic {indexing_maps = [#in, #out], iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%0 : tensor<32x2x128xf32>) outs(%c : tensor<32xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.addf %o, %a : f32
    linalg.yield %1 : f32
  } -> tensor<32xf32>
  %e = tensor.empty() : tensor<32x2x128xf32>
  %d = linalg.generic {indexing_maps = [#in, #out, #in], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%0, %s : tensor<32x2x128xf32>, tensor<32xf32>) outs(%e : tensor<32x2x128xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %1 = arith.subf %a, %b : f32
    linalg.yield %1 : f32
  } -> tensor<32x2x128xf32>
  bsr.yield %d : tensor<32x2x128xf32>
}
// CHECK-LABEL: func @by_feature
// CHECK-NOT: bsr.panels
// WIDE-LABEL: func @by_feature
// WIDE-NOT: bsr.panels
func.func @by_feature(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x256xf32>) -> tensor<32x2x128xf32> {
  %e = tensor.empty() : tensor<32x256xf32>
  %f = tensor.empty() : tensor<32x2x128xf32>
  %y = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<32x256xf32>) outs(%e : tensor<32x256xf32>) -> tensor<32x256xf32>
  %s = bsr.launch @centered ins(%y : tensor<32x256xf32>) outs(%f : tensor<32x2x128xf32>) -> tensor<32x2x128xf32>
  return %s : tensor<32x2x128xf32>
}
// A sum alone reads each row once, so that panels stay.
// CHECK-LABEL: func @sum_of_feature
// CHECK: bsr.launch @product {{.*}} {bsr.panels = array<i64: 3>}
// WIDE-LABEL: func @sum_of_feature
// WIDE: bsr.panels
func.func @sum_of_feature(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x256xf32>) -> tensor<32xf32> {
  %e = tensor.empty() : tensor<32x256xf32>
  %f = tensor.empty() : tensor<32xf32>
  %y = bsr.launch @product ins(%p, %w, %x : !pattern, tensor<3x16x16xf32>, tensor<32x256xf32>) outs(%e : tensor<32x256xf32>) -> tensor<32x256xf32>
  %s = bsr.launch @sums ins(%y : tensor<32x256xf32>) outs(%f : tensor<32xf32>) -> tensor<32xf32>
  return %s : tensor<32xf32>
}
