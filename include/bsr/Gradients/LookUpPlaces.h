// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The places that look-ups read a table at.

#ifndef BSR_GRADIENTS_LOOKUPPLACES_H
#define BSR_GRADIENTS_LOOKUPPLACES_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// The integers by which `op` looks entries up, and what is made of these alone
/// as a matrix of ones at these places is. With each comes its dimension, of
/// `extent` entries, that the places are counted along, or -1 for integers.
SmallVector<std::pair<Value, int64_t>> findPlaces(linalg::LinalgOp op,
                                                  int64_t extent);

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_LOOKUPPLACES_H
