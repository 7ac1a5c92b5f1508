// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for gradients of images: products that make windows, summed up
// where these overlap.

#include "SummedWindows.h"
#include "bsr/Codegen/CPU/Tiling.h"
#include "bsr/Codegen/Common/WindowOffsets.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Panels of a tile of elements in f32: a weight is multiplied by all of them,
/// and as many sums hide how long a multiply-add takes.
static constexpr int64_t tilePanels = 4;

namespace {
/// A work item is some vectors of elements of the lines, of all channels. An
/// element of a channel sums up one column of each place, each from another
/// token of what the product reads: no window lies in memory, and no item adds
/// to what another one computes.
class SumEmitter {
public:
  SumEmitter(Emitter &e, const SummedWindows &windows, int64_t elements,
             Value output, const PatternViews &patterns)
      : e(e), windows(windows), op(windows.product), elements(elements),
        output(output), pattern(op.getPattern().getType()),
        walked(getView(!op.getTranspose())),
        view(patterns.at({op.getPattern(), walked})),
        type(op.getY().getType().getElementType()) {}
  void emit();

private:
  void emitTile(ArrayRef<Index> lanes);
  void emitFeature(Index line, Index number, ArrayRef<Index> lanes);

  Emitter &e;
  const SummedWindows &windows;
  SpMMOp op;
  int64_t elements; // of a line
  Value output;     // which may lie in panels
  PatternType pattern;
  View walked;
  PatternView view;
  Type type;
};
} // namespace

/// Adds what the blocks of `line` make of feature `number` of theirs.
void SumEmitter::emitFeature(Index line, Index number, ArrayRef<Index> lanes) {
  auto [channel, place] =
      e.split(e.multiplyAdd(line, pattern.getBlockExtent(walked), number),
              windows.places);
  Index offset = addOffset(e, windows.offsets, place, Index::constant(0));
  SmallVector<Value> sums;
  SmallVector<Index> tokens;
  for (Index lane : lanes) {
    sums.push_back(e.load(output, {channel, lane}));
    tokens.push_back(e.multiplyAdd(offset, 1, lane));
  }
  int64_t extent = pattern.getBlockExtent(getOther(walked));
  int64_t unroll = getDivisor(extent, 4);
  sums = forBlocks(
      e, view, line, sums, [&](Index slot, Index position, ValueRange outer) {
        return e.loop(
            extent / unroll, outer, [&](Index step, ValueRange carried) {
              SmallVector<Value> next(carried);
              for (int64_t i : llvm::seq(unroll)) {
                Index k = e.multiplyAdd(step, unroll, Index::constant(i));
                SmallVector<Index> entry{slot, k, number};
                if (op.getTranspose())
                  std::swap(entry[1], entry[2]);
                Value weight = e.read(op.getValues(), entry);
                Index feature = e.multiplyAdd(position, extent, k);
                for (auto [token, sum] : llvm::zip_equal(tokens, next))
                  sum = multiplyAdd(e, weight,
                                    e.read(op.getX(), {feature, token}), sum);
              }
              return next;
            });
      });
  for (auto [lane, sum] : llvm::zip_equal(lanes, sums))
    e.store(sum, output, {channel, lane});
}

/// All channels at the elements of `lanes`.
void SumEmitter::emitTile(ArrayRef<Index> lanes) {
  e.loop(windows.channels, {}, [&](Index channel, ValueRange) {
    for (Index lane : lanes)
      e.store(getZeros(e, type, 1).front(), output, {channel, lane});
    return SmallVector<Value>();
  });
  e.loop(pattern.getNumLines(walked), {}, [&](Index line, ValueRange) {
    return e.loop(pattern.getBlockExtent(walked), {},
                  [&](Index number, ValueRange) {
                    emitFeature(line, number, lanes);
                    return SmallVector<Value>();
                  });
  });
}

/// Tiles of a few vectors, then what is left, in powers of two.
void SumEmitter::emit() {
  int64_t panels = tilePanels * 32 / type.getIntOrFloatBitWidth();
  int64_t panel = e.target.panel(), tile = panels * panel;
  if (int64_t tiles = elements / tile)
    e.forall(tiles, [&](ArrayRef<Index> item) {
      llvm::SaveAndRestore width(e.width, panel);
      SmallVector<Index> lanes;
      for (int64_t number : llvm::seq(panels)) {
        lanes.push_back(
            e.multiplyAdd(item.front(), tile, Index::constant(number * panel)));
        lanes.back().lanes = panel > 1;
      }
      emitTile(lanes);
    });
  int64_t done = elements / tile * tile;
  for (const Tiles &vectors : getVectors(elements - done, panel)) {
    llvm::SaveAndRestore width(e.width, vectors.size);
    for (int64_t number : llvm::seq(vectors.count)) {
      Value first = e.constant(done + vectors.base + number * vectors.size);
      e.scope([&] { emitTile(Index::of(first, vectors.size > 1)); });
    }
  }
}

void cpu::emitSummedWindows(Emitter &e, Operation *sum, Value output,
                            const PatternViews &patterns) {
  auto type = cast<RankedTensorType>(sum->getResult(0).getType());
  SumEmitter(e, *SummedWindows::get(sum), type.getDimSize(1), output, patterns)
      .emit();
}
