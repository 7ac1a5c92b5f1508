// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// To MLIR's own sparse tensors and back.

#ifndef BSR_TRANSFORMS_SPARSETENSORS_PASSES
#define BSR_TRANSFORMS_SPARSETENSORS_PASSES

include "mlir/Pass/PassBase.td"

def BSRToSparseTensor : Pass<"bsr-to-sparse-tensor", "func::FuncOp"> {
  let summary = "Make sparse tensors of patterns and values";
  let description = [{
    The way out to MLIR's own sparse pipelines: each `bsr.to_dense` becomes a sparse
    tensor, assembled from the index arrays of the pattern and the stored blocks in
    the order of the view (slots are in any order). Operations of linalg read it as
    it is, anything else a dense copy. Run after `bsr-bind`, in place of
    `bsr-propagate`; then `bsr-lower-patterns` makes index arrays arguments, and
    nothing of this project is left.

    | here | there |
    |---|---|
    | blocks | `(i floordiv r : dense, j floordiv c : compressed, i mod r : dense, j mod c : dense)` |
    | blocks of one row or column | the same without the level that has one entry |
    | `row_ptr`, `col_idx` | positions and coordinates, 32 bits |

    Before:

    ```mlir
    func.func @f(%p: !bsr.pattern<8x8, block = 4x4, slots = 2>, %v: tensor<2x4x4xf32>,
                 %x: tensor<8x8xf32>, %z: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %w = bsr.to_dense %p, %v
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<2x4x4xf32> -> tensor<8x8xf32>
      %y = linalg.matmul ins(%w, %x : tensor<8x8xf32>, tensor<8x8xf32>)
                         outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %y : tensor<8x8xf32>
    }
    ```

    After:

    ```mlir
    #id = affine_map<(k, i, j) -> (k, i, j)>
    #block = affine_map<(k, i, j) -> (k)>
    #bsr = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 4 : dense, j floordiv 4 : compressed,
                                                     i mod 4 : dense, j mod 4 : dense),
                                    posWidth = 32, crdWidth = 32}>
    func.func @f(%p: !bsr.pattern<8x8, block = 4x4, slots = 2>, %v: tensor<2x4x4xf32>,
                 %x: tensor<8x8xf32>, %z: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %ptr, %idx, %slot = bsr.indices %p
          : !bsr.pattern<8x8, block = 4x4, slots = 2> -> tensor<3xi32>, tensor<2xi32>, tensor<2xi32>
      %e = tensor.empty() : tensor<2x4x4xf32>
      %sorted = linalg.generic {indexing_maps = [#block, #id],
                                iterator_types = ["parallel", "parallel", "parallel"]}
          ins(%slot : tensor<2xi32>) outs(%e : tensor<2x4x4xf32>) {
      ^bb0(%s: i32, %out: f32):
        %c0 = arith.constant 0 : i32
        %c1 = arith.constant 1 : i32
        %0 = arith.maxsi %s, %c0 : i32
        %1 = arith.minsi %0, %c1 : i32
        %2 = arith.index_cast %1 : i32 to index
        %3 = linalg.index 1 : index
        %4 = linalg.index 2 : index
        %5 = tensor.extract %v[%2, %3, %4] : tensor<2x4x4xf32>
        linalg.yield %5 : f32
      } -> tensor<2x4x4xf32>
      %flat = tensor.collapse_shape %sorted [[0, 1, 2]] : tensor<2x4x4xf32> into tensor<32xf32>
      %w = sparse_tensor.assemble (%ptr, %idx), %flat
          : (tensor<3xi32>, tensor<2xi32>), tensor<32xf32> to tensor<8x8xf32, #bsr>
      %y = linalg.matmul ins(%w, %x : tensor<8x8xf32, #bsr>, tensor<8x8xf32>)
                         outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %y : tensor<8x8xf32>
    }
    ```
  }];
  let statistics = [
    Statistic<"numAssembled", "num-assembled", "Number of sparse tensors made">,
  ];
  let dependentDialects = [
    "arith::ArithDialect", "bsr::BSRDialect", "linalg::LinalgDialect",
    "sparse_tensor::SparseTensorDialect", "tensor::TensorDialect",
  ];
}

def BSRFromSparseTensor : Pass<"bsr-from-sparse-tensor", "func::FuncOp"> {
  let summary = "Make patterns and values of sparse tensors";
  let description = [{
    The way in from MLIR's own sparse pipelines: an argument whose type is a sparse
    tensor in blocks (the encodings of `bsr-to-sparse-tensor`, of any width of
    positions and coordinates) becomes its values and a pattern, like an argument
    that `bsr-bind` binds. How many blocks may be stored is no part of an encoding:
    the option `density` says it.

    Before, and after `--bsr-from-sparse-tensor=density=0.5`:

    ```mlir
    #bsr = #sparse_tensor.encoding<{map = (i, j) -> (i floordiv 4 : dense, j floordiv 4 : compressed,
                                                     i mod 4 : dense, j mod 4 : dense)}>
    func.func @f(%w: tensor<8x8xf32, #bsr>, %x: tensor<8x8xf32>, %z: tensor<8x8xf32>) -> tensor<8x8xf32> {
      %y = linalg.matmul ins(%w, %x : tensor<8x8xf32, #bsr>, tensor<8x8xf32>)
                         outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %y : tensor<8x8xf32>
    }
    ```

    ```mlir
    func.func @f(%v: tensor<2x4x4xf32>, %x: tensor<8x8xf32>, %z: tensor<8x8xf32>,
                 %p: !bsr.pattern<8x8, block = 4x4, slots = 2>) -> tensor<8x8xf32> {
      %w = bsr.to_dense %p, %v
          : !bsr.pattern<8x8, block = 4x4, slots = 2>, tensor<2x4x4xf32> -> tensor<8x8xf32>
      %y = linalg.matmul ins(%w, %x : tensor<8x8xf32>, tensor<8x8xf32>)
                         outs(%z : tensor<8x8xf32>) -> tensor<8x8xf32>
      return %y : tensor<8x8xf32>
    }
    ```
  }];
  let options = [
    Option<"density", "density", "double", /*default=*/"1",
           "The share of blocks that may be stored, in (0, 1]">,
  ];
  let statistics = [
    Statistic<"numReplaced", "num-replaced", "Number of sparse arguments">,
  ];
  let dependentDialects = ["bsr::BSRDialect"];
}

#endif // BSR_TRANSFORMS_SPARSETENSORS_PASSES
