// RUN: sparse-opt %s --split-input-file --bsr-panel | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-panel --bsr-emit --canonicalize | FileCheck %s --check-prefix=EMIT
// RUN: sparse-opt %s --split-input-file --bsr-panel="vector-bits=512 num-registers=32" | FileCheck %s --check-prefix=WIDE

!pattern = !bsr.pattern<768x768, block = 16x16, slots = 3>

// What goes from kernel to kernel is cut in panels, arguments and results are not. A
// cluster whose operands are cut in two ways becomes two kernels. Panels of 48 KiB are
// padded, so that one does not evict the next. 512 bits: 64 lanes, no panels of 48.
// EMIT-LABEL: func private @product(
// EMIT-SAME:    %{{[^:]*}}: memref<3x784x16xf32>, %{{[^:]*}}: memref<768x48xf32>)
// EMIT-LABEL: func private @product_0(
// EMIT-SAME:    %{{[^:]*}}: memref<768x48xf32>, %{{[^:]*}}: memref<3x784x16xf32>)
func.func private @product(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<768x48xf32>) -> tensor<768x48xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes} : !pattern, tensor<3x16x16xf32>, tensor<768x48xf32> -> tensor<768x48xf32>
  return %y : tensor<768x48xf32>
}

// CHECK-LABEL: func @chain
// WIDE-LABEL: func @chain
// EMIT-LABEL: func @chain
func.func @chain(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<768x48xf32>) -> tensor<768x48xf32> {
  %e = tensor.empty() : tensor<768x48xf32>
  // CHECK: bsr.launch @product {{.*}} {bsr.panels = array<i64: 3>}
  // WIDE-NOT: bsr.panels
  // EMIT: %[[H:.*]] = bsr.launch @product_0 {{.*}} -> tensor<3x784x16xf32>
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
func.func private @ragged(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x40xf32>) -> tensor<32x40xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes} : !pattern, tensor<3x16x16xf32>, tensor<32x40xf32> -> tensor<32x40xf32>
  return %y : tensor<32x40xf32>
}
func.func private @even(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %y = bsr.spmm %p, %w, %x feature_dim = 0 {bsr.lanes} : !pattern, tensor<3x16x16xf32>, tensor<32x32xf32> -> tensor<32x32xf32>
  return %y : tensor<32x32xf32>
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
