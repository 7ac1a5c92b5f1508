// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops of a bsr.spmm that is made of tiles.

#include "LineReader.h"
#include "PairProducts.h"
#include "TileProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

namespace {
/// A work item is a panel of tokens, and lines of blocks. Tiles of sums are of
/// a group of the features of a line, and of some tokens of the panel: for
/// them, each step over the stored blocks puts pairs of 32 rows of activations
/// side by side, and multiplies. Sums are rounded from memory.
class TileEmitter {
public:
  TileEmitter(Emitter &e, const GatheredSpMM &kernel, const TiledSpMM &tiled,
              const PatternView &view)
      : e(e), op(kernel.op), tiled(tiled), output(kernel.output), view(view),
        values(kernel.ordered ? kernel.ordered : e.getBuffer(op.getValues())),
        epilogue(kernel.epilogue), tiles(e), windows(e, op.getX()),
        activations(op.getX().getType().getShape(), op.getFeatureDim()),
        panel(e.target.panel()), tokens(tiled.tokenTiles * tileSize),
        features(tiled.rowTiles * tileSize) {}

  void emit();

private:
  /// The sums of one go: of `features` from `first` on of a line, and `tokens`
  /// lanes.
  struct Group {
    ArrayRef<Index> leading;
    Index line, first, lane;
  };
  void emitLine(ArrayRef<Index> leading, Index line, Index panelLane);
  void emitGroup(const Group &group);
  SmallVector<Value> emitSteps(const Group &group, Index place,
                               ArrayRef<Index> positions, ValueRange sums);
  Value readRow(const Group &group, Index feature);
  void pair(const Group &group, Index feature, int64_t row);
  void clearHalf();
  void roundSums(const Group &group);

  Emitter &e;
  SpMMOp op;
  const TiledSpMM &tiled;
  Value output;
  PatternView view;
  Value values;
  Epilogue epilogue;
  TileBuilder tiles;
  LineReader windows;
  Activations activations;
  int64_t panel, tokens, features;
  /// Memory of a work item: pairs of rows of activations, [tiles, pairs, 2
  /// tokens], and sums, [features, tokens].
  Value pairs, total;
};
} // namespace

Value TileEmitter::readRow(const Group &group, Index feature) {
  return windows.hasTable()
             ? windows.read(feature, group.lane)
             : e.read(op.getX(),
                      activations.at(group.leading, feature, group.lane));
}

/// Puts `feature` and the next one side by side, as row `row` of the tiles.
void TileEmitter::pair(const Group &group, Index feature, int64_t row) {
  SmallVector<Value> both =
      zip(e, readRow(group, feature), readRow(group, feature.plus(1)));
  llvm::SaveAndRestore width(e.width, tileDepth);
  Index lane = Index::constant(0);
  lane.lanes = true;
  for (auto [tile, operand] : llvm::enumerate(both))
    e.store(operand, pairs,
            {Index::constant(tile), Index::constant(row), lane});
}

/// Zeros for a block that is missing: no product of it is a NaN.
void TileEmitter::clearHalf() {
  llvm::SaveAndRestore width(e.width, tileDepth);
  Value zero = arith::ConstantOp::create(
      e.b, e.loc,
      e.b.getZeroAttr(VectorType::get({tileDepth}, e.b.getBF16Type())));
  Index lane = Index::constant(0);
  lane.lanes = true;
  for (int64_t tile : llvm::seq(tiled.tokenTiles))
    for (int64_t row = tileSize / 2; row != tileSize; ++row)
      e.store(zero, pairs, {Index::constant(tile), Index::constant(row), lane});
}

/// What the blocks at `positions` contribute, whose values are in `place`. They
/// are as many as make a step, or one where another is missing.
SmallVector<Value> TileEmitter::emitSteps(const Group &group, Index place,
                                          ArrayRef<Index> positions,
                                          ValueRange inits) {
  int64_t depth = std::min(tiled.inBlock, tileDepth);
  return e.loop(tiled.steps(), inits, [&](Index step, ValueRange carried) {
    SmallVector<Value> sums(carried);
    Index within = e.multiplyAdd(step, tileDepth, Index::constant(0));
    for (auto [number, position] : llvm::enumerate(positions)) {
      Index feature = e.multiplyAdd(position, tiled.inBlock, within);
      for (int64_t i = 0; i != depth; i += 2)
        pair(group, feature.plus(i), (number * depth + i) / 2);
    }
    if (static_cast<int64_t>(positions.size()) < tiled.together())
      clearHalf();
    auto loadPairs = [&](int64_t tile) {
      return tiles.load(pairs, {Index::constant(tile), Index::constant(0),
                                Index::constant(0)});
    };
    auto loadValues = [&](int64_t row) {
      return tiles.load(values,
                        {place, group.first.plus(row * tileSize), within});
    };
    // Registers hold the tiles of the factor that has fewer of them, and one of
    // the other's.
    bool holdsValues = tiled.rowTiles < tiled.tokenTiles;
    SmallVector<Value> held;
    for (int64_t i : llvm::seq(holdsValues ? tiled.rowTiles : tiled.tokenTiles))
      held.push_back(holdsValues ? loadValues(i) : loadPairs(i));
    for (int64_t i :
         llvm::seq(holdsValues ? tiled.tokenTiles : tiled.rowTiles)) {
      Value other = holdsValues ? loadPairs(i) : loadValues(i);
      for (auto [j, factor] : llvm::enumerate(held)) {
        Value &sum =
            sums[holdsValues ? j * tiled.tokenTiles + i : i * held.size() + j];
        sum = holdsValues ? tiles.multiplyAdd(factor, other, sum)
                          : tiles.multiplyAdd(other, factor, sum);
      }
    }
    return sums;
  });
}

void TileEmitter::emitGroup(const Group &group) {
  Value low = loadIndex(e, view.ptr, group.line);
  Value high = loadIndex(e, view.ptr, group.line.plus(1));
  int64_t together = tiled.together();
  auto emitBlocks = [&](Value from, Value to, int64_t count, ValueRange inits) {
    return e.loop(from, to, together, inits, [&](Value block, ValueRange sums) {
      Index number = Index::of(block);
      SmallVector<Index> positions;
      for (int64_t i : llvm::seq(count))
        positions.push_back(Index::of(loadIndex(e, view.idx, number.plus(i))));
      Index place =
          tiled.isPacked ? number : Index::of(loadIndex(e, view.slot, number));
      return emitSteps(group, place, positions, sums);
    });
  };
  SmallVector<Value> sums;
  for (int64_t i = 0; i != tiled.rowTiles * tiled.tokenTiles; ++i)
    sums.push_back(tiles.zero());
  if (together == 1) {
    sums = emitBlocks(low, high, 1, sums);
  } else {
    Value count = arith::SubIOp::create(e.b, e.loc, high, low);
    Value odd = arith::RemUIOp::create(e.b, e.loc, count, e.constant(together));
    Value whole = arith::SubIOp::create(e.b, e.loc, high, odd);
    sums = emitBlocks(low, whole, together, sums);
    sums = emitBlocks(whole, high, 1, sums);
  }
  for (auto [number, sum] : llvm::enumerate(sums)) {
    int64_t row = number / tiled.tokenTiles, tile = number % tiled.tokenTiles;
    tiles.store(
        sum, total,
        {Index::constant(row * tileSize), Index::constant(tile * tileSize)});
  }
  roundSums(group);
}

/// Rounds the sums of a group, with lanes in the order of tokens, and adds the
/// bias.
void TileEmitter::roundSums(const Group &group) {
  Type outType = op.getY().getType().getElementType();
  e.loop(features, {}, [&](Index row, ValueRange) {
    Index feature = e.multiplyAdd(group.line, tiled.outBlock,
                                  e.multiplyAdd(group.first, 1, row));
    Index lane = Index::constant(0);
    lane.lanes = true;
    Value sum = e.load(total, {row, lane});
    if (op.getBias()) {
      Value bias = e.read(op.getBias(), {feature});
      sum = e.convert(
          arith::AddFOp::create(e.b, e.loc, sum,
                                e.broadcast(e.convert(bias, e.b.getF32Type()))),
          outType);
    } else {
      sum = tiles.convert(sum, outType);
    }
    e.store(unzip(e, sum), output,
            activations.at(group.leading, feature, group.lane));
    return SmallVector<Value>();
  });
}

/// The groups of a line, of the panel from `panelLane` on.
void TileEmitter::emitLine(ArrayRef<Index> leading, Index line,
                           Index panelLane) {
  llvm::SaveAndRestore width(e.width, tokens);
  e.nest({panel / tokens, tiled.outBlock / features}, {},
         [&](ArrayRef<Index> at, ValueRange) {
           Index lane = e.multiplyAdd(at[0], tokens, panelLane);
           lane.lanes = true;
           lane.align = tokens;
           emitGroup({leading, line,
                      e.multiplyAdd(at[1], features, Index::constant(0)),
                      lane});
           return SmallVector<Value>();
         });
}

void TileEmitter::emit() {
  int64_t panels = activations.tokens / panel;
  SmallVector<int64_t> extents(activations.leading);
  int64_t parts =
      getParts(tiled.lines, panels * llvm::product_of(activations.leading));
  extents.append({panels, parts});
  e.forall(extents, [&](ArrayRef<Index> at) {
    pairs =
        e.allocate({tiled.tokenTiles, tileSize, tileDepth}, e.b.getBF16Type());
    total = e.allocate({features, tokens}, e.b.getF32Type());
    ArrayRef<Index> leading = at.drop_back(2);
    Index number = at[at.size() - 2];
    Index lane = e.multiplyAdd(number, panel, Index::constant(0));
    forLines(e, view, tiled.lines, parts, at.back(), [&](Index line) {
      emitLine(leading, line, lane);
      if (!epilogue.row)
        return;
      llvm::SaveAndRestore width(e.width, panel);
      Index lanes = lane;
      lanes.lanes = true;
      lanes.align = panel;
      e.loop(tiled.outBlock, {}, [&](Index row, ValueRange) {
        Index feature = e.multiplyAdd(line, tiled.outBlock, row);
        epilogue.row(activations.at(leading, feature, lanes), number);
        return SmallVector<Value>();
      });
    });
  });
}

bool cpu::emitTiledSpMM(Emitter &e, const GatheredSpMM &kernel) {
  SpMMOp op = kernel.op;
  Value packed = kernel.ordered;
  std::optional<TiledSpMM> tiled = TiledSpMM::find(op, e.target);
  if (!tiled || tiled->isPacked != !!packed)
    return false;
  PatternView view = kernel.patterns.at({op.getPattern(), tiled->walked});
  if (packed)
    emitPackedValues(e, op, *tiled, view, packed);
  TileEmitter(e, kernel, *tiled, view).emit();
  return true;
}
