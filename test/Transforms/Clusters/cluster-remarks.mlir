// Remarks say which clusters were made, and what was not fused and why. Without a filter nobody hears them.
//
// RUN: sparse-opt %s --bsr-cluster 2>&1 | FileCheck %s --check-prefix=QUIET
// RUN: sparse-opt %s --bsr-cluster --remarks-filter=bsr-cluster --remark-format=yaml --remarks-output-file=%t.yaml -o /dev/null
// RUN: FileCheck %s --check-prefix=YAML < %t.yaml
// RUN: sparse-opt %s --bsr-cluster --mlir-debug-counter=bsr-fuse-count=0 --remarks-filter-missed='bsr-(cluster|fuse)' -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=SKIPPED
//
// QUIET-NOT: {{remark|NotFused}}
//
// YAML:      --- !Missed
// YAML-NEXT: Pass: {{ *}}bsr-cluster
// YAML-NEXT: Name: {{ *}}NotFused
// YAML-NEXT: DebugLoc: {{.*}}cluster-remarks.mlir
// YAML-NEXT:           Line: [[#@LINE+43]],
// YAML-NEXT: Function: {{ *}}step
// YAML-NEXT: Args:
// YAML-NEXT:   - Operation: {{ *}}linalg.generic
// YAML-NEXT:   - Kind: {{ *}}copy
// YAML-NEXT:   - Group: {{ *}}'2'
// YAML-NEXT:   - Reason: {{ *}}no work item can compute what it reads of them
// YAML:      --- !Passed
// YAML-NEXT: Pass: {{ *}}bsr-cluster
// YAML-NEXT: Name: {{ *}}ClusterMade
// YAML:        - Kernel: {{ *}}cluster
// YAML-NEXT:   - Roots: {{ *}}dense, elementwise
// YAML-NEXT:   - Plan: {{ *}}chain
// YAML-NEXT:   - FLOPs: {{ *}}'32768'
// YAML:        - Kernel: {{ *}}cluster_0
// YAML-NEXT:   - Roots: {{ *}}copy
// YAML-NOT:  ClusterMade
//
// SKIPPED: remark: [Missed] Skipped | Category:bsr-fuse | Function=step | Remark="a debug counter skips this one"
// SKIPPED-NOT: NotFused

#id = affine_map<(i, j) -> (i, j)>
#t = affine_map<(i, j) -> (j, i)>
!m = tensor<16x64xf32>

func.func @step(%a: tensor<16x16xf32> {bsr.name = "a"}, %b: !m {bsr.name = "b"}) -> (!m {bsr.name = "y"}, tensor<64x16xf32> {bsr.name = "z"}) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : !m
  %et = tensor.empty() : tensor<64x16xf32>
  %0 = linalg.fill ins(%zero : f32) outs(%e : !m) -> !m
  %p = linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%a, %b : tensor<16x16xf32>, !m) outs(%0 : !m) {
  ^bb0(%l: f32, %r: f32, %o: f32):
    %1 = arith.mulf %l, %r : f32
    %2 = arith.addf %o, %1 : f32
    linalg.yield %2 : f32
  } -> !m
  %y = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]} ins(%p : !m) outs(%e : !m) {
  ^bb0(%l: f32, %o: f32):
    %1 = math.exp %l : f32
    linalg.yield %1 : f32
  } -> !m
  %z = linalg.generic {indexing_maps = [#t, #id], iterator_types = ["parallel", "parallel"]} ins(%y : !m) outs(%et : tensor<64x16xf32>) {
  ^bb0(%l: f32, %o: f32):
    linalg.yield %l : f32
  } -> tensor<64x16xf32>
  return %y, %z : !m, tensor<64x16xf32>
}
