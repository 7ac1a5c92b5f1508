// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product with a sparse weight is cut for blocks of threads and warps.

#ifndef BSR_LIB_CODEGEN_GPU_PRODUCTTILE_H
#define BSR_LIB_CODEGEN_GPU_PRODUCTTILE_H

#include "TensorCores.h"
#include "bsr/Codegen/GPU/Model.h"

namespace mlir::bsr {

/// The sizes of a product with a sparse weight.
struct ProductShape {
  /// Outputs and inputs of a block, and its rows and columns as they are
  /// stored.
  int64_t outBlock, inBlock, blockRows, blockCols;
  /// Lines, which are of outputs, the positions along one, and blocks stored.
  int64_t numLines, length, slots;
  Activations activations;
  /// Of an output.
  int64_t outputBytes;

  double getDensity() const {
    return double(slots) / double(numLines * length);
  }
};

/// What a block of threads computes of a product at a time, and what it keeps
/// in shared memory.
struct ProductTile {
  /// Of the block of threads and of a warp: lines, tokens.
  int64_t lines, tokens, warpLines, warpTokens;
  /// Of a stage: positions with activations, and blocks of the weight.
  int64_t slabs, blocks;
  int64_t stages;

  /// The tile that takes least time on `chip`, as the model has it, for a
  /// random pattern whose slots all hold a block; none if no tile fits.
  /// `outputs` and `tokens` are those that it has, if they are not 0.
  static std::optional<ProductTile> choose(const ProductShape &shape,
                                           const Chip &chip, int64_t outputs,
                                           int64_t tokens);

  /// What a launch does for such a pattern, about.
  KernelWork getWork(const ProductShape &shape) const;
};

/// Where things lie in a stage, in bytes.
struct StageLayout {
  StageLayout(const ProductTile &tile, const ProductShape &shape)
      : slabPitch(getPitch(tile.tokens)), slab(shape.inBlock * slabPitch),
        blockPitch(getPitch(shape.blockCols)),
        block(shape.blockRows * blockPitch), blocks(tile.slabs * slab),
        size(blocks + tile.blocks * block) {}

  int64_t slabPitch, slab, blockPitch, block;
  /// Where the first block lies.
  int64_t blocks;
  int64_t size;
};

} // namespace mlir::bsr

#endif // BSR_LIB_CODEGEN_GPU_PRODUCTTILE_H
