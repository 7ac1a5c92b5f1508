// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What in the space of a weight others see.

#ifndef BSR_GRADIENTS_ACTIVATIONS_H
#define BSR_GRADIENTS_ACTIVATIONS_H

#include "bsr/Analysis/StepData.h"
#include "bsr/Gradients/Owners.h"

namespace mlir::bsr {

/// True if what `use` computes outside of space `number` comes back to the next
/// values of its weight with data on the way: it goes back through what the
/// weight is added to, where an optimizer's products have state alone.
bool comesBack(unsigned number, OpOperand &use, const Spaces &spaces,
               const StepData &data, Owners &owners);

/// The values of space `number` that are gradients of activations too: other
/// parameters' are computed from them, and from what does not depend on them,
/// or, where the weight `isAdded` to activations, its own are, from data.
DenseSet<Value> getActivations(unsigned number, const Spaces &spaces,
                               const StepData &data, Owners &owners,
                               bool isAdded);

/// The values of space `number` that something outside of it sees.
DenseSet<Value> getOpen(unsigned number, const Spaces &spaces);

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_ACTIVATIONS_H
