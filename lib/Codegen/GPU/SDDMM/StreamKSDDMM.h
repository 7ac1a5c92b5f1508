// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on tensor cores.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_STREAMKSDDMM_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_STREAMKSDDMM_H

#include "SDDMMTile.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// A `bsr.sddmm` that tensor cores compute: 16-bit elements of one type, sums
/// in f32, blocks of 16 to 64 rows and columns, tokens last; or f32 rounded to
/// tf32.
class StreamKSDDMM : public Product {
public:
  /// The product of `operands`, if it is one that `chip` runs here.
  static std::optional<StreamKSDDMM> match(const BlockProduct &operands,
                                           GPUAttr chip);

  /// The windows of the pattern.
  std::optional<PatternPlan> getPlan() override;
  /// The memory for the sums of thread blocks, each of which has steps of
  /// several windows: `[grid, windows, blocks, sums of a lane / 4, lanes, 4]`.
  SmallVector<MemRefType> getScratch() override;
  std::string describeTile() const override { return tile.describe(); }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;
  /// The stored blocks; without tokens, of which there could be sums.
  std::optional<ResultSpace> getSpace() override {
    return ResultSpace{{{0}, {1}, {2}}, /*row=*/1, /*warpColumns=*/0};
  }
  /// What precedes the last launch reads activations.
  bool acceptsUpdates() override { return true; }

private:
  SDDMMOp op;
  SDDMMShape shape;
  SDDMMTile tile;
  SDDMMPlan windows;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_STREAMKSDDMM_H
