// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers that a step carries of each block of a weight.

#ifndef LIB_TRANSFORMS_SPARSITY_BLOCKCOUNTS_H
#define LIB_TRANSFORMS_SPARSITY_BLOCKCOUNTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {

/// The weights whose patterns updates change: arguments of a step with the name
/// of their pattern, which the step trains.
SmallVector<BlockArgument> getDynamicWeights(func::FuncOp step);

/// The value that the carried argument `state` has after the step.
Value getNextValue(func::FuncOp step, BlockArgument state);

/// The type of a number of each block of `weight`, `[slots, 1, 1]`.
RankedTensorType getCountType(BlockArgument weight, Type element);

/// Adds to `step` an argument of role `count` in f32, called `name` "of" the
/// weight, that the runtime sets by `init`.
BlockArgument addCount(func::FuncOp step, BlockArgument weight,
                       const Twine &name, StringRef init);

/// Lets `step` carry `count`: `next` is its value after the step.
void carryCount(func::FuncOp step, BlockArgument count, Value next);

} // namespace mlir::bsr

#endif
