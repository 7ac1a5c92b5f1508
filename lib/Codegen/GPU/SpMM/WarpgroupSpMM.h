// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix by warpgroups.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPSPMM_H
#define BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPSPMM_H

#include "PlannedSpMM.h"
#include "WarpgroupTile.h"

namespace mlir::bsr::gpu {

/// A `TiledSpMM` that takes less time with `wgmma` and tensor copies, as
/// the model has it.
class WarpgroupSpMM : public PlannedSpMM {
public:
  /// The product of `operands`, if it is one that `chip` runs here.
  static std::optional<WarpgroupSpMM> match(const BlockProduct &operands,
                                            GPUAttr chip);

  std::optional<ResultSpace> getSpace() override;
  std::string describeTile() const override { return tile.describe(shape); }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class WarpgroupSpMMEmitter;

  WarpgroupTile tile;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPSPMM_H
