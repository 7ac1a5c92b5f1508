// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.sddmm.

#include "GroupedTiles.h"
#include "InnerProducts.h"
#include "OuterProducts.h"
#include "TileProducts.h"
#include "bsr/Analysis/Windows.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Features of a strip of inner products, at most; and where each block has one
/// streamed feature, so that the strip is all that it shares.
static constexpr int64_t maxStripFeatures = 8, maxSharedFeatures = 16;
/// Bytes of a strip that holds all tokens, at most: it lies on the stack.
static constexpr int64_t maxStripBytes = 1 << 20;

/// True if the second operand has windows that are read where no more channels
/// lie than the first one has features.
static bool hasFewLines(SDDMMOp op) {
  auto matrix = op.getB().getDefiningOp<tensor::CollapseShapeOp>();
  Operation *windows = matrix ? matrix.getSrc().getDefiningOp() : nullptr;
  return windows && areReadInLine(windows) &&
         matrix.getSrcType().getDimSize(0) <=
             op.getPattern().getType().getRows();
}

/// Outer products put columns of blocks in a strip. Of inner ones, the operand
/// with fewer features is streamed again and again, line by line: it stays in
/// the nearer cache. Of a block of one row or column that one is, since the
/// other features serve all blocks of a line. Windows are streamed, too: a
/// strip would have each element once for each place.
View cpu::getWalkedView(SDDMMOp op, Walk walk, CPUTarget target) {
  PatternType pattern = op.getPattern().getType();
  if (isTiled(op, target))
    return getTiledView(op);
  if (isOfColumns(pattern))
    return View::Rows;
  bool isRow = pattern.getBlockRows() == 1 && pattern.getBlockCols() > 1;
  if (walk == Walk::Outer || isRow)
    return View::Columns;
  bool isGrouped = GroupedTiles::find(op, View::Rows, target).has_value();
  if (isWide(pattern) && isGrouped && hasFewLines(op))
    return View::Rows;
  return pattern.getRows() > pattern.getCols() &&
                 (!isWide(pattern) || isGrouped)
             ? View::Rows
             : View::Columns;
}

/// Multiply-adds before threads meet, at least: a tenth of a millisecond and
/// more, so that it costs little.
static constexpr int64_t minSweep = 1 << 23;

namespace {
/// How a kernel goes through a sampled product: work items, tokens and tiles.
struct Tiling {
  Tiling(SDDMMOp op, CPUTarget target, Walk walk);

  /// The operands; those of the transposed product if blocks have one column.
  Value a, b;
  TokenRounds tokens;
  /// Rounds that each work item goes through before threads meet, and how often
  /// they do.
  SmallVector<int64_t> roundsOfSweep, sweeps;
  int64_t blockRows, blockCols;
  /// Lines of blocks, rows or columns, and the work items that they are divided
  /// into.
  bool alongRows;
  int64_t lines, parts;
  Type sumType, outType;
  /// Outer products, or else inner ones.
  bool isOuter;
  /// Features of a line that are taken together: what a round reads for them
  /// stays in the cache, in a strip if there is one.
  int64_t stripFeatures;
  bool hasStrip;
  std::optional<GroupedTiles> grouped;

  // Inner products.
  /// Features of a block: what all blocks of a line share is stationary, the
  /// others are streamed. Tiles are of a block's streamed features and of a
  /// strip.
  int64_t stationaryBlock, streamedBlock;
  SmallVector<Tiles, 2> streamedTiles, stationaryTiles;
  /// Blocks of a line that are taken at once, so that there are enough sums.
  int64_t together;

  void divideRounds(SDDMMOp op, CPUTarget target);
  int64_t getTilesOfBlock() const {
    int64_t tiles = 0;
    for (const Tiles &group : streamedTiles)
      tiles += group.count;
    return tiles;
  }
};

/// The sums of products of rows of `a` and `b` over tokens. A work item has
/// lines of blocks and takes a round of tokens at a time, for all blocks of a
/// line; between rounds, partial sums are in the output.
class SDDMMEmitter : Tiling {
public:
  SDDMMEmitter(Emitter &e, SDDMMOp op, Value output,
               const PatternViews &patterns, Walk walk)
      : Tiling(op, e.target, walk), e(e), op(op), output(output),
        view(patterns.at(
            {op.getPattern(), cpu::getWalkedView(op, walk, e.target)})) {
    if (isOfColumns(op.getPattern().getType()))
      this->output = transposeBlocks(output);
    // Whole rows of a tile lie side by side in a block.
    isFlat = grouped &&
             (alongRows ? CPUTarget::dotCols : stripFeatures) == blockCols;
    if (isFlat)
      this->output = flatten(this->output);
  }
  void emit();

private:
  Value flatten(Value blocks);
  Value transposeBlocks(Value columns);

  // Vectors along columns of `b`, which are transposed first.
  void emitOuter(const Round &round, Index line);

  // Vectors along tokens, summed up at last.
  void emitInner(const Round &round, Index line);
  /// Slots of blocks, their first streamed features, and those of the blocks
  /// that follow.
  struct Blocks {
    SmallVector<Index> slots, features, next;
    /// How many steps of the line come before.
    Index number;
  };
  Blocks getBlocks(Value first, Value end);
  void emitInnerTiles(const Round &round, const Blocks &blocks, Index first,
                      int64_t size, Index tile, Index strip);
  int64_t getTilesOfStrip();
  void emitPart(Index part, ArrayRef<Index> sweep);
  void storeTile(const Round &round, ArrayRef<Index> slots, Index row,
                 int64_t rows, Index col, int64_t cols, ArrayRef<Value> sums);

  Emitter &e;
  SDDMMOp op;
  /// Of its blocks, the rows may be one dimension.
  Value output;
  bool isFlat;
  PatternView view;
  std::optional<OuterProducts> outer;
  std::optional<InnerProducts> inner;
};
} // namespace

Tiling::Tiling(SDDMMOp op, CPUTarget target, Walk walk)
    : a(op.getA()), b(op.getB()),
      tokens(Activations(op.getA().getType().getShape(), op.getFeatureDim())),
      isOuter(walk == Walk::Outer) {
  PatternType pattern = op.getPattern().getType();
  View view = cpu::getWalkedView(op, walk, target);
  alongRows = view == View::Rows;
  blockRows = pattern.getBlockRows();
  blockCols = pattern.getBlockCols();
  lines = pattern.getNumLines(view);
  parts = getParts(lines, 1);
  if (isOfColumns(pattern)) {
    std::swap(a, b);
    std::swap(blockRows, blockCols);
    alongRows = false;
  }
  OpBuilder builder(op);
  outType = op.getValues().getType().getElementType();
  sumType = getSumType(builder, {a.getType(), b.getType(), outType});
  int64_t lanes = target.lanes;
  // Sums of 16-bit floats are rounded once: all tokens at a time, more than a
  // strip holds.
  bool isRoundedOnce = sumType != outType;
  hasStrip = !isRoundedOnce && tokens.activations.tokens % lanes == 0;
  bool isSplit =
      !isOuter && InnerProducts::canSplitTokens(
                      target, a, b, tokens.activations.tokens, sumType);
  // Of what is split, each streamed vector is converted for eight stationary
  // ones, which a strip has converted.
  bool isLow = isSplit && !alongRows && blockRows > 1;
  int64_t tileCols =
      getDivisor(blockCols, (isLow ? 2 : 1) * CPUTarget::dotCols);
  int64_t limit = blockRows == 1 ? maxSharedFeatures : maxStripFeatures;
  if (!isOuter && hasStrip)
    grouped = GroupedTiles::find(op, view, target);
  if (grouped)
    stripFeatures = grouped->features;
  else if (isOuter)
    stripFeatures = OuterProducts::getCols(blockCols, target);
  else if (alongRows)
    stripFeatures = getDivisor(blockRows, maxStripFeatures);
  else
    stripFeatures =
        tileCols * getDivisor(blockCols / tileCols, limit / tileCols);
  tokens.divide(isRoundedOnce
                    ? std::numeric_limits<int64_t>::max() / 2
                    : getStripTokens(grouped ? GroupedTiles::maxFeatures
                                             : std::max(stripFeatures, limit),
                                     target),
                target.panel());

  divideRounds(op, target);
  if (isRoundedOnce && !isOuter && !arePaired(target, a, b, sumType))
    hasStrip = tokens.activations.tokens % lanes == 0 &&
               4 * stripFeatures * tokens.size() <=
                   std::min(target.secondCache / 4, maxStripBytes);
  else
    hasStrip &= isOuter || fitsStrip(stripFeatures, tokens, target);

  SmallVector<Tiles, 2> cols =
      tileWithRemainder(alongRows ? blockCols : stripFeatures, tileCols);
  SmallVector<Tiles, 2> rows =
      tileEvenly(alongRows ? stripFeatures : blockRows,
                 isLow ? target.dotRows() / 2 : target.dotRows());
  stationaryBlock = alongRows ? blockRows : blockCols;
  streamedBlock = alongRows ? blockCols : blockRows;
  streamedTiles = alongRows ? cols : rows;
  stationaryTiles = alongRows ? rows : cols;
  if (grouped) {
    streamedTiles = grouped->streamed;
    together = grouped->together;
    return;
  }
  together =
      blockRows == 1 && tileCols == CPUTarget::dotCols
          ? target.dotRows()
          : std::max<int64_t>(1, CPUTarget::dotCols / (blockRows * blockCols));
}

/// What work items stream of some rounds, half of the second-level cache, stays
/// there if all of them go through these before any goes through the next ones:
/// one alone has too few lines to read it again. Where a round of it is larger,
/// some of it stays.
void Tiling::divideRounds(SDDMMOp op, CPUTarget target) {
  auto streamed = cast<RankedTensorType>((alongRows ? b : a).getType());
  int64_t bytes = streamed.getDimSize(op.getFeatureDim()) * 4 * tokens.size();
  int64_t fitting =
      std::max<int64_t>(target.secondCache / 2 / bytes, grouped ? 1 : 0);
  int64_t work = op.getValues().getType().getNumElements() * tokens.size();
  if (work * fitting < minSweep)
    fitting = std::numeric_limits<int64_t>::max();
  for (int64_t extent : llvm::reverse(tokens.rounds)) {
    int64_t inner = getDivisor(extent, fitting);
    roundsOfSweep.insert(roundsOfSweep.begin(), inner);
    sweeps.insert(sweeps.begin(), extent / inner);
    fitting = inner == extent ? fitting / inner : 1;
  }
}

/// Blocks with their rows side by side.
Value SDDMMEmitter::flatten(Value blocks) {
  return memref::CollapseShapeOp::create(
      e.b, e.loc, blocks, ArrayRef<ReassociationIndices>{{0}, {1, 2}});
}

/// Blocks of one column in the order of their transposes, which is the same.
Value SDDMMEmitter::transposeBlocks(Value columns) {
  ReassociationIndices block{1, 2};
  Value flat = flatten(columns);
  auto type = cast<MemRefType>(columns.getType());
  int64_t shape[] = {type.getDimSize(0), 1, type.getDimSize(1)};
  return memref::ExpandShapeOp::create(
      e.b, e.loc, ArrayRef<int64_t>(shape), flat,
      ArrayRef<ReassociationIndices>{{0}, block});
}

/// Emits `body` for the first feature of each of `tiles`, how many it has, and
/// which tile it is.
static void forTiles(Emitter &e, ArrayRef<Tiles> tiles,
                     llvm::function_ref<void(Index, int64_t, Index)> body) {
  int64_t done = 0;
  for (const Tiles &group : tiles) {
    e.loop(group.count, {}, [&](Index tile, ValueRange) {
      body(e.multiplyAdd(tile, group.size, Index::constant(group.base)),
           group.size, tile.plus(done));
      return SmallVector<Value>();
    });
    done += group.count;
  }
}

//===----------------------------------------------------------------------===//
// Outer products
//===----------------------------------------------------------------------===//

void SDDMMEmitter::emitOuter(const Round &round, Index line) {
  e.loop(blockCols / stripFeatures, {}, [&](Index number, ValueRange) {
    Index col = e.multiplyAdd(number, stripFeatures, Index::constant(0));
    outer->start(round, e.multiplyAdd(line, blockCols, col));
    forBlocks(e, view, line, {}, [&](Index slot, Index position, ValueRange) {
      forTiles(e, tileEvenly(blockRows, outer->maxRows()),
               [&](Index row, int64_t rows, Index) {
                 SmallVector<Value> sums = outer->multiply(
                     round, e.multiplyAdd(position, blockRows, row), rows);
                 llvm::SaveAndRestore width(e.width, stripFeatures);
                 for (auto [i, sum] : llvm::enumerate(sums)) {
                   SmallVector<Index> place{slot, row.plus(i), col};
                   place.back().lanes = stripFeatures > 1;
                   storeSum(e, sum, output, place, round);
                 }
               });
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

//===----------------------------------------------------------------------===//
// Inner products
//===----------------------------------------------------------------------===//

/// Stores the sums of a tile, `rows` by `cols` of each of the blocks in
/// `slots`: `sums` are vectors of as many lanes. A block may be there twice.
void SDDMMEmitter::storeTile(const Round &round, ArrayRef<Index> slots,
                             Index row, int64_t rows, Index col, int64_t cols,
                             ArrayRef<Value> sums) {
  SmallVector<std::pair<Value, SmallVector<Index>>> stores;
  int64_t group = rows * cols * slots.size() / sums.size();
  int64_t together = isFlat ? getDivisor(rows, group / cols) : 1;
  int64_t size = cols * together;
  llvm::SaveAndRestore width(e.width, size);
  for (auto [block, slot] : llvm::enumerate(slots))
    for (int64_t i = 0; i != rows; i += together) {
      int64_t entry =
          cols * (alongRows ? i * slots.size() + block : block * rows + i);
      Value vector = sums[entry / group];
      Value sum =
          size > 1
              ? vector::ExtractStridedSliceOp::create(e.b, e.loc, vector,
                                                      entry % group, size, 1)
                    .getResult()
              : vector::ExtractOp::create(e.b, e.loc, vector, entry % group)
                    .getResult();
      SmallVector<Index> place{slot};
      if (isFlat)
        place.push_back(
            e.multiplyAdd(row.plus(i), blockCols, Index::constant(0)));
      else
        place.append({row.plus(i), col});
      place.back().lanes = size > 1;
      stores.push_back({addToStored(e, sum, output, place, round), place});
    }
  for (auto &[sum, place] : stores)
    e.store(sum, output, place);
}

/// The blocks from position `first` on that are taken together, of a line that
/// ends at `end`. The last one of a line may be there more than once.
SDDMMEmitter::Blocks SDDMMEmitter::getBlocks(Value first, Value end) {
  Value last = arith::SubIOp::create(e.b, e.loc, end, e.constant(1));
  Value lastSlot = e.constant(op.getPattern().getType().getSlots() - 1);
  auto plus = [&](int64_t number, Value limit) -> Value {
    Value position = e.materialize(Index::of(first).plus(number));
    return arith::MinUIOp::create(e.b, e.loc, position, limit);
  };
  auto getFeature = [&](Value position) {
    return e.multiplyAdd(Index::of(loadIndex(e, view.idx, Index::of(position))),
                         streamedBlock, Index::constant(0));
  };
  Blocks blocks;
  for (int64_t number = 0; number != together; ++number) {
    Value position = together > 1 ? plus(number, last) : first;
    blocks.slots.push_back(
        Index::of(loadIndex(e, view.slot, Index::of(position))));
    blocks.features.push_back(getFeature(position));
    blocks.next.push_back(getFeature(plus(together + number, lastSlot)));
  }
  return blocks;
}

/// Multiplies `size` streamed features of `blocks`, from `first` on in each, by
/// the strip that begins at feature `strip` of the blocks.
void SDDMMEmitter::emitInnerTiles(const Round &round, const Blocks &blocks,
                                  Index first, int64_t size, Index tile,
                                  Index strip) {
  SmallVector<Index> streamed, prefetched;
  for (auto [feature, next] : llvm::zip_equal(blocks.features, blocks.next)) {
    for (int64_t i = 0; i != size; ++i)
      streamed.push_back(e.multiplyAdd(first.plus(i), 1, feature));
    // What the next tile begins with, of this block or the next.
    for (int64_t i = 0; i != streamedTiles.front().size; ++i) {
      Value number = e.materialize(first.plus(size + i));
      Value isInside =
          arith::CmpIOp::create(e.b, e.loc, arith::CmpIPredicate::ult, number,
                                e.constant(streamedBlock));
      Value here = e.materialize(feature);
      Value there = e.materialize(next.plus(-streamedBlock));
      Value base = arith::SelectOp::create(e.b, e.loc, isInside, here, there);
      prefetched.push_back(
          Index::of(arith::AddIOp::create(e.b, e.loc, base, number)));
    }
  }
  if (grouped) {
    Index number = e.multiplyAdd(blocks.number, getTilesOfBlock(), tile);
    SmallVector<Value> sums =
        inner->multiplyGroups(round, streamed, prefetched, number);
    storeTile(round, blocks.slots, alongRows ? strip : first,
              alongRows ? stripFeatures : size, alongRows ? first : strip,
              alongRows ? size : stripFeatures, sums);
    return;
  }
  forTiles(e, stationaryTiles,
           [&](Index stationary, int64_t stationarySize, Index) {
             int64_t rows = alongRows ? stationarySize : size;
             int64_t cols = alongRows ? size : stationarySize;
             int64_t group = together > 1 && cols < CPUTarget::dotCols
                                 ? together * rows * cols
                                 : cols;
             SmallVector<Value> sums =
                 inner->multiply(round, streamed, stationary, stationarySize,
                                 prefetched, alongRows, group);
             Index inBlock = e.multiplyAdd(stationary, 1, strip);
             storeTile(round, blocks.slots, alongRows ? inBlock : first, rows,
                       alongRows ? first : inBlock, cols, sums);
           });
}

/// Tiles that a strip has on average.
int64_t SDDMMEmitter::getTilesOfStrip() {
  int64_t slots = op.getPattern().getType().getSlots();
  return getTilesOfBlock() * llvm::divideCeil(slots, lines * together);
}

void SDDMMEmitter::emitInner(const Round &round, Index line) {
  Value low = loadIndex(e, view.ptr, line);
  Value high = loadIndex(e, view.ptr, line.plus(1));
  e.loop(stationaryBlock / stripFeatures, {}, [&](Index number, ValueRange) {
    Index strip = e.multiplyAdd(number, stripFeatures, Index::constant(0));
    inner->start(round, e.multiplyAdd(line, stationaryBlock, strip));
    e.loop(low, high, together, {}, [&](Value first, ValueRange) {
      Blocks blocks = getBlocks(first, high);
      if (grouped) {
        Value before = arith::SubIOp::create(e.b, e.loc, first, low);
        blocks.number = e.split(Index::of(before), together).first;
      }
      forTiles(e, streamedTiles, [&](Index first, int64_t size, Index tile) {
        emitInnerTiles(round, blocks, first, size, tile, strip);
      });
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

/// Emits a part of the lines, for all rounds of `sweep`.
void SDDMMEmitter::emitPart(Index part, ArrayRef<Index> sweep) {
  if (isOuter) {
    outer.emplace(e, a, b, tokens, stripFeatures, sumType);
    outer->allocateStrip();
  } else {
    inner.emplace(e, alongRows ? b : a, alongRows ? a : b, tokens,
                  stripFeatures, sumType);
    if (grouped)
      inner->allocateGroups(getTilesOfStrip(), alongRows);
    else if (hasStrip)
      inner->allocateStrip();
  }
  e.nest(roundsOfSweep, {}, [&](ArrayRef<Index> inSweep, ValueRange) {
    SmallVector<Index> at;
    for (auto [outer, extent, inner] :
         llvm::zip_equal(sweep, roundsOfSweep, inSweep))
      at.push_back(e.multiplyAdd(outer, extent, inner));
    Round round(e, at);
    forLines(e, view, lines, parts, part, [&](Index line) {
      isOuter ? emitOuter(round, line) : emitInner(round, line);
    });
    return SmallVector<Value>();
  });
}

void SDDMMEmitter::emit() {
  e.nest(sweeps, {}, [&](ArrayRef<Index> sweep, ValueRange) {
    e.forall(parts,
             [&](ArrayRef<Index> item) { emitPart(item.front(), sweep); });
    return SmallVector<Value>();
  });
}

void cpu::emitSDDMM(Emitter &e, SDDMMOp op, Value output,
                    const PatternViews &patterns, Walk walk) {
  if (isTiled(op, e.target))
    return emitTiledSDDMM(e, op, output,
                          patterns.at({op.getPattern(), getTiledView(op)}));
  SDDMMEmitter(e, op, output, patterns, walk).emit();
}
