// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What computes the pieces of concatenations.

#ifndef BSR_LIB_TRANSFORMS_CLUSTERS_PIECES_H
#define BSR_LIB_TRANSFORMS_CLUSTERS_PIECES_H

#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// Makes every piece of a concatenation in `cluster` the result of an operation
/// that can write it where it belongs: a copy where there is none.
void addPieceProducers(ClusterOp cluster);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_CLUSTERS_PIECES_H
