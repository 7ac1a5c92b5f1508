// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations on tensors of which each process of a run has a share.

#ifndef BSR_DIALECT_SHARDS_H
#define BSR_DIALECT_SHARDS_H

#include "bsr/Dialect/BSR.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRShards.h.inc"

namespace mlir::bsr {

/// The dimension along which a tensor of `shape` is cut in shards, the
/// outermost of more than one entry: a shard lies in one piece. None of one
/// entry.
std::optional<unsigned> getShardDim(ArrayRef<int64_t> shape);

/// The shape of a shard of one of `processes` of a tensor of `shape`, which has
/// a `getShardDim`.
SmallVector<int64_t> getShardShape(ArrayRef<int64_t> shape, int64_t processes);

/// The shape of which argument `arg` of `step`, of role `state`, is a shard;
/// null if it is none.
DenseI64ArrayAttr getWholeShape(FunctionOpInterface step, unsigned arg);

} // namespace mlir::bsr

#endif // BSR_DIALECT_SHARDS_H
