// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a step as a chain of parts.

#ifndef BSR_PARTITION_READPARTS_H
#define BSR_PARTITION_READPARTS_H

#include "bsr/Dialect/BSR.h"
#include "bsr/Partition/StepParts.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {

/// Reads `step`, as `bsr-propagate` leaves it, as a chain. Reports if it is
/// none: if it has no loss, if less than two of its operations are products
/// with weights, or if its data do not tell the number of samples.
///
/// The forward part is what the loss follows from. A part begins at a product,
/// gather or sum in it that reads a weight, in the order of the step. An
/// operation of the backward part belongs to the last part of whose parameters
/// its result reaches the next values, but not before one whose activations it
/// reads, nor behind those whose gradients it reads.
FailureOr<StepParts> readParts(func::FuncOp step);

/// The same, and where everything belongs.
FailureOr<StepParts> readParts(func::FuncOp step, StepPlaces &places);

} // namespace mlir::bsr

#endif // BSR_PARTITION_READPARTS_H
