// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of activations and a block-sparse matrix on arithmetic units.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_LANESPMM_H
#define BSR_LIB_CODEGEN_GPU_SPMM_LANESPMM_H

#include "PlannedSpMM.h"

namespace mlir::bsr::gpu {

/// A `bsr.spmm` whose terms are multiplied and added one by one, in f32: of
/// elements of f32, or of 16-bit ones that tensor cores do not take, in blocks
/// of 1 to 64 rows and columns, tokens last.
class LaneSpMM : public PlannedSpMM {
public:
  /// The product of `operands`, if it is one that `chip` runs here.
  static std::optional<LaneSpMM> match(const BlockProduct &operands,
                                       GPUAttr chip);
  std::string describeTile() const override { return tile.describe(shape); }

  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class LaneSpMMEmitter;

  SpMMTile tile;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_LANESPMM_H
