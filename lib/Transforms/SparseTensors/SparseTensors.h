// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How MLIR's sparse tensors write what patterns and values are here.

#ifndef BSR_TRANSFORMS_SPARSETENSORS_SPARSETENSORS_H
#define BSR_TRANSFORMS_SPARSETENSORS_SPARSETENSORS_H

#include "mlir/Dialect/SparseTensor/IR/SparseTensor.h"

namespace mlir::bsr {

/// The sparse type of a matrix of type `dense` in blocks: block rows dense,
/// block columns compressed, blocks dense; compressed rows if blocks are
/// elements. Positions and coordinates are 32 bits wide.
RankedTensorType getSparseType(RankedTensorType dense, int64_t blockRows,
                               int64_t blockCols);

/// The block of a matrix of type `type`, if that is what `getSparseType` makes
/// of one, whatever the widths of positions and coordinates.
std::optional<std::pair<int64_t, int64_t>> getBlock(Type type);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_SPARSETENSORS_SPARSETENSORS_H
