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
class WarpgroupProduct {
public:
  static std::optional<WarpgroupProduct> match(const ClusterPlan &plan,
                                               GPUAttr chip);

  /// The memory for the plan of its pattern.
  SmallVector<MemRefType> getScratch();
  void emit(OpBuilder &b, KernelBody &kernel);

private:
  friend class WarpgroupProductEmitter;

  SparseOperands operands;
  WarpgroupTile tile;
  LinePlan plan;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_WARPGROUPPRODUCT_H
