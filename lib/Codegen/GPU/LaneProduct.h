// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on arithmetic units.

#ifndef BSR_LIB_CODEGEN_GPU_LANEPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_LANEPRODUCT_H

#include "PlannedProduct.h"

namespace mlir::bsr {

/// A `bsr.spmm` whose terms are multiplied and added one by one, in f32: of
/// elements of f32, or of 16-bit ones that tensor cores do not take, in blocks
/// of 1 to 64 rows and columns, tokens last.
class LaneProduct : public PlannedProduct {
public:
  /// The product that `op` is, if it is one that `chip` runs here.
  static std::optional<LaneProduct> match(Operation *op, GPUAttr chip);

  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class LaneProductEmitter;

  ProductTile tile;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_LANEPRODUCT_H
