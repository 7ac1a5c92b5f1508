// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Look-ups of rows of a matrix by index, and their gradients.

#ifndef BSR_DIALECT_BSRROWS
#define BSR_DIALECT_BSRROWS

include "bsr/Dialect/BSROps.td"

def BSR_Indices
    : Type<And<[RankedTensorOf<[I32, I64]>.predicate, HasStaticShapePred]>,
           "tensor of i32 or i64 of static shape", "::mlir::RankedTensorType">;

def BSR_GatherRowsOp : BSR_Op<"gather_rows",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getLineView"]>,
     DeclareOpInterfaceMethods<BSR_ActivationsOpInterface,
       ["getReadActivations", "getMadeActivations", "keepsTokenOrder"]>]> {
  let summary = "Rows of a block-sparse matrix by index";
  let description = [{
    `rows[t, f] = W[indices[t], f]`, or with `transpose` `rows[t, f] = W[f, indices[t]]`,
    where `W` is the matrix of `pattern` and `values`: the look-up in a table of embeddings.
    `t` stands for all dimensions of `indices`, which are those of `rows` but its feature
    dimension. Only stored blocks are read; what is not stored is 0, and so is the row of an
    index outside of the matrix.

    Example:

    ```mlir
    %x = bsr.gather_rows %p, %v, %ids feature_dim = 2
        : !bsr.pattern<96x32, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
          tensor<8x128xi32> -> tensor<8x128x32xf32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, BSR_Values:$values,
                       BSR_Indices:$indices, UnitAttr:$transpose,
                       I64Attr:$featureDim);
  let results = (outs BSR_Activations:$rows);
  let assemblyFormat = [{
    $pattern `,` $values `,` $indices (`transpose` $transpose^)?
    `feature_dim` `=` $featureDim attr-dict
    `:` qualified(type($pattern)) `,` type($values) `,` type($indices) `->` type($rows)
  }];
  let hasVerifier = 1;
}

def BSR_ScatterRowsOp : BSR_Op<"scatter_rows",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getLineView"]>,
     DeclareOpInterfaceMethods<BSR_ActivationsOpInterface,
       ["getReadActivations", "keepsTokenOrder"]>]> {
  let summary = "Stored blocks of a sum of rows by index";
  let description = [{
    `values[i, f] = sum of updates[t, f] over all t with indices[t] = i` for the stored
    blocks only, or with `transpose` the entry `[f, i]`: the gradient of `bsr.gather_rows`,
    `bsr.sample` of `bsr.scatter_add`. `t` stands for all dimensions of `indices`, which are
    those of `updates` but its feature dimension. An index outside of the matrix adds
    nothing. Slots that hold no block get unspecified values. Sums are taken in the order of
    the tokens, in f32 (f64 if the updates are f64), and rounded once.

    Example:

    ```mlir
    %dw = bsr.scatter_rows %p, %ids, %u feature_dim = 2
        : !bsr.pattern<96x32, block = 16x16, slots = 3>, tensor<8x128xi32>,
          tensor<8x128x32xf32> -> tensor<3x16x16xf32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, BSR_Indices:$indices,
                       BSR_Activations:$updates, UnitAttr:$transpose,
                       I64Attr:$featureDim);
  let results = (outs BSR_Values:$values);
  let assemblyFormat = [{
    $pattern `,` $indices `,` $updates (`transpose` $transpose^)?
    `feature_dim` `=` $featureDim attr-dict
    `:` qualified(type($pattern)) `,` type($indices) `,` type($updates) `->` type($values)
  }];
  let extraClassDeclaration = [{
    /// The rows that indices choose from: those of the matrix, or its columns.
    int64_t getNumRows() {
      PatternType pattern = getPattern().getType();
      return getTranspose() ? pattern.getCols() : pattern.getRows();
    }
  }];
  let hasVerifier = 1;
}

def BSR_ScoreRowsOp : BSR_Op<"score_rows",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind"]>,
     DeclareOpInterfaceMethods<BSR_ActivationsOpInterface,
       ["getReadActivations", "keepsTokenOrder"]>]> {
  let summary = "Norms of all blocks of a sum of rows by index";
  let description = [{
    `scores[i, j]` is a norm of block (i, j) of the matrix
    `G[i, f] = sum of updates[t, f] over all t with indices[t] = i`, or with `transpose`
    of `G[f, i]`: `bsr.block_scores` for the gradient of a look-up, which is never stored.
    A block has `block_rows` rows and `block_cols` columns; these and the shape of `scores`
    are those of the matrix. An index outside of the matrix adds nothing. Sums are taken in
    f32 (f64 if the updates are f64).

    Example:

    ```mlir
    %s = bsr.score_rows l1 %ids, %u block = 16x16 feature_dim = 2
        : tensor<8x128xi32>, tensor<8x128x32xf32> -> tensor<6x2xf32>
    ```
  }];
  let arguments = (ins BSR_Norm:$norm, BSR_Indices:$indices, BSR_Activations:$updates,
                       I64Attr:$blockRows, I64Attr:$blockCols, UnitAttr:$transpose,
                       I64Attr:$featureDim);
  let results = (outs BSR_Scores:$scores);
  let assemblyFormat = [{
    $norm $indices `,` $updates `block` `=` custom<BlockShape>($blockRows, $blockCols)
    (`transpose` $transpose^)? `feature_dim` `=` $featureDim attr-dict
    `:` type($indices) `,` type($updates) `->` type($scores)
  }];
  let extraClassDeclaration = [{
    /// The rows that indices choose from: those of the matrix, or its columns.
    int64_t getNumRows() {
      return getTranspose()
                 ? getScores().getType().getDimSize(1) * getBlockCols()
                 : getScores().getType().getDimSize(0) * getBlockRows();
    }
  }];
  let hasVerifier = 1;
}

#endif // BSR_DIALECT_BSRROWS
