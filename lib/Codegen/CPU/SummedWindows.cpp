// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for gradients of images: products that make windows, summed up
// where these overlap.

#include "SummedWindows.h"
#include "bsr/Codegen/CPU/Tiling.h"
#include "bsr/Codegen/Common/WindowOffsets.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Panels of a tile of elements in f32: a weight is multiplied by all of them,
/// and as many sums hide how long a multiply-add takes.
static constexpr int64_t tilePanels = 4;

/// Features that a tile of rows makes of a token's vectors, at least: fewer
/// would be written and read again for too few multiply-adds.
static constexpr int64_t minRows = 4;
/// Elements of a work item that makes rows first, at least.
static constexpr int64_t minElements = 512;

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
  /// A work item that makes rows of windows first: `count` elements from
  /// `first` on, of tokens from `begin` on.
  struct Item {
    Index first;
    int64_t count;
    Index begin;
    /// [rows, tokens]
    Value rows;
  };
  bool makesRows();
  int64_t getTokens(int64_t count) const;
  int64_t getRowLimit() const {
    return CPUTarget::tileRows * 32 / type.getIntOrFloatBitWidth();
  }
  int64_t getExtent() const { return pattern.getBlockExtent(walked); }
  int64_t getNumTokens() { return op.getX().getType().getDimSize(1); }
  /// The token that is the first that an element reads, from that element on:
  /// a multiple of vectors, and how far the last is from it.
  int64_t getLow() const;
  int64_t getReach() const;
  void emitItem(Index first, int64_t count);
  void emitRows(const Item &item, Index line, Index number, int64_t rows);
  void addRow(const Item &item, Index row, Index feature);
  void forElements(const Item &item, llvm::function_ref<void(Index)> body);
  void emitItems();

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

int64_t SumEmitter::getLow() const {
  int64_t low = windows.offsets.first;
  for (const Offsets::Digit &digit : windows.offsets.digits)
    low += std::min<int64_t>(0, (digit.extent - 1) * digit.step);
  return low / e.target.lanes * e.target.lanes;
}

int64_t SumEmitter::getReach() const {
  int64_t high = windows.offsets.first;
  for (const Offsets::Digit &digit : windows.offsets.digits)
    high += std::max<int64_t>(0, (digit.extent - 1) * digit.step);
  return high - getLow();
}

/// Tokens that `count` elements read, in whole panels.
int64_t SumEmitter::getTokens(int64_t count) const {
  return llvm::alignTo(count + getReach(), e.target.panel());
}

/// Elements of a work item: what neighbours compute, too, is an eighth at most.
static int64_t getItemElements(int64_t reach, int64_t panel) {
  return llvm::alignTo(std::max(minElements, 8 * reach), panel);
}

/// True if tiles of rows of windows pay: each row of what the product reads is
/// loaded, aligned, for all features of a tile, and not for each of them from
/// another token.
bool SumEmitter::makesRows() {
  int64_t count =
      std::min(getItemElements(getReach(), e.target.panel()), elements);
  return getExtent() >= minRows && getLow() >= 0 &&
         getTokens(count) <= getNumTokens();
}

/// Calls `body` for vectors of the item's elements.
void SumEmitter::forElements(const Item &item,
                             llvm::function_ref<void(Index)> body) {
  for (const Tiles &tiles : getVectors(item.count, e.target.panel())) {
    llvm::SaveAndRestore width(e.width, tiles.size);
    e.loop(tiles.count, {}, [&](Index tile, ValueRange) {
      Index lane = e.multiplyAdd(tile, tiles.size, Index::constant(tiles.base));
      lane.lanes = tiles.size > 1;
      body(lane);
      return SmallVector<Value>();
    });
  }
}

/// Adds a row of windows to the channel that it is of.
void SumEmitter::addRow(const Item &item, Index row, Index feature) {
  auto [channel, place] = e.split(feature, windows.places);
  SmallVector<Index> at{channel, Index()};
  Index token = addOffset(e, windows.offsets, place, item.first);
  Index low = Index::of(arith::SubIOp::create(e.b, e.loc, e.materialize(token),
                                              e.materialize(item.begin)));
  forElements(item, [&](Index lane) {
    at[1] = e.multiplyAdd(item.first, 1, lane);
    Value sum = arith::AddFOp::create(
        e.b, e.loc, e.load(output, at),
        e.load(item.rows, {row, e.multiplyAdd(low, 1, lane)}));
    e.store(sum, output, at);
  });
}

/// Makes rows of windows, features `number` and so on of `line`, and adds them
/// up.
void SumEmitter::emitRows(const Item &item, Index line, Index number,
                          int64_t rows) {
  int64_t panel = e.target.panel();
  int64_t extent = pattern.getBlockExtent(getOther(walked));
  int64_t unroll = getDivisor(extent, 2);
  e.loop(getTokens(item.count) / panel, {}, [&](Index tile, ValueRange) {
    llvm::SaveAndRestore width(e.width, panel);
    Index lane = e.multiplyAdd(tile, panel, Index::constant(0));
    lane.lanes = panel > 1;
    Index token = e.multiplyAdd(item.begin, 1, lane);
    SmallVector<Value> sums = forBlocks(
        e, view, line, getZeros(e, type, rows),
        [&](Index slot, Index position, ValueRange outer) {
          return e.loop(
              extent / unroll, outer, [&](Index step, ValueRange carried) {
                SmallVector<Value> next(carried);
                for (int64_t i : llvm::seq(unroll)) {
                  Index k = e.multiplyAdd(step, unroll, Index::constant(i));
                  Value x = e.read(op.getX(),
                                   {e.multiplyAdd(position, extent, k), token});
                  for (auto [row, sum] : llvm::enumerate(next)) {
                    SmallVector<Index> entry{slot, k, number.plus(row)};
                    if (op.getTranspose())
                      std::swap(entry[1], entry[2]);
                    sum = multiplyAdd(e, e.read(op.getValues(), entry), x, sum);
                  }
                }
                return next;
              });
        });
    for (auto [row, sum] : llvm::enumerate(sums))
      e.store(sum, item.rows, {Index::constant(row), lane});
    return SmallVector<Value>();
  });
  e.loop(rows, {}, [&](Index row, ValueRange) {
    Index own = e.multiplyAdd(number, 1, row);
    addRow(item, row, e.multiplyAdd(line, getExtent(), own));
    return SmallVector<Value>();
  });
}

void SumEmitter::emitItem(Index first, int64_t count) {
  int64_t tokens = getTokens(count);
  Value begin =
      arith::MinUIOp::create(e.b, e.loc, e.materialize(first.plus(getLow())),
                             e.constant(getNumTokens() - tokens));
  int64_t limit = std::min(getRowLimit(), getExtent());
  Item item{first, count, Index::of(begin), e.allocate({limit, tokens}, type)};
  item.begin.align = e.target.lanes;
  e.loop(windows.channels, {}, [&](Index channel, ValueRange) {
    forElements(item, [&](Index lane) {
      e.store(getZeros(e, type, 1).front(), output,
              {channel, e.multiplyAdd(first, 1, lane)});
    });
    return SmallVector<Value>();
  });
  e.loop(pattern.getNumLines(walked), {}, [&](Index line, ValueRange) {
    Value from = loadIndex(e, view.ptr, line);
    Value to = loadIndex(e, view.ptr, line.plus(1));
    Value isStored =
        arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ne, from, to);
    auto stored = scf::IfOp::create(e.b, e.loc, isStored, false);
    OpBuilder::InsertionGuard guard(e.b);
    e.b.setInsertionPointToStart(stored.thenBlock());
    e.scope([&] {
      for (const Tiles &tiles : tileEvenly(getExtent(), limit))
        e.loop(tiles.count, {}, [&](Index tile, ValueRange) {
          emitRows(item, line,
                   e.multiplyAdd(tile, tiles.size, Index::constant(tiles.base)),
                   tiles.size);
          return SmallVector<Value>();
        });
    });
    return SmallVector<Value>();
  });
}

/// Items of as many elements, then what is left.
void SumEmitter::emitItems() {
  int64_t count = getItemElements(getReach(), e.target.panel());
  if (int64_t items = elements / count)
    e.forall(items, [&](ArrayRef<Index> item) {
      emitItem(e.multiplyAdd(item.front(), count, Index::constant(0)), count);
    });
  if (int64_t left = elements % count)
    e.scope([&] { emitItem(Index::constant(elements - left), left); });
}

/// Tiles of a few vectors, then what is left, in powers of two.
void SumEmitter::emit() {
  if (makesRows())
    return emitItems();
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
