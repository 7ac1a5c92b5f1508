// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What in the space of a weight others see.

#ifndef BSR_ANALYSIS_ACTIVATIONS_H
#define BSR_ANALYSIS_ACTIVATIONS_H

#include "bsr/Analysis/Owners.h"

namespace mlir::bsr {

/// The values of space `number` that are gradients of activations too: other
/// parameters' are computed from them, and from what does not depend on them.
/// So is that of a matrix that is added to the activations.
DenseSet<Value> getActivations(unsigned number, const Spaces &spaces,
                               Owners &owners);

/// The values of space `number` that something outside of it sees.
DenseSet<Value> getOpen(unsigned number, const Spaces &spaces);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_ACTIVATIONS_H
