// Upstream's bufferization works on the operations as they are: each becomes plain
// loops, and the index arrays of its pattern become arguments.
//
// RUN: sparse-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" \
// RUN:   --bsr-lower-patterns --canonicalize --bsr-verify-lowered | FileCheck %s

!pattern = !bsr.pattern<32x64, block = 16x16, slots = 3>

// CHECK-DAG: memref.global "private" constant @[[PTR:.*]] : memref<3xi32> = dense<[0, 1, 3]>
// CHECK-LABEL: func @products
// CHECK-SAME:    %{{[a-z0-9]+}}: memref<3xi32> {bsr.kind = "row_ptr"
// CHECK-SAME:    %[[COLPTR:[a-z0-9]+]]: memref<5xi32> {bsr.kind = "col_ptr"
// CHECK-SAME:    %[[W:[a-z0-9]+]]: memref<3x16x16xf32>
// CHECK-SAME:    -> memref<3x16x16xf32>
func.func @products(%p: !pattern, %w: tensor<3x16x16xf32>, %x: tensor<5x32xf32>)
    -> tensor<3x16x16xf32> {
  // The forward product walks the columns and writes a buffer of its own.
  // CHECK: %[[Y:.*]] = memref.alloc() {{.*}} : memref<5x64xf32>
  // CHECK: scf.for
  // CHECK:   memref.load %[[COLPTR]]
  // CHECK:   memref.load %[[W]]
  // CHECK:   memref.store %{{.*}}, %[[Y]]
  %y = bsr.spmm %p, %w, %x feature_dim = 1
      : !pattern, tensor<3x16x16xf32>, tensor<5x32xf32> -> tensor<5x64xf32>
  // The indices of a constant pattern are constants.
  // CHECK: memref.get_global @[[PTR]]
  // CHECK: %[[V:.*]] = memref.alloc() {{.*}} : memref<3x16x16xf32>
  // CHECK: scf.for
  // CHECK:   memref.store %{{.*}}, %[[V]]
  %q = bsr.constant_pattern row_ptr = [0, 1, 3] col_idx = [1, 0, 1] : !pattern
  %v = bsr.sddmm %q, %x, %y feature_dim = 1
      : !pattern, tensor<5x32xf32>, tensor<5x64xf32> -> tensor<3x16x16xf32>
  // CHECK: return %[[V]]
  return %v : tensor<3x16x16xf32>
}
