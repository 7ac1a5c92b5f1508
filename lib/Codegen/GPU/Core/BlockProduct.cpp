// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels ask of a product with a pattern.

#include "bsr/Codegen/GPU/Core/BlockProduct.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// The product `op`, whose result is `result`, of `activations` and, if these
/// are not all of its operands, `values`.
template <typename Op>
static std::optional<BlockProduct> matchOperands(Op op, ValueRange activations,
                                                 Value values, Value result) {
  BlockProduct product{op,
                       op.getPattern().getType(),
                       getElementTypeOrSelf(activations.front()),
                       getElementTypeOrSelf(result),
                       {}};
  // Launches know of no batches of values.
  if (op.getNumBatchDims() != 0 ||
      getElementTypeOrSelf(values) != product.type ||
      !isStored(product.resultType, product.type) ||
      cast<ShapedType>(result.getType()).getNumElements() > INT32_MAX)
    return std::nullopt;
  for (Value tensor : activations) {
    auto matched = Activations::match(tensor, op.getFeatureDim());
    if (!matched)
      return std::nullopt;
    product.activations.push_back(*matched);
  }
  return product;
}

std::optional<BlockProduct> BlockProduct::match(Operation *op) {
  if (auto spmm = dyn_cast<SpMMOp>(op)) {
    if (!isLoaded(spmm.getValues()))
      return std::nullopt;
    return matchOperands(spmm, ValueRange{spmm.getX()}, spmm.getValues(),
                         spmm.getY());
  }
  if (auto sddmm = dyn_cast<SDDMMOp>(op))
    return matchOperands(sddmm, ValueRange{sddmm.getA(), sddmm.getB()},
                         sddmm.getB(), sddmm.getValues());
  return std::nullopt;
}

bool BlockProduct::fitsFragments(bool tf32) const {
  return isMultiplied(type, tf32) && isCovered(pattern.getBlockRows(), type) &&
         isCovered(pattern.getBlockCols(), type);
}

bool BlockProduct::fitsLanes() const {
  return isMultiplied(type, /*tf32=*/true) && isLane(pattern.getBlockRows()) &&
         isLane(pattern.getBlockCols());
}
