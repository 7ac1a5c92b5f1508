// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_WARPSPMM_H
#define BSR_LIB_CODEGEN_GPU_SPMM_WARPSPMM_H

#include "PlannedSpMM.h"
#include "SpMMTile.h"

namespace mlir::bsr::gpu {

/// A `bsr.spmm` that tensor cores compute by warps: 16-bit elements, sums in
/// f32, blocks of 4 to 64 rows and columns; or, rounded to `tf32`, f32 in
/// blocks of 16 to 64.
class WarpSpMM : public PlannedSpMM {
public:
  /// The product of `operands`, if it is one that `chip` runs here.
  static std::optional<WarpSpMM> match(const BlockProduct &operands,
                                       GPUAttr chip);

  std::optional<ResultSpace> getSpace() override;
  std::string describeTile() const override { return tile.describe(shape); }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class WarpSpMMEmitter;

  SpMMTile tile;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_WARPSPMM_H
