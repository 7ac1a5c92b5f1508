// What becomes a cluster can be bisected: a program with fewer of them is verified and means the same.
//
// RUN: sparse-opt %s --bsr-cluster | FileCheck %s --check-prefix=ALL
// RUN: sparse-opt %s --bsr-cluster --mlir-debug-counter=bsr-cluster-skip=1,bsr-cluster-count=1 | FileCheck %s --check-prefix=ONE
// RUN: sparse-opt %s --bsr-cluster --mlir-debug-counter=bsr-cluster-count=0 | FileCheck %s --check-prefix=NONE
// RUN: sparse-opt %s --bsr-cluster=host-apart --mlir-debug-counter=bsr-cluster-count=0 | FileCheck %s --check-prefix=ALL
// RUN: sparse-opt %s --bsr-cluster --mlir-debug-counter=bsr-fuse-count=2 | FileCheck %s --check-prefix=FUSED
// RUN: sparse-opt %s --bsr-to-cpu --mlir-debug-counter=bsr-cluster-skip=1,bsr-cluster-count=1 -o /dev/null
// RUN: sparse-opt %s --bsr-to-cpu --mlir-debug-counter=bsr-emit-count=0,bsr-fuse-skip=3 -o /dev/null
//
// ALL-COUNT-3: bsr.launch
// ALL-NOT:     bsr.launch
// ALL:         return
//
// ONE-COUNT-2: linalg.generic
// ONE:         bsr.launch @cluster ins(%arg1
// ONE-NOT:     bsr.launch
// ONE-COUNT-2: linalg.generic
// ONE:         return
//
// NONE-NOT:    bsr.launch
// NONE:        return
// NONE-NOT:    bsr.cluster
//
// FUSED-COUNT-5: bsr.launch
// FUSED-NOT:     bsr.launch
// FUSED:         return

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

func.func @step(%x: tensor<8x16xf32> {bsr.name = "x"}, %y: tensor<8x16xf32> {bsr.name = "y"}, %z: tensor<8x16xf32> {bsr.name = "z"})
    -> (tensor<8x16xf32> {bsr.name = "a"}, tensor<8x16xf32> {bsr.name = "b"}, tensor<8x16xf32> {bsr.name = "c"}) {
  %e = tensor.empty() : tensor<8x16xf32>
  %zeros = arith.constant dense<0.0> : tensor<8xf32>
  %s0 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x16xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %q0 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s0 : tensor<8x16xf32>, tensor<8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x16xf32>
  %s1 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<8x16xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %q1 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %s1 : tensor<8x16xf32>, tensor<8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x16xf32>
  %s2 = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
      ins(%z : tensor<8x16xf32>) outs(%zeros : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %0 = arith.addf %o, %a : f32
    linalg.yield %0 : f32
  } -> tensor<8xf32>
  %q2 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%z, %s2 : tensor<8x16xf32>, tensor<8xf32>) outs(%e : tensor<8x16xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %0 = arith.divf %a, %b : f32
    linalg.yield %0 : f32
  } -> tensor<8x16xf32>
  return %q0, %q1, %q2 : tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>
}
