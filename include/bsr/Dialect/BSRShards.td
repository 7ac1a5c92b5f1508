// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors of which each process of a run has a share.

#ifndef BSR_DIALECT_BSRSHARDS
#define BSR_DIALECT_BSRSHARDS

include "bsr/Dialect/BSROps.td"

def BSR_ShardOp : BSR_Op<"shard", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "The shard of a tensor that belongs to this process";
  let description = [{
    Of `n` processes, rank `r` gets rows `first` to `first + size - 1` of `whole`, where a row is what the
    outermost dimension of more than one entry counts, `d` of them, `size = ceil(d / n)` and
    `first = min(r * size, d - size)`. All shards are of one size: the last ones overlap with others where `n` does not
    divide `d`. `bsr.unshard` is the inverse.

    Once bufferized, it has no result and writes to `buffer`. `bsr-shard-state` makes it,
    `bsr-lower-reductions` a call of the communicator.

    Example:

    ```mlir
    %mine = bsr.shard %w : tensor<5x16xf32> -> tensor<3x16xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[AnyStaticShapeTensor, AnyStaticShapeMemRef]>:$whole,
                       Optional<AnyStaticShapeMemRef>:$buffer);
  let results = (outs Optional<AnyStaticShapeTensor>:$result);
  let assemblyFormat = [{
    $whole (`into` $buffer^)? attr-dict `:` type($whole) (`,` type($buffer)^)? (`->` type($result)^)?
  }];
  let hasVerifier = 1;
}

def BSR_UnshardOp : BSR_Op<"unshard", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "The tensor of which each process has a shard";
  let description = [{
    The inverse of `bsr.shard`: each process gets the rows of all. Where shards overlap, their entries are
    the same. It is written to `whole`, whose entries do not matter. Once bufferized, it has no result. All
    processes run the same operations of this kind in the same order.

    Example:

    ```mlir
    %all = bsr.unshard %mine into %w : tensor<3x16xf32>, tensor<5x16xf32> -> tensor<5x16xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[AnyStaticShapeTensor, AnyStaticShapeMemRef]>:$shard,
                       AnyTypeOf<[AnyStaticShapeTensor, AnyStaticShapeMemRef]>:$whole);
  let results = (outs Optional<AnyStaticShapeTensor>:$result);
  let assemblyFormat = [{
    $shard `into` $whole attr-dict `:` type($shard) `,` type($whole) (`->` type($result)^)?
  }];
  let hasVerifier = 1;
}

#endif // BSR_DIALECT_BSRSHARDS
