// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix by warpgroups.

#ifndef BSR_LIB_CODEGEN_GPU_WARPGROUPPRODUCT_H
#define BSR_LIB_CODEGEN_GPU_WARPGROUPPRODUCT_H

#include "SparseProduct.h"
#include "WarpgroupTile.h"

namespace mlir::bsr {

/// A `SparseProduct` that takes less time with `wgmma` and tensor copies, as
/// the model has it.
class WarpgroupProduct : public PlannedProduct {
public:
  /// The product that `op` is, if it is one that `chip` runs here.
  static std::optional<WarpgroupProduct> match(Operation *op, GPUAttr chip);

  std::optional<ResultSpace> getSpace() override;
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class WarpgroupProductEmitter;

  WarpgroupTile tile;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_WARPGROUPPRODUCT_H
