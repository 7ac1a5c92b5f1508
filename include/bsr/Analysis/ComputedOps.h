// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels compute, and what they compute where it is used.

#ifndef BSR_ANALYSIS_COMPUTEDOPS_H
#define BSR_ANALYSIS_COMPUTEDOPS_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// True if a kernel can compute single elements of the result of `op` where
/// they are used, from elements of its operands.
bool isInlinable(Operation *op);

/// True if a kernel can compute `op`, as an operation of its own.
bool canCompute(Operation *op);

/// True if `op` is an element-wise operation.
bool isPointwise(Operation *op);

/// For each dimension of the results of `op`, its loop, or nothing for a
/// constant.
SmallVector<std::optional<unsigned>> getResultLoops(linalg::GenericOp op);

/// True if element-wise operations `a` and `b` go over one space and write the
/// same element at the same point, so one nest computes both.
bool isOnePointwiseNest(Operation *a, Operation *b);

/// The operation that computes `piece`, an operand of a concatenation, for
/// nothing else, and so can write it where it belongs in the whole; or null.
linalg::GenericOp getPieceProducer(Value piece);

/// The operation that combines elements of result number `result` of `op`, or
/// null.
Operation *getCombiner(linalg::GenericOp op, unsigned result);

/// True if `op` adds up, in floating point, what it reads along its reduced
/// loops.
bool isSum(linalg::GenericOp op);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_COMPUTEDOPS_H
