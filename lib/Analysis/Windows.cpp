// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds windows of images that lie in a line.

#include "bsr/Analysis/Windows.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Dialect/BSR.h"

using namespace mlir;
using namespace mlir::bsr;

/// The slice `[channels, columns]` of a matrix that `piece`, `[channels, 1,
/// columns]`, is.
static tensor::ExtractSliceOp getSlice(Value piece) {
  auto expand = piece.getDefiningOp<tensor::ExpandShapeOp>();
  auto slice = expand ? expand.getSrc().getDefiningOp<tensor::ExtractSliceOp>()
                      : tensor::ExtractSliceOp();
  if (!slice || !isStatic(slice) || slice.getSourceType().getRank() != 2 ||
      slice.getType().getRank() != 2 || !slice.getType().hasStaticShape() ||
      slice.getStaticSizes()[0] != slice.getSourceType().getDimSize(0))
    return nullptr;
  ArrayRef<int64_t> shape = slice.getType().getShape();
  return expand.getType().getShape() ==
                 ArrayRef<int64_t>({shape[0], 1, shape[1]})
             ? slice
             : nullptr;
}

/// The digits by which `offsets` count from the first one on.
static std::optional<SmallVector<Windows::Digit>>
getDigits(ArrayRef<int64_t> offsets) {
  SmallVector<Windows::Digit> digits;
  SmallVector<int64_t> left(offsets);
  while (left.size() > 1) {
    int64_t step = left[1] - left[0], extent = 2, size = left.size();
    while (extent != size && left[extent] - left[extent - 1] == step)
      ++extent;
    if (size % extent)
      return std::nullopt;
    SmallVector<int64_t> next;
    for (auto [number, offset] : llvm::enumerate(left)) {
      int64_t digit = number % extent;
      if (digit == 0)
        next.push_back(offset);
      else if (offset != next.back() + digit * step)
        return std::nullopt;
    }
    digits.insert(digits.begin(), {extent, step});
    left = std::move(next);
  }
  return digits;
}

std::optional<Windows> Windows::get(tensor::ConcatOp op) {
  if (op.getDim() != 1 || op.getResultType().getRank() != 3)
    return std::nullopt;
  Windows windows;
  SmallVector<int64_t> offsets;
  for (Value piece : op.getInputs()) {
    tensor::ExtractSliceOp slice = getSlice(piece);
    if (!slice || (windows.line && slice.getSource() != windows.line))
      return std::nullopt;
    windows.line = slice.getSource();
    offsets.push_back(slice.getStaticOffsets()[1]);
  }
  std::optional<SmallVector<Digit>> digits = getDigits(offsets);
  if (!digits)
    return std::nullopt;
  windows.first = offsets.front();
  windows.digits = std::move(*digits);
  return windows;
}

/// True if `matrix` has windows with channels and places as one
/// dimension, and sparse products alone read it.
static bool isOfProducts(Operation *matrix) {
  auto collapse = dyn_cast<tensor::CollapseShapeOp>(matrix);
  return collapse && collapse.getType().getRank() == 2 &&
         collapse.getReassociationIndices().front().size() == 2 &&
         !collapse->use_empty() &&
         llvm::all_of(collapse->getUses(), [](OpOperand &use) {
           auto product = dyn_cast<ActivationsOpInterface>(use.getOwner());
           return product && isa<SpMMOp, SDDMMOp>(use.getOwner()) &&
                  product.getFeatureDim() == 0 &&
                  llvm::is_contained(product.getReadActivations(), &use);
         });
}

bool bsr::areReadInLine(Operation *op) {
  auto concat = dyn_cast<tensor::ConcatOp>(op);
  return concat && !concat->use_empty() &&
         llvm::all_of(concat->getUsers(), isOfProducts) && Windows::get(concat);
}
