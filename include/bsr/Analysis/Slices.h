// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Views of tensors: slices, and other shapes.

#ifndef BSR_ANALYSIS_SLICES_H
#define BSR_ANALYSIS_SLICES_H

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace mlir::bsr {

/// True if `op` makes a view of its first operand, a tensor: a slice, or
/// another shape. False if it is null.
bool isView(Operation *op);

/// What `tensor` is a view of, over other views.
Value getViewed(Value tensor);

/// Whether a slice is known and has no gaps.
bool isStatic(OffsetSizeAndStrideOpInterface slice);

/// Whether known slices of one tensor have no entry in common.
bool areDisjoint(OffsetSizeAndStrideOpInterface a,
                 OffsetSizeAndStrideOpInterface b);

/// The only dimension of which `slice`, static, does not write everything, if
/// there is one: a concatenation is a chain of such slices.
std::optional<int64_t> getCutDim(tensor::InsertSliceOp slice);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_SLICES_H
