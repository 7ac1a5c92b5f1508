// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes, in the order of the pipeline: why, Before, After, options, statistics.

#ifndef BSR_TRANSFORMS_PASSES
#define BSR_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def BSRCluster : Pass<"bsr-cluster", "ModuleOp"> {
  let summary = "Group operations into clusters, one function per structure";
  let description = [{
    A cluster is what one kernel computes: a product, a reduction, or
    element-wise operations over one space (a weight's whole optimizer update),
    with the views, constants and cheap element-wise operations that it reads: these
    are computed again where they are used and never stored. Each cluster becomes
    a private function on tensors and a `bsr.launch` of it. Clusters of the same
    structure, such as those of equal layers, are one function. The step becomes
    straight-line code of launches.

    Before:

    ```mlir
    #map = affine_map<(d0) -> (d0)>
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%y : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.exp %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %z : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    #map = affine_map<(d0) -> (d0)>
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %z = bsr.launch @cluster ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>)
          -> tensor<8xf32>
      return %z : tensor<8xf32>
    }
    func.func private @cluster(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = arith.negf %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      %z = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]}
          ins(%y : tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %out: f32):
        %0 = math.exp %a : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %z : tensor<8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numClusters", "num-clusters", "Number of clusters">,
    Statistic<"numStructures", "num-structures",
              "Number of different clusters: functions to compile">,
  ];
  let dependentDialects = [
    "bsr::BSRDialect", "func::FuncDialect", "tensor::TensorDialect",
  ];
}

def BSREmit : Pass<"bsr-emit", "ModuleOp"> {
  let summary = "Turn clusters into kernels on buffers";
  let description = [{
    Each function that a `bsr.launch` calls, a cluster of tensor operations,
    becomes a function on buffers of the same name: one level of `scf.forall`
    over independent work items, loops, and vectors in them. Accumulators stay in
    registers (`iter_args`), element-wise operations are computed where they are
    used, transposes, broadcasts and slices are index arithmetic. Forward
    products and input gradients gather over one view of the pattern and write
    disjointly, the weight gradient writes each block once, a sum over tokens is
    taken in one work item in a fixed order: no atomics, the same bits for any
    number of threads. Patterns become the index arrays that the kernel walks.

    Before:

    ```mlir
    func.func private @double(%x: tensor<8xf32>) -> tensor<8xf32> {
      %two = arith.constant dense<2.0> : tensor<8xf32>
      %init = tensor.empty() : tensor<8xf32>
      %y = linalg.generic {
          indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>,
                           affine_map<(d0) -> (d0)>],
          iterator_types = ["parallel"]}
          ins(%x, %two : tensor<8xf32>, tensor<8xf32>) outs(%init : tensor<8xf32>) {
      ^bb0(%a: f32, %b: f32, %out: f32):
        %0 = arith.mulf %a, %b : f32
        linalg.yield %0 : f32
      } -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = bsr.launch @double ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>)
          -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    ```

    After:

    ```mlir
    func.func private @double(%x: memref<8xf32>, %y: memref<8xf32>) {
      %c0 = arith.constant 0 : index
      %0 = vector.load %x[%c0] : memref<8xf32>, vector<8xf32>
      %two = arith.constant 2.0 : f32
      %1 = vector.broadcast %two : f32 to vector<8xf32>
      %2 = arith.mulf %0, %1 : vector<8xf32>
      vector.store %2, %y[%c0] : memref<8xf32>, vector<8xf32>
      return
    }
    func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
      %init = tensor.empty() : tensor<8xf32>
      %y = bsr.launch @double ins(%x : tensor<8xf32>) outs(%init : tensor<8xf32>) in_place = [0]
          -> tensor<8xf32>
      return %y : tensor<8xf32>
    }
    ```
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
           "Width of a vector register in bits">,
    Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
           "Number of vector registers">,
  ];
  let statistics = [
    Statistic<"numKernels", "num-kernels", "Number of kernels emitted">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "linalg::LinalgDialect", "math::MathDialect",
    "memref::MemRefDialect", "scf::SCFDialect", "tensor::TensorDialect",
    "vector::VectorDialect",
  ];
}

def BSRVerifyLowered : Pass<"bsr-verify-lowered"> {
  let summary = "Fail if an operation of the bsr dialect is left";
  let description = [{
    The contract at the end of a lowering pipeline: no `bsr` operation or type is
    left. What is left is reported where it stands.

    Before:

    ```mlir
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```
  }];
}

#endif // BSR_TRANSFORMS_PASSES
