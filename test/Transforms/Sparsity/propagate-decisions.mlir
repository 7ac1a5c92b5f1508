// What becomes sparse can be bisected, and remarks say what stays dense, with its weight, operation, reason and FLOPs.
//
// RUN: sparse-opt %s --bsr-propagate | FileCheck %s --check-prefix=ALL
// RUN: sparse-opt %s --bsr-propagate --mlir-debug-counter=bsr-propagate-count=1 2>/dev/null | FileCheck %s --check-prefix=ONE
// RUN: sparse-opt %s --bsr-propagate --mlir-debug-counter=bsr-propagate-count=0 2>/dev/null | FileCheck %s --check-prefix=NONE
//
// ALL-NOT: linalg.matmul
// ALL:     bsr.spmm
// ALL:     bsr.sddmm
// ALL-NOT: linalg.matmul
// ONE-NOT: bsr.spmm
// ONE:     linalg.matmul
// ONE:     bsr.sddmm
// NONE-NOT: {{bsr.spmm|bsr.sddmm}}
// NONE:     linalg.matmul
// NONE:     linalg.matmul
// NONE:     bsr.sample
//
// RUN: sparse-opt %s --bsr-propagate --mlir-debug-counter=bsr-propagate-count=1 --remarks-filter=bsr-propagate --remark-format=yaml \
// RUN:   --remarks-output-file=%t.yaml -o /dev/null && FileCheck %s --check-prefix=YAML < %t.yaml
// RUN: not sparse-opt %s --bsr-propagate=require-sparse --mlir-debug-counter=bsr-propagate-count=1 --remarks-filter-failed=bsr-propagate \
// RUN:   --remark-format=yaml --remarks-output-file=%t.yaml -o /dev/null 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: FileCheck %s --check-prefix=FAILED < %t.yaml
//
// YAML:      --- !Missed
// YAML-NEXT: Pass: {{ *}}bsr-propagate
// YAML-NEXT: Name: {{ *}}Skipped
// YAML:      --- !Missed
// YAML-NEXT: Pass: {{ *}}bsr-propagate
// YAML-NEXT: Name: {{ *}}LeftDense
// YAML:      Function: {{ *}}step
// YAML-NEXT: Args:
// YAML-NEXT:   - Remark: {{ *}}'expected only stored blocks of "w", but got ''linalg.matmul'', which reads the whole matrix'
// YAML-NEXT:   - Weight: {{ *}}w
// YAML-NEXT:   - Operation: {{ *}}linalg.matmul
// YAML-NEXT:   - Reason: {{ *}}reads the whole matrix
// YAML-NEXT:   - FLOPs: {{ *}}'640'
// YAML:      --- !Analysis
// YAML-NEXT: Pass: {{ *}}bsr-propagate
// YAML-NEXT: Name: {{ *}}Weight
// YAML:        - Weight: {{ *}}w
// YAML-NEXT:   - SpMM: {{ *}}'0'
// YAML:        - SDDMM: {{ *}}'1'
// YAML-NEXT:   - LeftDense: {{ *}}'1'
//
// ERROR: error: expected only stored blocks of "w", but got 'linalg.matmul', which reads the whole matrix
// FAILED: --- !Failure
// FAILED: Name: {{ *}}LeftDense

!p = !bsr.pattern<8x8, block = 4x4, slots = 2>
func.func @step(%p: !p {bsr.name = "w", bsr.role = "pattern"}, %w: tensor<2x4x4xf32>, %x: tensor<5x8xf32>, %dy: tensor<5x8xf32>)
    -> (tensor<5x8xf32>, tensor<2x4x4xf32>) {
  %d = bsr.to_dense %p, %w : !p, tensor<2x4x4xf32> -> tensor<8x8xf32>
  %e = arith.constant dense<0.0> : tensor<5x8xf32>
  %y = linalg.matmul ins(%x, %d : tensor<5x8xf32>, tensor<8x8xf32>) outs(%e : tensor<5x8xf32>) -> tensor<5x8xf32>
  %f = arith.constant dense<0.0> : tensor<8x8xf32>
  %g = linalg.matmul
      indexing_maps = [affine_map<(d0, d1, d2) -> (d2, d0)>, affine_map<(d0, d1, d2) -> (d2, d1)>, affine_map<(d0, d1, d2) -> (d0, d1)>]
      ins(%x, %dy : tensor<5x8xf32>, tensor<5x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %v = bsr.sample %p, %g : !p, tensor<8x8xf32> -> tensor<2x4x4xf32>
  return %y, %v : tensor<5x8xf32>, tensor<2x4x4xf32>
}
