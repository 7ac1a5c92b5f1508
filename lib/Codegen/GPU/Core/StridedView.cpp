// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where tensors lie in the buffers of others.

#include "bsr/Codegen/GPU/Core/StridedView.h"
#include "bsr/Codegen/GPU/Core/TensorCores.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// The strides of dimensions of `sizes` that follow each other, the last of
/// which has `stride`.
static SmallVector<int64_t> getStrides(ArrayRef<int64_t> sizes,
                                       int64_t stride = 1) {
  SmallVector<int64_t> strides(sizes.size());
  for (int64_t dim = sizes.size() - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride *= sizes[dim];
  }
  return strides;
}

StridedView StridedView::get(Value tensor) {
  if (auto slice = tensor.getDefiningOp<tensor::ExtractSliceOp>()) {
    ArrayRef<int64_t> offsets = slice.getStaticOffsets();
    if (slice.getType().getRank() == slice.getSourceType().getRank() &&
        !ShapedType::isDynamicShape(offsets) && slice.hasUnitStride()) {
      StridedView view = get(slice.getSource());
      for (auto [offset, stride] : llvm::zip_equal(offsets, view.strides))
        view.offset += offset * stride;
      return view;
    }
  }
  auto type = cast<RankedTensorType>(tensor.getType());
  if (auto expand = tensor.getDefiningOp<tensor::ExpandShapeOp>()) {
    StridedView view = get(expand.getSrc());
    SmallVector<int64_t> strides;
    for (auto [dims, stride] :
         llvm::zip_equal(expand.getReassociationIndices(), view.strides))
      llvm::append_range(
          strides,
          getStrides(type.getShape().slice(dims.front(), dims.size()), stride));
    if (strides.size() == size_t(type.getRank())) {
      view.strides = std::move(strides);
      return view;
    }
  }
  return {tensor, 0, getStrides(type.getShape())};
}

bool StridedView::isCopied() const {
  return isLoaded(buffer) &&
         cast<RankedTensorType>(buffer.getType()).getNumElements() <=
             INT32_MAX &&
         !strides.empty() && strides.back() == 1;
}

std::optional<int64_t> StridedView::getCopied(int64_t elementBytes,
                                              int64_t length) const {
  for (int64_t bytes : {16, 8, 4}) {
    int64_t copied = bytes / elementBytes;
    auto isMultiple = [&](int64_t number) { return number % copied == 0; };
    if (copied != 0 && isMultiple(offset) && isMultiple(length) &&
        llvm::all_of(ArrayRef(strides).drop_back(), isMultiple))
      return copied;
  }
  return std::nullopt;
}
