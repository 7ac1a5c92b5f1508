// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element-wise operations on matrices: which operations are, what they read,
// and how they are rebuilt on values of another shape.

#ifndef BSR_ANALYSIS_ELEMENTWISE_H
#define BSR_ANALYSIS_ELEMENTWISE_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// How an element-wise operation reads an operand, seen from one of its
/// results.
enum class Access {
  Same,       ///< Entry (i, j) for entry (i, j).
  Transposed, ///< Entry (j, i) for entry (i, j) of a matrix.
  Row,        ///< Entry i of a vector for entry (i, j).
  Column,     ///< Entry j of a vector for entry (i, j).
  Scalar,     ///< The same entry always: a scalar or a tensor of rank 0.
  Other,
};

/// True if each result entry is a function of the operand entries that the
/// indexing maps name and of nothing else: all loops parallel, all result maps
/// permutations, results not initialised from `outs`, a body without
/// `linalg.index`, regions or side effects. The shapes are static.
bool isElementWise(linalg::LinalgOp op);
/// Why `op` is not element-wise, as a clause about it; "" if it is.
StringRef getElementWiseObstacle(linalg::LinalgOp op);

/// The constant that `value` is, or that all of its entries are, or null.
TypedAttr getSplat(Value value);

/// The access of `operand` seen from a result with map `resultMap`.
Access getAccess(linalg::LinalgOp op, OpOperand &operand, AffineMap resultMap);

/// The input whose elements the body of `op` yields as they are, as its only
/// result, or null: `op` copies, transposes or broadcasts it.
OpOperand *getYieldedInput(linalg::LinalgOp op);

/// The source of `value` if a permutation of dimensions defines it
/// (`linalg.transpose` or a copying `linalg.generic`), or null; dimension `i`
/// of `value` is dimension `permutation[i]` of the source.
Value getPermutedSource(Value value, SmallVectorImpl<int64_t> &permutation);

/// `value` with dimension `i` being dimension `permutation[i]` of `value`;
/// looks through what permutes `value` already, and uses a tensor that is
/// permuted so already.
Value createTranspose(OpBuilder &b, Location loc, Value value,
                      ArrayRef<int64_t> permutation);

/// The map from the points of `shape` to the entries of `input`: a scalar, or a
/// tensor of this shape with one entry along dimensions where it does not
/// matter.
AffineMap getBroadcastMap(OpBuilder &b, Value input, ArrayRef<int64_t> shape);

/// Rebuilds element-wise `op` with results of shape `shape`, from `inputs` that
/// have this shape, as `getBroadcastMap` says. What only permutes dimensions is
/// no operation then.
SmallVector<Value> rebuildElementWise(OpBuilder &b, linalg::LinalgOp op,
                                      ValueRange inputs,
                                      ArrayRef<int64_t> shape);

/// True if `tensor` holds zeros only: a constant, or what a fill or a copy of
/// one makes.
bool isZeros(Value tensor);

/// Visits the tensors of its shape that `root` is an element-wise function of,
/// `root` first, each once; `transposed` says that it is a matrix's transpose
/// that `root` depends on entry by entry.
void walkElementWise(Value root,
                     function_ref<void(Value value, bool transposed)> visit);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_ELEMENTWISE_H
