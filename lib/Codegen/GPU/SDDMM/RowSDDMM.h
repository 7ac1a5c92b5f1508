// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations, a block row at a time.

#ifndef BSR_LIB_CODEGEN_GPU_SDDMM_ROWSDDMM_H
#define BSR_LIB_CODEGEN_GPU_SDDMM_ROWSDDMM_H

#include "RowMainloop.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"
#include "bsr/Codegen/GPU/Epilogue/Product.h"

namespace mlir::bsr::gpu {

/// A `bsr.sddmm` of which a thread block has neighbouring blocks of one
/// block row, tokens last. Tensor cores multiply 16-bit elements in blocks of 4
/// to 64 rows and columns, of which one is below 16; lanes multiply and add the
/// terms of what else there is one by one, in f32: of elements of f32, or of 16
/// bits, in blocks of 1 to 64 rows and columns.
class RowSDDMM : public Product {
public:
  /// The product of `operands`, if it is one that `chip` runs here.
  static std::optional<RowSDDMM> match(const BlockProduct &operands,
                                       GPUAttr chip);

  SmallVector<MemRefType> getScratch() override { return {}; }
  LogicalResult emit(OpBuilder &b, KernelBody &kernel,
                     ValueRange scratch) override;

private:
  friend class RowSDDMMEmitter;

  static std::optional<RowSDDMM> matchWarp(const BlockProduct &operands,
                                           const Chip &chip);
  static std::optional<RowSDDMM> matchLane(const BlockProduct &operands,
                                           const Chip &chip);

  /// Over how many lanes of a warp rows, columns and tokens are spread, without
  /// tensor cores.
  int64_t getColLanes() const {
    return tile.shape.getBlockCols() == 64 && getRowLanes() != 8 ? 8 : 4;
  }
  int64_t getRowLanes() const {
    return std::max<int64_t>(1, tile.shape.getBlockRows() / 8);
  }
  int64_t getTokenLanes() const {
    return BlockBuilder::warpThreads / getColLanes() / getRowLanes();
  }
  /// Of a lane: rows, columns, and tokens that it loads at once, fewer where it
  /// has more sums.
  int64_t getRows() const { return tile.shape.getBlockRows() / getRowLanes(); }
  int64_t getCols() const {
    return tile.warpBlocks * tile.shape.getBlockCols() / getColLanes();
  }
  int64_t getSide() const { return getRows() * getCols() > 64 ? 2 : 4; }

  SDDMMOp op;
  RowTile tile;
  bool isOnTensorCores = false;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SDDMM_ROWSDDMM_H
