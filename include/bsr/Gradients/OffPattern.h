// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What values are off the pattern of a weight.

#ifndef BSR_GRADIENTS_OFFPATTERN_H
#define BSR_GRADIENTS_OFFPATTERN_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// What a value is off the pattern, if the weight's matrices are zero there:
/// zero, the same whatever the data, or made of data.
enum class Off { Zero, Constant, Data };
using Offs = DenseMap<Value, Off>;

/// What `value` is. What `offs` does not have is `Constant`, unless it is
/// zeros.
Off getOff(const Offs &offs, Value value);

/// What a result of element-wise `op` is, of which `offs` has the operands: a
/// product with zero is zero.
Off getBodyOff(linalg::LinalgOp op, OpResult result, Offs &offs);

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_OFFPATTERN_H
