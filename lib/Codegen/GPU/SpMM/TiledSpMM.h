// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix by warps, on tensor cores
// or on arithmetic units.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_TILEDSPMM_H
#define BSR_LIB_CODEGEN_GPU_SPMM_TILEDSPMM_H

#include "PlannedSpMM.h"

namespace mlir::bsr::gpu {

/// A `bsr.spmm` by warps, each of which owns lines and tokens. Tensor cores
/// multiply 16-bit elements in blocks of 4 to 64 rows and columns, or, rounded
/// to `tf32`, f32 in blocks of 16 to 64; lanes multiply and add the terms of
/// what is left one by one, in f32.
class TiledSpMM : public PlannedSpMM {
public:
  /// The product of `operands`, if it is one that `chip` runs here, on tensor
  /// cores or else on lanes.
  static std::optional<TiledSpMM> match(const BlockProduct &operands,
                                        GPUAttr chip);
  static std::optional<TiledSpMM> match(const BlockProduct &operands,
                                        GPUAttr chip, bool isOnTensorCores);

  std::optional<ResultSpace> getSpace() override;
  std::string describeTile() const override { return tile.describe(shape); }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class SpMMEmitter;

  SpMMTile tile;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_TILEDSPMM_H
