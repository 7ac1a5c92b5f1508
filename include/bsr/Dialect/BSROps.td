// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations: formula, meaning, example, constraints.

#ifndef BSR_DIALECT_BSROPS
#define BSR_DIALECT_BSROPS

include "bsr/Dialect/BSRInterfaces.td"
include "bsr/Dialect/BSRPlans.td"
include "bsr/Dialect/BSRTargets.td"
include "bsr/Dialect/BSRTypes.td"
include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class BSR_Op<string mnemonic, list<Trait> traits = []>
    : Op<BSR_Dialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// Patterns
//===----------------------------------------------------------------------===//

def BSR_ConstantPatternOp : BSR_Op<"constant_pattern", [Pure]> {
  let summary = "Pattern known at compile time";
  let description = [{
    A static pattern, in row order: block row `i` stores the block columns
    `col_idx[row_ptr[i]]` to `col_idx[row_ptr[i + 1] - 1]`, and the slots are
    numbered in the same order. The same operations work on it as on a pattern
    that arrives at run time.

    Example:

    ```mlir
    %p = bsr.constant_pattern row_ptr = [0, 1, 3] col_idx = [1, 0, 1]
        : !bsr.pattern<32x32, block = 16x16, slots = 3>
    ```
  }];
  let arguments = (ins DenseI32ArrayAttr:$rowPtr, DenseI32ArrayAttr:$colIdx);
  let results = (outs BSR_Pattern:$pattern);
  let assemblyFormat = [{
    `row_ptr` `=` $rowPtr `col_idx` `=` $colIdx attr-dict `:` qualified(type($pattern))
  }];
  let hasVerifier = 1;
}

def BSR_IndicesOp : BSR_Op<"indices", [Pure]> {
  let summary = "Index arrays of a pattern";
  let description = [{
    The row view of a pattern (`ptr = row_ptr`, `idx = col_idx`), or, with
    `transpose`, its column view (`ptr = col_ptr`, `idx = row_idx`). Block row `i`
    stores the blocks `idx[k]` in the slots `slot[k]`, for `k` from `ptr[i]` to
    `ptr[i + 1] - 1`; entries of `idx` and `slot` past `ptr`'s last are unspecified.
    The arrays are tensors, or buffers once bufferized.

    Example:

    ```mlir
    %ptr, %idx, %slot = bsr.indices %p
        : !bsr.pattern<32x64, block = 16x16, slots = 3>
        -> tensor<3xi32>, tensor<3xi32>, tensor<3xi32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, UnitAttr:$transpose);
  let results = (outs BSR_IndexArray:$ptr, BSR_IndexArray:$idx,
                      BSR_IndexArray:$slot);
  let assemblyFormat = [{
    $pattern (`transpose` $transpose^)? attr-dict
    `:` qualified(type($pattern)) `->` type($ptr) `,` type($idx) `,` type($slot)
  }];
  let builders = [
    /// The arrays as tensors.
    OpBuilder<(ins "Value":$pattern, "View":$view)>,
  ];
  let extraClassDeclaration = [{
    View getView() { return ::mlir::bsr::getView(getTranspose()); }
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def BSR_LiveOp : BSR_Op<"live",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getLineView"]>]> {
  let summary = "Which slots hold a block";
  let description = [{
    `live[s]` is true if slot `s` holds a block of the pattern. Slots that no
    block uses hold unspecified values: a reduction over values must leave them out.

    Example:

    ```mlir
    %live = bsr.live %p
        : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<3xi1>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern);
  let results = (outs 1DTensorOf<[I1]>:$live);
  let assemblyFormat = "$pattern attr-dict `:` qualified(type($pattern)) `->` type($live)";
  let hasVerifier = 1;
}

def BSR_NumAbsentOp : BSR_Op<"num_absent",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getLineView"]>]> {
  let summary = "Number of matrix entries outside the pattern";
  let description = [{
    The number of entries (not blocks) of the matrix that are not stored, as a
    float: what a sum over the dense matrix multiplies a background with.

    Example:

    ```mlir
    %n = bsr.num_absent %p
        : !bsr.pattern<32x64, block = 16x16, slots = 3> -> tensor<f32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern);
  let results = (outs 0DTensorOf<[F16, BF16, F32, F64]>:$count);
  let assemblyFormat = "$pattern attr-dict `:` qualified(type($pattern)) `->` type($count)";
}

//===----------------------------------------------------------------------===//
// Recomputation
//===----------------------------------------------------------------------===//

def BSR_BarrierOp : BSR_Op<"barrier", [Pure, SameOperandsAndResultType]> {
  let summary = "Optimization barrier: hides that the result equals the operand";
  let description = [{
    `output` is `input`, but nothing before `bsr-drop-barriers` knows that: what is
    computed from it is not merged with what is computed from `input`. It stands in
    the body of an element-wise operation around what a program computes again
    (`jax.checkpoint`) from what it kept, and obeys every rule of such operations.

    Example:

    ```mlir
    %again = bsr.barrier %kept : f32
    ```
  }];
  let arguments = (ins AnyTypeOf<[AnySignlessInteger, AnyFloat]>:$input);
  let results = (outs AnyTypeOf<[AnySignlessInteger, AnyFloat]>:$output);
  let assemblyFormat = "$input attr-dict `:` type($input)";
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Differentiation
//===----------------------------------------------------------------------===//

def BSR_GradientOp : BSR_Op<"gradient", [Pure,
    AllTypesMatch<["gradient", "output"]>]> {
  let summary = "Marks the gradient of a function at a value";
  let description = [{
    `output` is `gradient`. A front end that differentiates a program knows which of its
    values are gradients, or tangents, and at what; this operation records that. It stands in
    the body of an element-wise operation with identity maps on the gradient and the
    value. `bsr-bind` masks what is a gradient at a weight in blocks, or at an
    entry-wise function of one, and drops the operation. Of weights without it,
    `bsr-bind` looks for gradients among the products.

    Example:

    ```mlir
    %dw = linalg.generic {indexing_maps = [#id, #id, #id],
                          iterator_types = ["parallel", "parallel"]}
        ins(%product, %w : tensor<32x64xf32>, tensor<32x64xf32>)
        outs(%empty : tensor<32x64xf32>) {
      ^bb0(%g: f32, %at: f32, %out: f32):
        %r = bsr.gradient %g at %at : f32, f32
        linalg.yield %r : f32
    } -> tensor<32x64xf32>
    ```
  }];
  let arguments = (ins AnyFloat:$gradient, AnyFloat:$at);
  let results = (outs AnyFloat:$output);
  let assemblyFormat =
      "$gradient `at` $at attr-dict `:` type($gradient) `,` type($at)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Between dense and sparse
//===----------------------------------------------------------------------===//

def BSR_ToDenseOp : BSR_Op<"to_dense",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getLineView"]>]> {
  let summary = "Dense matrix of stored blocks";
  let description = [{
    `dense[i, j]` is the stored entry where `pattern` stores the block of `(i,
    j)`, and `background` (0 if absent) elsewhere; with `transpose`, `dense` is the
    transposed matrix. This is the reference form, which no target computes fast: `bsr-bind`
    writes it and `bsr-propagate` removes it.

    Example:

    ```mlir
    %d = bsr.to_dense %p, %v
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>
        -> tensor<32x64xf32>
    %t = bsr.to_dense %p, %v background %c transpose
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
          tensor<f32> -> tensor<64x32xf32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, BSR_Values:$values,
                       Optional<0DTensorOf<[AnyType]>>:$background,
                       UnitAttr:$transpose);
  let results = (outs BSR_Matrix:$dense);
  let assemblyFormat = [{
    $pattern `,` $values (`background` $background^)? (`transpose` $transpose^)?
    attr-dict `:` qualified(type($pattern)) `,` type($values) (`,` type($background)^)?
    `->` type($dense)
  }];
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

def BSR_SampleOp : BSR_Op<"sample",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getLineView"]>]> {
  let summary = "Stored blocks of a dense matrix";
  let description = [{
    The blocks of `dense` (of its transpose, with `transpose`) that the pattern
    stores, in their slots. Slots that hold no block get unspecified values.

    Example:

    ```mlir
    %v = bsr.sample %p, %d
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32x64xf32>
        -> tensor<3x16x16xf32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, BSR_Matrix:$dense,
                       UnitAttr:$transpose);
  let results = (outs BSR_Values:$values);
  let assemblyFormat = [{
    $pattern `,` $dense (`transpose` $transpose^)? attr-dict
    `:` qualified(type($pattern)) `,` type($dense) `->` type($values)
  }];
  let hasVerifier = 1;
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Vectors along a matrix
//===----------------------------------------------------------------------===//

def BSR_SampleVecOp : BSR_Op<"sample_vec",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getLineView"]>]> {
  let summary = "Entries of a vector along the rows or columns of stored blocks";
  let description = [{
    What an element-wise operation on stored blocks reads of a vector that is
    broadcast over the matrix: `values[s, r, 0] = vec[i]`, where row `r` of the block
    in slot `s` is row `i` of the matrix, or with `dim = 1`
    `values[s, 0, c] = vec[j]`, where column `c` is column `j`. Slots that hold no
    block get unspecified values. It stands for `bsr.sample` of the broadcast vector
    and takes a block's row or column of memory instead of a block. Vectors may be
    batched: leading dimensions of `vec` are those of `values`.

    Example:

    ```mlir
    %v = bsr.sample_vec %p, %rows dim = 0
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<32xf32>
        -> tensor<3x16x1xf32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, BSR_BatchedVector:$vec, I64Attr:$dim);
  let results = (outs BSR_BatchedValues:$values);
  let assemblyFormat = [{
    $pattern `,` $vec `dim` `=` $dim attr-dict
    `:` qualified(type($pattern)) `,` type($vec) `->` type($values)
  }];
  let extraClassDeclaration = [{
    /// The number of leading dimensions that the vectors are batched along.
    int64_t getNumBatchDims() { return getVec().getType().getRank() - 1; }
  }];
  let hasVerifier = 1;
}

def BSR_ReduceVecOp : BSR_Op<"reduce_vec",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getLineView"]>]> {
  let summary = "Sums or maxima of the rows or columns of a matrix of stored blocks";
  let description = [{
    `vec[i] = sum_j dense[i, j]`, or with `dim = 1` `vec[j] = sum_i dense[i, j]`, where
    `dense` is the matrix of `pattern` and `values`, and `background` (0 if absent)
    where no block is stored: `dim` is the dimension that is kept. Only stored
    blocks are read, and slots that hold no block do not count; a row without absent
    entries adds no background, not even 0 times one that is NaN. Sums are taken in
    f32 (f64 if the values are f64).

    With `max` it is the largest stored entry instead, NaN if one is, and negative
    infinity where no block is stored; there is no background then. Values may be
    batched: their leading dimensions are those of `vec`, and a pattern is that of
    all matrices.

    A softmax over the stored entries of each row is, of batched values as well, with
    `spread(u) = bsr.sample_vec %p, u dim = 0`,

        m = reduce_vec %p, v max dim = 0
        e = exp(v - spread(m))
        p = e / spread(reduce_vec %p, e dim = 0)

    What is not stored has probability 0. A row without stored entries has no place in
    `p`, so its sum of products with anything (`bsr.spmm`) is 0; that of the dense
    matrix with negative infinity where nothing is stored is NaN.

    Example:

    ```mlir
    %rows = bsr.reduce_vec %p, %v background %c dim = 0
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
          tensor<f32> -> tensor<32xf32>
    %cols = bsr.reduce_vec %p, %v dim = 1
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>
        -> tensor<64xf32>
    %tops = bsr.reduce_vec %p, %scores max dim = 0
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x4x3x16x16xf32>
        -> tensor<2x4x32xf32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, BSR_BatchedValues:$values,
                       Optional<0DTensorOf<[F16, BF16, F32, F64]>>:$background,
                       I64Attr:$dim, UnitAttr:$max);
  let results = (outs BSR_BatchedFloatVector:$vec);
  let assemblyFormat = [{
    $pattern `,` $values (`background` $background^)? (`max` $max^)? `dim` `=` $dim attr-dict
    `:` qualified(type($pattern)) `,` type($values) (`,` type($background)^)?
    `->` type($vec)
  }];
  let extraClassDeclaration = [{
    /// The number of leading dimensions that the values are batched along.
    int64_t getNumBatchDims() { return getValues().getType().getRank() - 3; }
  }];
  let hasVerifier = 1;
  let hasCanonicalizeMethod = 1;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

def BSR_SpMMOp : BSR_Op<"spmm",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getFlops", "getLineView"]>,
     DeclareOpInterfaceMethods<BSR_ActivationsOpInterface, ["getReadActivations", "getMadeActivations"]>]> {
  let summary = "Product of activations and a block-sparse matrix";
  let description = [{
    `y[t, c] = sum_r x[t, r] W[r, c]`, or with `transpose`
    `y[t, r] = sum_c x[t, c] W[r, c]`, where `W` is the matrix of `pattern` and
    `values`, and `t` stands for all dimensions of `x` but its feature dimension.
    Only stored blocks are read. This is the forward product of a sparse layer;
    its input gradient is the same operation with the other `transpose`, its weight
    gradient a `bsr.sddmm`. A `bias` is added to every row of `y`: sums start from
    it.

    `feature_dim` is the dimension of `x` and `y` that carries features: the last
    one as frameworks write it, the one before the last once lanes are tokens.
    Element types of values, `x` and `y` may differ, but f16 and bf16 do not meet in
    one product; sums are taken in f32 (f64 if any of them is f64) and rounded once.

    Values may be batched, `batch... x slots x rows x columns`: a matrix for each point of
    the batch (sequences, heads), all of one pattern. `x` and `y` have the same leading
    dimensions, and for each point of them the product is one of its own. Their layout is
    the program's: vectors are used if a dimension of tokens comes last. (On GPUs, plain
    kernels compute batched products.)

    Example:

    ```mlir
    %y = bsr.spmm %p, %v, %x feature_dim = 2
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
          tensor<8x128x32xf32> -> tensor<8x128x64xf32>
    %dx = bsr.spmm %p, %v, %dy transpose feature_dim = 1
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
          tensor<8x64x128xf32> -> tensor<8x32x128xf32>
    %z = bsr.spmm %p, %v, %x bias %b feature_dim = 2
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<3x16x16xf32>,
          tensor<8x128x32xf32>, tensor<64xf32> -> tensor<8x128x64xf32>
    %o = bsr.spmm %p, %probabilities, %keys transpose feature_dim = 2
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x4x3x16x16xf32>,
          tensor<2x4x64x8xf32> -> tensor<2x4x32x8xf32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, BSR_BatchedValues:$values,
                       BSR_Activations:$x, Optional<BSR_Activations>:$bias,
                       UnitAttr:$transpose, I64Attr:$featureDim);
  let results = (outs BSR_Activations:$y);
  let assemblyFormat = [{
    $pattern `,` $values `,` $x (`bias` $bias^)? (`transpose` $transpose^)?
    `feature_dim` `=` $featureDim attr-dict
    `:` qualified(type($pattern)) `,` type($values) `,` type($x)
        (`,` type($bias)^)? `->` type($y)
  }];
  let extraClassDeclaration = [{
    /// The number of leading dimensions that the values are batched along.
    int64_t getNumBatchDims() { return getValues().getType().getRank() - 3; }
  }];
  let hasVerifier = 1;
}

def BSR_SDDMMOp : BSR_Op<"sddmm",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getFlops", "getLineView"]>,
     DeclareOpInterfaceMethods<BSR_ActivationsOpInterface, ["getReadActivations"]>]> {
  let summary = "Stored blocks of a product of activations";
  let description = [{
    `values[r, c] = sum_t a[t, r] b[t, c]` for the stored blocks only: the weight
    gradient of a sparse layer. `t` stands for all dimensions but the feature
    dimension, which is the same in `a` and `b`. Slots that hold no block get
    unspecified values. Sums are taken in f32 (f64 if an operand is f64).

    Values may be batched as those of `bsr.spmm` are: for each point of the leading
    dimensions of `values`, which `a` and `b` have too, the product is one of its own.
    So the scores of attention are, for queries and keys of `batch... x tokens x
    features`.

    Example:

    ```mlir
    %dw = bsr.sddmm %p, %a, %b feature_dim = 2
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<8x128x32xf32>,
          tensor<8x128x64xf32> -> tensor<3x16x16xf32>
    %scores = bsr.sddmm %p, %queries, %keys feature_dim = 2
        : !bsr.pattern<32x64, block = 16x16, slots = 3>, tensor<2x4x32x8xf32>,
          tensor<2x4x64x8xf32> -> tensor<2x4x3x16x16xf32>
    ```
  }];
  let arguments = (ins BSR_Pattern:$pattern, BSR_Activations:$a,
                       BSR_Activations:$b, I64Attr:$featureDim);
  let results = (outs BSR_BatchedValues:$values);
  let assemblyFormat = [{
    $pattern `,` $a `,` $b `feature_dim` `=` $featureDim attr-dict
    `:` qualified(type($pattern)) `,` type($a) `,` type($b) `->` type($values)
  }];
  let extraClassDeclaration = [{
    /// The number of leading dimensions that the values are batched along.
    int64_t getNumBatchDims() { return getValues().getType().getRank() - 3; }
  }];
  let hasVerifier = 1;
}

def BSR_BlockScoresOp : BSR_Op<"block_scores",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind", "getFlops"]>,
     DeclareOpInterfaceMethods<BSR_ActivationsOpInterface, ["getReadActivations"]>]> {
  let summary = "Norms of all blocks of a product of activations";
  let description = [{
    `scores[i, j]` is a norm of block (i, j) of the matrix
    `G[r, c] = sum_t a[t, r] b[t, c]`, the dense gradient of a weight: what RigL
    (Evci et al., "Rigging the lottery", ICML 2020) regrows blocks by. `G` is
    computed tile by tile and never stored. The shape of a block follows from the
    features of `a` and `b` and the shape of `scores`, which divides them. `t`
    stands for all dimensions but the feature dimension, which is the same in `a`
    and `b`. Sums are taken in f32 (f64 if an operand is f64).

    Norms: `l1`, the sum of absolute values; `l2`, the root of the sum of squares;
    `linf`, the largest absolute value. NaN wins in all three.

    Example:

    ```mlir
    %s = bsr.block_scores l1 %a, %b feature_dim = 2
        : tensor<8x128x32xf32>, tensor<8x128x64xf32> -> tensor<2x4xf32>
    ```
  }];
  let arguments = (ins BSR_Norm:$norm, BSR_Activations:$a, BSR_Activations:$b,
                       I64Attr:$featureDim);
  let results = (outs BSR_Scores:$scores);
  let assemblyFormat = [{
    $norm $a `,` $b `feature_dim` `=` $featureDim attr-dict
    `:` type($a) `,` type($b) `->` type($scores)
  }];
  let extraClassDeclaration = [{
    int64_t getBlockRows() {
      return getA().getType().getDimSize(getFeatureDim()) /
             getScores().getType().getDimSize(0);
    }
    int64_t getBlockCols() {
      return getB().getType().getDimSize(getFeatureDim()) /
             getScores().getType().getDimSize(1);
    }
  }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Processes
//===----------------------------------------------------------------------===//

def BSR_AllReduceOp : BSR_Op<"all_reduce",
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Mean over the processes of a run";
  let description = [{
    `result[i] = (data_0[i] + data_1[i] + ... + data_{n-1}[i]) / n`, where `data_r` is
    `data` on rank `r` of the `n` processes that run the step. Sums are taken in the
    order of the ranks, of 16-bit floats in f32, and rounded once; with one process
    the result is `data`. All processes run the same operations of this kind in
    the same order. `data` of a weight that is marked are values, which are a
    density's share of the matrix: patterns are the same on all processes.

    On a buffer, it has no result, and replaces what is there: once bufferized, it is in place.
    `bsr-start-reductions` makes most of them `bsr.start_reduce` and `bsr.wait_reduce`;
    `bsr-lower-reductions` makes what is left a call of the communicator in the context of
    the step (`bsr/step.h`).

    Example:

    ```mlir
    %mean = bsr.all_reduce %dw : tensor<3x16x16xf32> -> tensor<3x16x16xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[AnyStaticShapeTensor, AnyStaticShapeMemRef]>:$data);
  let results = (outs Optional<AnyStaticShapeTensor>:$result);
  let assemblyFormat = [{
    $data attr-dict `:` type($data) (`->` type($result)^)?
  }];
  let hasVerifier = 1;
}

def BSR_StartReduceOp : BSR_Op<"start_reduce"> {
  let summary = "Start means over the processes of a run";
  let description = [{
    Starts what `bsr.all_reduce` does with each buffer of `data`, a bucket, and goes on.
    The bucket is sent as one message. Until a `bsr.wait_reduce` of `ticket`, nothing may touch
    the buffers. All processes start the same buckets in the same order.

    Example:

    ```mlir
    %ticket = bsr.start_reduce %dw, %db : memref<3x16x16xf32>, memref<16xf32>
    ```
  }];
  let arguments = (ins Arg<Variadic<AnyStaticShapeMemRef>, "", [MemRead, MemWrite]>:$data);
  let results = (outs I64:$ticket);
  let assemblyFormat = "$data attr-dict `:` type($data)";
  let hasVerifier = 1;
}

def BSR_WaitReduceOp : BSR_Op<"wait_reduce"> {
  let summary = "Wait for means over the processes of a run";
  let description = [{
    Waits until each buffer of `data` is the mean that the `bsr.start_reduce` of `ticket` started:
    it has the same buffers. Each `ticket` is waited for once.

    Example:

    ```mlir
    bsr.wait_reduce %ticket, %dw, %db : memref<3x16x16xf32>, memref<16xf32>
    ```
  }];
  let arguments = (ins I64:$ticket,
    Arg<Variadic<AnyStaticShapeMemRef>, "", [MemRead, MemWrite]>:$data);
  let assemblyFormat = "$ticket `,` $data attr-dict `:` type($data)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

def BSR_ClusterOp : BSR_Op<"cluster",
    [FunctionOpInterface, IsolatedFromAbove, SingleBlock]> {
  let summary = "Operations that one kernel computes";
  let description = [{
    A function on tensors of one block, which `bsr.launch` calls: what a target
    computes together. Arguments are tensors of static shape, patterns and indices; an
    index says where, in a tensor, the slice begins that the cluster reads. `bsr.yield`
    ends it with the results, each of which an operation of the cluster computes.
    `bsr-cluster` makes clusters of a step; `bsr-emit` makes kernels of them for the
    target: functions on buffers.

    `plan` says how a kernel goes through the operations, and `bsr.root` on each
    what of it concerns that operation. `bsr-cluster` plans what it makes, and
    `bsr-plan-clusters` plans clusters that have no plan. It is verified.

    Example:

    ```mlir
    bsr.cluster private @sum(%x: tensor<4xf32>, %init: tensor<f32>) -> tensor<f32> {
      %sum = linalg.reduce ins(%x : tensor<4xf32>) outs(%init : tensor<f32>) dimensions = [0]
        (%a: f32, %b: f32) {
          %c = arith.addf %a, %b : f32
          linalg.yield %c : f32
        }
      bsr.yield %sum : tensor<f32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypeAttrOf<FunctionType>:$function_type,
                       OptionalAttr<StrAttr>:$sym_visibility,
                       OptionalAttr<DictArrayAttr>:$arg_attrs,
                       OptionalAttr<DictArrayAttr>:$res_attrs,
                       OptionalAttr<BSR_PlanAttr>:$plan);
  let regions = (region SizedRegion<1>:$body);
  let builders = [
    /// A private cluster with an entry block.
    OpBuilder<(ins "StringRef":$name, "FunctionType":$type)>,
  ];
  let skipDefaultBuilders = 1;
  let extraClassDeclaration = [{
    ArrayRef<Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ArrayRef<Type> getResultTypes() { return getFunctionType().getResults(); }
    /// A cluster has a body.
    Region *getCallableRegion() { return &getBody(); }
    /// The operands of the terminator.
    OperandRange getYielded() { return getBody().front().getTerminator()->getOperands(); }
    /// Makes `values` the results.
    void setYielded(ValueRange values);
  }];
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
}

def BSR_YieldOp : BSR_Op<"yield",
    [Pure, Terminator, ReturnLike, HasParent<"ClusterOp">]> {
  let summary = "Results of a cluster";
  let description = [{
    Ends a `bsr.cluster`.

    Example:

    ```mlir
    bsr.yield %sum : tensor<f32>
    ```
  }];
  let arguments = (ins Variadic<BSR_StaticTensor>:$results);
  let assemblyFormat = "$results attr-dict `:` type($results)";
}

def BSR_LaunchOp : BSR_Op<"launch",
    [Pure, AttrSizedOperandSegments, DestinationStyleOpInterface,
     DeclareOpInterfaceMethods<SymbolUserOpInterface>,
     DeclareOpInterfaceMethods<BufferizableOpInterface,
       ["bufferizesToMemoryRead", "bufferizesToMemoryWrite",
        "bufferizesToElementwiseAccess", "getAliasingValues", "bufferize"]>]> {
  let summary = "Call of a kernel on tensors";
  let description = [{
    Runs a cluster, which takes the inputs and yields the results, on tensors.
    `bsr-emit` turns the cluster into a kernel: a function on buffers (memrefs of
    static shape and identity layout) that takes the buffers of `inputs`, then those of
    `inits`, and returns nothing. The kernel writes every element of every init and never reads
    one: what an init held does not matter, its buffer does. Bufferization makes
    the operation a `func.call`.

    `in_place` lists the inputs of which the kernel reads an element, if at all,
    before it writes the same element of any init: their buffers may be those of
    inits. This is what lets an optimizer write the new weight over the old one.

    Example:

    ```mlir
    %new = bsr.launch @decay ins(%w, %lr : tensor<8x4xf32>, tensor<f32>)
        outs(%init : tensor<8x4xf32>) in_place = [0] -> tensor<8x4xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$kernel,
                       Variadic<BSR_LaunchInput>:$inputs,
                       Variadic<BSR_StaticTensor>:$inits,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$inPlace);
  let results = (outs Variadic<BSR_StaticTensor>:$results);
  let assemblyFormat = [{
    $kernel (`ins` `(` $inputs^ `:` type($inputs) `)`)?
    `outs` `(` $inits `:` type($inits) `)` (`in_place` `=` $inPlace^)? attr-dict
    `->` type($results)
  }];
  let extraClassDeclaration = [{
    MutableOperandRange getDpsInitsMutable() { return getInitsMutable(); }
  }];
  let hasVerifier = 1;
}

def BSR_ScatterAddOp : BSR_Op<"scatter_add",
    [Pure, DeclareOpInterfaceMethods<BSR_KernelOpInterface, ["getWorkKind"]>,
     DeclareOpInterfaceMethods<BSR_ActivationsOpInterface, ["getReadActivations", "keepsTokenOrder"]>]> {
  let summary = "Sum of rows by index";
  let description = [{
    `rows[i, f] = sum of updates[t, f] over all t with indices[t] = i`: the
    gradient of an embedding look-up, the product with a one-hot matrix. `t` stands
    for all dimensions of `indices`, which are those of `updates` but its feature
    dimension. An index outside of `rows` adds nothing.

    Example:

    ```mlir
    %g = bsr.scatter_add %ids, %u feature_dim = 2
        : tensor<8x128xi32>, tensor<8x128x32xf32> -> tensor<100x32xf32>
    ```
  }];
  let arguments = (ins RankedTensorOf<[I32, I64]>:$indices,
                       BSR_Activations:$updates, I64Attr:$featureDim);
  let results = (outs BSR_Matrix:$rows);
  let assemblyFormat = [{
    $indices `,` $updates `feature_dim` `=` $featureDim attr-dict
    `:` type($indices) `,` type($updates) `->` type($rows)
  }];
  let hasVerifier = 1;
}

include "bsr/Dialect/BSRAttention.td"

#endif // BSR_DIALECT_BSROPS
