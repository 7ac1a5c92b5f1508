// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Views of tensors: slices, and other shapes.

#include "bsr/Analysis/Slices.h"

using namespace mlir;
using namespace mlir::bsr;

bool bsr::isView(Operation *op) {
  return isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                         tensor::ExtractSliceOp>(op);
}

Value bsr::getViewed(Value tensor) {
  while (isView(tensor.getDefiningOp()))
    tensor = tensor.getDefiningOp()->getOperand(0);
  return tensor;
}

bool bsr::isStatic(OffsetSizeAndStrideOpInterface slice) {
  return llvm::none_of(slice.getStaticOffsets(), ShapedType::isDynamic) &&
         llvm::none_of(slice.getStaticSizes(), ShapedType::isDynamic) &&
         llvm::all_of(slice.getStaticStrides(),
                      [](int64_t stride) { return stride == 1; });
}

std::optional<int64_t> bsr::getCutDim(tensor::InsertSliceOp slice) {
  if (!isStatic(slice) || !slice.getType().hasStaticShape() ||
      slice.getSourceType().getRank() != slice.getType().getRank())
    return std::nullopt;
  std::optional<int64_t> only;
  for (auto [dim, size] : llvm::enumerate(slice.getStaticSizes())) {
    if (size == slice.getType().getDimSize(dim))
      continue;
    if (only || size == 0)
      return std::nullopt;
    only = dim;
  }
  return only;
}

bool bsr::areDisjoint(OffsetSizeAndStrideOpInterface a,
                      OffsetSizeAndStrideOpInterface b) {
  for (auto [startA, sizeA, startB, sizeB] :
       llvm::zip_equal(a.getStaticOffsets(), a.getStaticSizes(),
                       b.getStaticOffsets(), b.getStaticSizes()))
    if (startA + sizeA <= startB || startB + sizeB <= startA)
      return true;
  return false;
}
