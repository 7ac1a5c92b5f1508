// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes from one stage of a step to another.

#ifndef BSR_DIALECT_BSRTRANSFERS
#define BSR_DIALECT_BSRTRANSFERS

include "bsr/Dialect/BSROps.td"

def BSR_SendOp : BSR_Op<"send", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Send a tensor to another process of a run";
  let description = [{
    Sends `data` to rank `to`, which runs the `bsr.receive` that belongs to it at
    the same place of the order of all transfers: a send and a receive of one
    step stay in their order. `bsr-split-stages` makes both, `bsr-lower-transfers` calls of the
    communicator.

    Example:

    ```mlir
    bsr.send %x to 1 : tensor<4x16xf32>
    ```
  }];
  let arguments = (ins AnyTypeOf<[AnyStaticShapeTensor, AnyStaticShapeMemRef]>:$data,
                       I64Attr:$to);
  let assemblyFormat = "$data `to` $to attr-dict `:` type($data)";
  let hasVerifier = 1;
}

def BSR_ReceiveOp : BSR_Op<"receive", [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "Receive a tensor from another process of a run";
  let description = [{
    What rank `from` sends; see `bsr.send`. Once bufferized, it has no result and
    writes to `buffer`. What is received `once` is the same for all micro-batches of a step, such as a
    norm of means; else each has its own.

    Example:

    ```mlir
    %y = bsr.receive from 0 -> tensor<4x16xf32>
    ```
  }];
  let arguments = (ins Optional<AnyStaticShapeMemRef>:$buffer, I64Attr:$from,
                       UnitAttr:$once);
  let results = (outs Optional<AnyStaticShapeTensor>:$result);
  let assemblyFormat = [{
    `from` $from (`once` $once^)? (`into` $buffer^ `:` type($buffer))? attr-dict (`->` type($result)^)?
  }];
  let hasVerifier = 1;
}

#endif // BSR_DIALECT_BSRTRANSFERS
