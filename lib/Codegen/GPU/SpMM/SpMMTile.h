// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product with a sparse weight is cut for thread blocks and warps.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_SPMMTILE_H
#define BSR_LIB_CODEGEN_GPU_SPMM_SPMMTILE_H

#include "SpMMPlan.h"
#include "bsr/Codegen/GPU/Core/BlockProduct.h"
#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "bsr/Codegen/GPU/Core/Warpgroups.h"

namespace mlir::bsr::gpu {

/// The sizes of a product with a sparse weight.
struct SpMMShape {
  /// Outputs and inputs of a block: of a packed one (`SpMMPlan`), if tensor
  /// cores multiply small blocks.
  int64_t outBlock, inBlock;
  /// Rows and columns of a block of the pattern, as they are stored, and which
  /// of both its inputs are.
  int64_t blockRows, blockCols;
  bool inputsAreRows;
  /// Lines, which are of outputs, the positions along one, and blocks stored.
  int64_t numLines, length, slots;
  Activations activations;
  /// Of an operand, and of an output.
  int64_t elementBytes, outputBytes;
  /// Tensor cores multiply fragments; else a lane has tokens of its own.
  bool isOnTensorCores;

  /// The shape of `product`, a `bsr.spmm`, whose blocks are packed for tensor
  /// cores where they are small; none if they do not fill packed ones.
  static std::optional<SpMMShape> get(const BlockProduct &product,
                                      bool isOnTensorCores);

  /// Of a block, which may be packed.
  int64_t getRows() const { return inputsAreRows ? inBlock : outBlock; }
  int64_t getCols() const { return inputsAreRows ? outBlock : inBlock; }
  int64_t getPackedBlocks() const {
    return outBlock * inBlock / (blockRows * blockCols);
  }
  /// Lines of the pattern that are one.
  int64_t getPackedLines() const {
    return outBlock / (inputsAreRows ? blockCols : blockRows);
  }
  /// The inputs that a fragment takes are those of so many blocks.
  int64_t getGathered() const {
    return isOnTensorCores && inBlock < fragmentRows ? fragmentRows / inBlock
                                                     : 1;
  }
  /// Rows of shared memory are longer than what they hold.
  bool isPadded() const { return isOnTensorCores; }
  /// Elements of a block that a thread copies at once, and how many such pieces
  /// a block has.
  int64_t getPieceElements() const {
    int64_t most = isPadded() ? blockCols : blockRows * blockCols;
    return std::min(most, copiedBytes / elementBytes);
  }
  int64_t getPieces() const { return outBlock * inBlock / getPieceElements(); }
  /// The share of blocks of which something is stored, in a random pattern
  /// whose slots all hold a block.
  double getDensity() const;
  /// Bytes of a block as it is stored, and of all operands and results.
  double getStoredBytes() const {
    return double(blockRows * blockCols) * double(elementBytes);
  }
  double getMemoryBytes() const;
};

/// The launch of a product.
struct SpMMGrid {
  /// Of a thread block; of it and of a warp.
  int64_t threads, sharedBytes, tokens, warpTokens;
  /// Thread blocks of a cluster: those along outputs get the same activations,
  /// those along tokens the same blocks of the weight.
  std::array<int64_t, 2> cluster = {1, 1};
  /// Operands are brought by tensor copies.
  bool areBoxes = false;
  /// Elements of a vector that sums are stored in; if 0, those of 8 bytes.
  int64_t storedLength = 0;
};

/// What a thread block computes of a product at a time, and what it keeps
/// in shared memory.
struct SpMMTile {
  /// Of the thread block and of a warp: lines, tokens.
  int64_t lines, tokens, warpLines, warpTokens;
  /// Of a stage: positions with activations, and blocks of the weight.
  int64_t slabs, blocks;
  int64_t stages;
  /// Groups of lanes that share the outputs of a line, without tensor cores.
  int64_t groups = 1;
  /// Thread blocks of a cluster, neighbours along outputs, which get the
  /// same activations by tensor copies of a warp that does nothing else; 0 if
  /// all threads copy for themselves.
  int64_t shareOutputs = 0;
  /// A warp asks of each slab whether its line has a block there, which is
  /// faster where many have; else it goes from one such slab to the next.
  bool isScanned = false;

  /// Lines of a warp load the activations of a slab once: those of 16 inputs
  /// have room in registers.
  bool areActivationsShared(const SpMMShape &shape) const {
    return shape.isOnTensorCores && isScanned && warpLines != 1 &&
           shape.inBlock == fragmentRows && shape.elementBytes == elementBytes;
  }
  /// A warp keeps the activations of 16 inputs of all its tokens while blocks
  /// go by; else, where they take more registers than its sums leave, it keeps
  /// those of the block.
  bool keepsActivations(const SpMMShape &shape) const {
    constexpr int64_t mostRegisters = 64;
    return fragmentRows * warpTokens * shape.elementBytes / 4 /
               BlockBuilder::warpThreads <=
           mostRegisters;
  }
  /// Thread blocks that follow the plan of one group of lines.
  int64_t getShares() const { return std::max<int64_t>(1, shareOutputs); }
  SpMMGrid getGrid(const SpMMShape &shape) const;

  /// Of a lane: outputs of a line, and tokens, of which so many lie side by
  /// side.
  int64_t getLaneOutputs(const SpMMShape &shape) const {
    return shape.outBlock / groups;
  }
  int64_t getLaneTokens() const {
    return warpTokens * groups / BlockBuilder::warpThreads;
  }
  int64_t getLaneSide(const SpMMShape &shape) const {
    return std::min(getLaneTokens(), copiedBytes / shape.elementBytes);
  }
  /// Sums that a thread keeps.
  int64_t getSums(const SpMMShape &shape) const {
    return warpLines * shape.outBlock * warpTokens / BlockBuilder::warpThreads;
  }

  /// The tile that takes least time on `chip`, as the model has it, for a
  /// random pattern whose slots all hold a block; none if no tile fits.
  /// `outputs`, `tokens` and `shareOutputs` are those that it has, if they are
  /// not 0.
  static std::optional<SpMMTile> choose(const SpMMShape &shape,
                                        const Chip &chip, int64_t outputs,
                                        int64_t tokens, int64_t shareOutputs);

  std::string describe(const SpMMShape &shape) const;
  /// What a launch does for such a pattern, about.
  KernelWork getWork(const SpMMShape &shape) const;
  /// The plan that a launch of this tile follows.
  SpMMPlan getPlan(const SpMMShape &shape) const;
  /// That plan; long groups may be cut if a launch on `chip` gains by it.
  SpMMPlan getCutPlan(const SpMMShape &shape, const Chip &chip,
                      bool isGiven) const;
  /// Tiles along tokens of all batches.
  int64_t getTokenTiles(const SpMMShape &shape) const {
    const Activations &x = shape.activations;
    return x.batches * llvm::divideCeil(x.tokens, tokens);
  }

private:
  double getChunkInstructions(const SpMMShape &shape) const;
  /// Chunks of a group of a random pattern.
  double getChunks(const SpMMShape &shape) const;
};

/// Where things lie in a stage, in bytes.
struct StageLayout {
  StageLayout(const SpMMTile &tile, const SpMMShape &shape);

  /// Bytes of a row of activations that tensor copies bring, 64 tokens.
  static constexpr int64_t boxBytes = 128, boxTokens = boxBytes / elementBytes;

  /// Of a row of a slab, or of 64 tokens of it, and of a slab.
  int64_t slabPitch, slab;
  /// Of a row of a block, and of a block.
  int64_t blockPitch, block;
  /// Where the first block lies.
  int64_t blocks;
  int64_t size;
  /// Where a row of zeros lies behind all stages, which blocks that are missing
  /// have as activations, and what all is together.
  int64_t zeros, sharedBytes;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_SPMMTILE_H
