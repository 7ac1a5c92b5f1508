// RUN: sparse-opt %s --split-input-file --bsr-cluster | FileCheck %s
// RUN: sparse-opt %s --split-input-file --bsr-cluster --bsr-panel --bsr-emit --canonicalize --cse | FileCheck %s --check-prefix=EMIT
// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.scalar" --bsr-cluster | FileCheck %s --check-prefix=SCALAR
// RUN: sparse-opt %s --split-input-file --bsr-set-target="target=#bsr.scalar" --bsr-cluster --remarks-filter-missed=bsr-cluster -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=REMARK
// RUN: sparse-opt %s --split-input-file --bsr-cluster --bsr-panel --bsr-emit --mlir-debug-counter=bsr-emit-count=0 | FileCheck %s --check-prefix=PLAIN

// REMARK: [Missed] WindowsCopied | Category:bsr-cluster | Function=convolution | Reason="the target has no vectors along tokens"

!pattern = !bsr.pattern<48x16, block = 8x8, slots = 4>

// Products read windows of 2 by 3 places in the line that has the images: both are kernels
// of the line, and nothing copies it. Rows of the images are 18 elements apart.
// CHECK-LABEL: func @convolution
// CHECK-SAME:    %[[LINE:[^:]*]]: tensor<8x84xf32>
// CHECK-NOT:     tensor.concat
// CHECK:         bsr.launch @[[SPMM:.*]] ins(%{{[^,]*}}, %{{[^,]*}}, %[[LINE]] :
// CHECK:         bsr.launch @[[SDDMM:.*]] ins(%{{[^,]*}}, %[[LINE]], %{{[^,]*}} :
// CHECK:       bsr.cluster private @[[SPMM]]
// CHECK:         tensor.concat
// CHECK:         bsr.spmm
// CHECK:       bsr.cluster private @[[SDDMM]]
// CHECK:         tensor.concat
// CHECK:         bsr.sddmm

// A kernel writes down where each feature begins in the line: that of channel feature / 6,
// from element feature % 6 / 3 * 18 + feature % 6 % 3 on. A vector of it is one from there on.
// EMIT-LABEL: func private @cluster(
// EMIT-SAME:    %[[LINE:[^:]*]]: memref<8x84xf32>, %{{[^:]*}}: memref<16x64xf32>)
// EMIT-DAG:     %[[C3:.*]] = arith.constant 3 : index
// EMIT-DAG:     %[[C6:.*]] = arith.constant 6 : index
// EMIT-DAG:     %[[C18:.*]] = arith.constant 18 : index
// EMIT-DAG:     %[[C84:.*]] = arith.constant 84 : index
// EMIT:         %[[ALL:.*]] = memref.collapse_shape %[[LINE]]
// EMIT:         %[[TABLE:.*]] = memref.alloca() {{.*}} : memref<48xi32>
// EMIT:         scf.for %[[FEATURE:.*]] =
// EMIT:           %[[CHANNEL:.*]] = arith.divui %[[FEATURE]], %[[C6]]
// EMIT:           %[[PLACE:.*]] = arith.remui %[[FEATURE]], %[[C6]]
// EMIT:           %[[BEGIN:.*]] = arith.muli %[[CHANNEL]], %[[C84]]
// EMIT:           %[[ROW:.*]] = arith.divui %[[PLACE]], %[[C3]]
// EMIT:           %[[COLUMN:.*]] = arith.remui %[[PLACE]], %[[C3]]
// EMIT:           %[[RIGHT:.*]] = arith.addi %[[COLUMN]], %[[BEGIN]]
// EMIT:           %[[DOWN:.*]] = arith.muli %[[ROW]], %[[C18]]
// EMIT:           %[[SUM:.*]] = arith.addi %[[DOWN]], %[[RIGHT]]
// EMIT:           %[[FIRST:.*]] = arith.index_castui %[[SUM]]
// EMIT:           memref.store %[[FIRST]], %[[TABLE]][%[[FEATURE]]]
// EMIT:         scf.forall
// EMIT:           %[[NUMBER:.*]] = memref.load %[[TABLE]]
// EMIT:           %[[OWN:.*]] = arith.index_cast %[[NUMBER]]
// EMIT:           %[[AT:.*]] = arith.addi %[[OWN]]
// EMIT:           vector.load %[[ALL]][%[[AT]]]
// EMIT-LABEL: func private @cluster_0(
// EMIT-SAME:    %[[LINE:[^:]*]]: memref<8x84xf32>, %{{[^:]*}}: memref<16x64xf32>
// EMIT:         vector.load %[[LINE]]

// Plain loops compute the same places.
// PLAIN-LABEL: func private @cluster(
// PLAIN-SAME:    %[[LINE:[^:]*]]: memref<8x84xf32>, %{{[^:]*}}: memref<16x64xf32>)
// PLAIN-NOT:     memref.alloc
// PLAIN:         arith.divui
// PLAIN:         memref.load %[[LINE]]

// For targets without lanes they are in memory.
// SCALAR-LABEL: func @convolution
// SCALAR:         %[[WINDOWS:.*]] = bsr.launch @{{.*}} -> tensor<8x6x64xf32>
// SCALAR:         bsr.launch @{{.*}} ins(%{{[^,]*}}, %{{[^,]*}}, %[[WINDOWS]] :
// SCALAR:         bsr.launch @{{.*}} ins(%{{[^,]*}}, %[[WINDOWS]], %{{[^,]*}} :
func.func @convolution(%p: !pattern, %w: tensor<4x8x8xf32>, %line: tensor<8x84xf32>, %dy: tensor<16x64xf32>)
    -> (tensor<16x64xf32>, tensor<4x8x8xf32>) {
  %s0 = tensor.extract_slice %line[0, 0] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s1 = tensor.extract_slice %line[0, 1] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s2 = tensor.extract_slice %line[0, 2] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s3 = tensor.extract_slice %line[0, 18] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s4 = tensor.extract_slice %line[0, 19] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %s5 = tensor.extract_slice %line[0, 20] [8, 64] [1, 1] : tensor<8x84xf32> to tensor<8x64xf32>
  %e0 = tensor.expand_shape %s0 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e1 = tensor.expand_shape %s1 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e2 = tensor.expand_shape %s2 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e3 = tensor.expand_shape %s3 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e4 = tensor.expand_shape %s4 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %e5 = tensor.expand_shape %s5 [[0], [1, 2]] output_shape [8, 1, 64] : tensor<8x64xf32> into tensor<8x1x64xf32>
  %places = tensor.concat dim(1) %e0, %e1, %e2, %e3, %e4, %e5
      : (tensor<8x1x64xf32>, tensor<8x1x64xf32>, tensor<8x1x64xf32>, tensor<8x1x64xf32>, tensor<8x1x64xf32>, tensor<8x1x64xf32>)
      -> tensor<8x6x64xf32>
  %windows = tensor.collapse_shape %places [[0, 1], [2]] : tensor<8x6x64xf32> into tensor<48x64xf32>
  %y = bsr.spmm %p, %w, %windows feature_dim = 0 : !pattern, tensor<4x8x8xf32>, tensor<48x64xf32> -> tensor<16x64xf32>
  %dw = bsr.sddmm %p, %windows, %dy feature_dim = 0 : !pattern, tensor<48x64xf32>, tensor<16x64xf32> -> tensor<4x8x8xf32>
  return %y, %dw : tensor<16x64xf32>, tensor<4x8x8xf32>
}

// -----

!pattern = !bsr.pattern<48x16, block = 8x8, slots = 4>
#id = affine_map<(c, t) -> (c, t)>

// The gradient of the images is one kernel with the product: a work item makes the rows of the
// places of one channel, and adds them up. No other window lies in memory.
// CHECK-LABEL: func @gradient
// CHECK:         bsr.launch @[[SUM:.*]] ins({{.*}} -> tensor<8x44xf32>
// CHECK-NOT:     bsr.launch
// CHECK:       bsr.cluster private @[[SUM]]({{.*}}bsr.kind = "spmm_transposed"
// EMIT-LABEL: func private @cluster(
// EMIT-SAME:    %[[DY:[^:]*]]: memref<16x64xf32>, %[[DX:[^:]*]]: memref<8x44xf32>)
// EMIT-NOT:     memref<48x64xf32>
// EMIT:         %[[ROWS:.*]] = memref.alloca() {{.*}}: memref<6x64xf32>
// EMIT:         vector.load %[[DY]]
// EMIT:         vector.store {{.*}}, %[[ROWS]]
// EMIT:         vector.load %[[DX]]
// EMIT:         vector.load %[[ROWS]]
// EMIT:         vector.store {{.*}}, %[[DX]]
// PLAIN-LABEL: func @gradient
// PLAIN:       func private @cluster(
// PLAIN:         vector.store
// SCALAR-LABEL: func @gradient
// SCALAR:         bsr.launch @{{.*}} -> tensor<48x64xf32>
// SCALAR:         bsr.launch @{{.*}} -> tensor<8x44xf32>
func.func @gradient(%p: !pattern, %w: tensor<4x8x8xf32>, %dy: tensor<16x64xf32>) -> tensor<8x44xf32> {
  %e = tensor.empty() : tensor<8x44xf32>
  %windows = bsr.spmm %p, %w, %dy transpose feature_dim = 0 : !pattern, tensor<4x8x8xf32>, tensor<16x64xf32> -> tensor<48x64xf32>
  %places = tensor.expand_shape %windows [[0, 1], [2]] output_shape [8, 6, 64] : tensor<48x64xf32> into tensor<8x6x64xf32>
  %s0 = tensor.extract_slice %places[0, 0, 20] [8, 1, 44] [1, 1, 1] : tensor<8x6x64xf32> to tensor<8x1x44xf32>
  %s1 = tensor.extract_slice %places[0, 1, 19] [8, 1, 44] [1, 1, 1] : tensor<8x6x64xf32> to tensor<8x1x44xf32>
  %s2 = tensor.extract_slice %places[0, 2, 18] [8, 1, 44] [1, 1, 1] : tensor<8x6x64xf32> to tensor<8x1x44xf32>
  %s3 = tensor.extract_slice %places[0, 3, 2] [8, 1, 44] [1, 1, 1] : tensor<8x6x64xf32> to tensor<8x1x44xf32>
  %s4 = tensor.extract_slice %places[0, 4, 1] [8, 1, 44] [1, 1, 1] : tensor<8x6x64xf32> to tensor<8x1x44xf32>
  %s5 = tensor.extract_slice %places[0, 5, 0] [8, 1, 44] [1, 1, 1] : tensor<8x6x64xf32> to tensor<8x1x44xf32>
  %t0 = tensor.collapse_shape %s0 [[0, 1], [2]] : tensor<8x1x44xf32> into tensor<8x44xf32>
  %t1 = tensor.collapse_shape %s1 [[0, 1], [2]] : tensor<8x1x44xf32> into tensor<8x44xf32>
  %t2 = tensor.collapse_shape %s2 [[0, 1], [2]] : tensor<8x1x44xf32> into tensor<8x44xf32>
  %t3 = tensor.collapse_shape %s3 [[0, 1], [2]] : tensor<8x1x44xf32> into tensor<8x44xf32>
  %t4 = tensor.collapse_shape %s4 [[0, 1], [2]] : tensor<8x1x44xf32> into tensor<8x44xf32>
  %t5 = tensor.collapse_shape %s5 [[0, 1], [2]] : tensor<8x1x44xf32> into tensor<8x44xf32>
  %a1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%t0, %t1 : tensor<8x44xf32>, tensor<8x44xf32>) outs(%e : tensor<8x44xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8x44xf32>
  %a2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a1, %t2 : tensor<8x44xf32>, tensor<8x44xf32>) outs(%e : tensor<8x44xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8x44xf32>
  %a3 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a2, %t3 : tensor<8x44xf32>, tensor<8x44xf32>) outs(%e : tensor<8x44xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8x44xf32>
  %a4 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a3, %t4 : tensor<8x44xf32>, tensor<8x44xf32>) outs(%e : tensor<8x44xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8x44xf32>
  %a5 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%a4, %t5 : tensor<8x44xf32>, tensor<8x44xf32>) outs(%e : tensor<8x44xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %0 = arith.addf %x, %y : f32
    linalg.yield %0 : f32
  } -> tensor<8x44xf32>
  return %a5 : tensor<8x44xf32>
}
