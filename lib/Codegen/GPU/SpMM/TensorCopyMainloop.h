// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How warps copy the chunks of a plan by boxes, for a cluster.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_TENSORCOPYMAINLOOP_H
#define BSR_LIB_CODEGEN_GPU_SPMM_TENSORCOPYMAINLOOP_H

#include "WarpMainloop.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"

namespace mlir::bsr::gpu {

/// A mainloop of which four warps copy, by tensor copies, and the others
/// multiply. The thread blocks of a cluster have neighbouring lines of one plan
/// and the same tokens: each copies some of the activations for all those that
/// store a block there, and its own blocks.
class TensorCopyMainloop : public WarpMainloop {
public:
  TensorCopyMainloop(const SpMMContext &product, const SpMMTile &tile,
                     BlockBuilder &b);

  void run(const Multiplier &multiplier, Begin begin, Finish finish) override;

private:
  using Stage = BarrierPipeline::Stage;
  /// What a lane of a warp that copies knows of a chunk: the word of one line
  /// of the group, those of the thread block's first and last one, the
  /// positions of the boxes and the slots of the blocks that it may copy.
  struct Sources {
    Value word, firstWord, lastWord;
    SmallVector<Value> positions, slots;

    SmallVector<Value> pack() const;
    static Sources unpack(ValueRange values, int64_t numPositions);
  };
  /// The slabs at which thread blocks of the cluster store a block: that of
  /// the lane's line, and others, whose number differs from its in the bits of
  /// their index.
  using Needs = SmallVector<Value, 4>;
  /// A chunk that is copied; the thread block's blocks, from `first` to below
  /// `end`, are its own.
  struct Chunk {
    Sources sources;
    Needs needs;
    Value first, end;
  };

  int64_t getNumBoxes() const {
    return tile.slabs * tile.tokens / StageLayout::boxTokens / tile.getShares();
  }
  /// The lane among those that copy: neighbours are of different warps, each of
  /// which issues one copy after the other.
  Value getCopier();
  /// The number of a box of a chunk, of those of the lane, and the number of
  /// its slab.
  Value getBox(int64_t pass);
  Value getSlab(Value box);

  Sources loadSources(Value chunk);
  Needs getNeeds(Value word);
  /// The number of the lane's thread block, of whose lines it has one.
  Value getLaneRank();

  void produce();
  Chunk findChunk(const Sources &sources);
  void copyChunk(Stage stage, const Chunk &chunk);
  /// Copies the activations that one of the cluster needs to those that do.
  void copyBoxes(Value begin, const Chunk &chunk, Value barrier);
  void copyBlocks(Value begin, const Chunk &chunk, Value barrier);
  void consume(const Multiplier &multiplier, Begin begin, Finish finish);

  BarrierPipeline ring;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_TENSORCOPYMAINLOOP_H
