// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the warpgroups of a cluster go through a plan by line.

#ifndef BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPMAINLOOP_H
#define BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPMAINLOOP_H

#include "SpMMMainloop.h"
#include "WarpgroupTile.h"

namespace mlir::bsr::gpu {

/// A mainloop through the positions of a plan by line, of which one thread
/// copies, by tensor copies, and two warpgroups multiply units of 64 outputs.
class WarpgroupMainloop : public SpMMMainloop {
public:
  WarpgroupMainloop(const SpMMContext &product, const WarpgroupTile &tile,
                    BlockBuilder &b);

  std::unique_ptr<Multiplier> createMultiplier() override;
  void run(const Multiplier &multiplier, Begin begin, Finish finish) override;
  /// Accumulators are units of the warpgroup, of whose 64 outputs a warp has
  /// 16.
  Value getOutput(int64_t accumulator, Value row) override;

private:
  using Stage = BarrierPipeline::Stage;

  /// Warpgroups have units of their own, not tokens.
  bool hasOwnUnits() const { return tile.groupUnits != tile.units; }
  /// The slots of `count` lines of the cluster from `first` on.
  SmallVector<Value> loadSlots(Value chunk, Value first, int64_t count);
  Value loadPosition(Value chunk);
  /// True if one of the lines of a unit has a block.
  Value isPresent(ValueRange slots);

  void produce();
  /// `sharers` are the thread blocks along outputs that have a block in the
  /// chunk, a bit each.
  void copyChunk(Stage stage, Value position, Value sharers, ValueRange slots);
  void copySlab(Value to, Value position, Value sharers, Value barrier);
  Value findSharers(Value chunk);
  void copyUnit(Value to, ValueRange slots, Value barrier);

  void consume(const Multiplier &multiplier, Begin begin, Finish finish);
  SmallVector<Value> multiplyChunk(const Multiplier &multiplier, Value slab,
                                   ValueRange slots, ValueRange sums);

  const WarpgroupTile tile;
  const int64_t unitLines, unitBytes;
  /// The thread block in its cluster, along tokens.
  Value rankTokens;
  Value warpgroup;
  BarrierPipeline ring;
  /// The plan of the group.
  Value positions, slots;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_SPMM_WARPGROUPMAINLOOP_H
