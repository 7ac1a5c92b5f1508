// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The loops of a bsr.sddmm that is made of tiles.

#include "TileProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Bytes of a strip of all tokens, at most: it lies on the stack.
static constexpr int64_t maxStripBytes = 1 << 20;

/// Features of 16 tiles' rows or two, of blocks of `block` features.
static int64_t getTiles(int64_t block) {
  return getDivisor(block / tileSize, 2);
}

namespace {
/// How a sum over tokens is made of tiles.
struct Tiling {
  explicit Tiling(SDDMMOp op)
      : pattern(op.getPattern().getType()), view(getTiledView(op)),
        isTransposed(view == View::Rows),
        stationary(isTransposed ? op.getA() : op.getB()),
        streamed(isTransposed ? op.getB() : op.getA()),
        activations(op.getA().getType().getShape(), op.getFeatureDim()),
        stationaryBlock(pattern.getBlockExtent(view)),
        streamedBlock(pattern.getBlockExtent(getOther(view))),
        stripTiles(getTiles(stationaryBlock)),
        streamedTiles(getTiles(streamedBlock)),
        together(sumTiles / (stripTiles * streamedTiles)) {}

  int64_t getGroups() const {
    return llvm::product_of(activations.leading) * activations.tokens /
           tileDepth;
  }

  PatternType pattern;
  View view;
  /// Tiles of sums are those of transposed blocks.
  bool isTransposed;
  Value stationary, streamed;
  Activations activations;
  int64_t stationaryBlock, streamedBlock;
  /// Tiles of sums side by side: of a strip, of a streamed block, and blocks.
  int64_t stripTiles, streamedTiles, together;
};

/// A work item has lines of blocks. For each it transposes what all blocks of
/// the line share, pairs of tokens, into a strip of all tokens, and streams the
/// other operand's rows, as they lie, for some tiles of sums at once.
class TileEmitter : Tiling {
public:
  TileEmitter(Emitter &e, SDDMMOp op, Value output, const PatternView &blocks)
      : Tiling(op), e(e), output(output), blocks(blocks), tiles(e),
        outType(op.getValues().getType().getElementType()) {}

  void emit();

private:
  using GroupBody = llvm::function_ref<SmallVector<Value>(
      ArrayRef<Index>, Index, Index, ValueRange)>;
  SmallVector<Value> forGroups(ValueRange inits, GroupBody body);
  void emitStrip(Index first);
  void emitLine(Index line);
  void emitBlocks(ArrayRef<Index> numbers, Index strip);
  void emitSums(ArrayRef<Index> slots, ArrayRef<Index> features, Index strip,
                Index first);
  void storeTile(Index number, Index slot, Index streamedFeature,
                 Index stationaryFeature);

  Emitter &e;
  Value output;
  PatternView blocks;
  TileBuilder tiles;
  Type outType;
  /// Memory of a work item: [groups of tokens, tiles, pairs of tokens, 2
  /// features], and sums, [tiles, 16, 16].
  Value strip, total;
};
} // namespace

View cpu::getTiledView(SDDMMOp op) {
  // To transpose a feature costs as much as about 64 sums of it.
  PatternType pattern = op.getPattern().getType();
  return pattern.getRows() < pattern.getCols() ? View::Rows : View::Columns;
}

bool cpu::isTiled(SDDMMOp op, CPUTarget target) {
  auto isBF16 = [](Value tensor) {
    return getElementTypeOrSelf(tensor.getType()).isBF16();
  };
  if (!target.hasTiles || !isBF16(op.getA()) || !isBF16(op.getB()) ||
      op.getNumBatchDims() || ProductSchedule::get(op).walk)
    return false;
  PatternType pattern = op.getPattern().getType();
  OpBuilder b(op);
  Type sumType = getSumType(b, {op.getA().getType(), op.getB().getType(),
                                op.getValues().getType().getElementType()});
  if (!sumType.isF32() || pattern.getBlockRows() % tileSize != 0 ||
      pattern.getBlockCols() % tileSize != 0)
    return false;
  Tiling tiling(op);
  const Activations &activations = tiling.activations;
  int64_t rank = op.getA().getType().getRank();
  int64_t stripBytes =
      tiling.getGroups() * tileDepth * 2 * tileSize * tiling.stripTiles;
  return activations.hasLanes && activations.featureDim == rank - 2 &&
         activations.tokens % target.panel() == 0 &&
         isa<BlockArgument>(tiling.streamed) &&
         stripBytes <= std::min(target.secondCache / 4, maxStripBytes);
}

/// Calls `body` for each 32 tokens: the leading indices, the first lane, and
/// how many come before.
SmallVector<Value> TileEmitter::forGroups(ValueRange inits, GroupBody body) {
  SmallVector<int64_t> extents(activations.leading);
  extents.push_back(activations.tokens / tileDepth);
  return e.nest(extents, inits, [&](ArrayRef<Index> at, ValueRange carried) {
    Index number = Index::constant(0);
    for (auto [extent, index] : llvm::zip_equal(extents, at))
      number = e.multiplyAdd(number, extent, index);
    Index lane = e.multiplyAdd(at.back(), tileDepth, Index::constant(0));
    return body(at.drop_back(), lane, number, carried);
  });
}

/// Transposes the features from `first` on.
void TileEmitter::emitStrip(Index first) {
  auto words = VectorType::get({tileSize}, e.b.getI32Type());
  auto pairs = VectorType::get({tileDepth}, e.b.getBF16Type());
  llvm::SaveAndRestore width(e.width, tileDepth);
  forGroups({}, [&](ArrayRef<Index> leading, Index lane, Index number,
                    ValueRange) {
    lane.lanes = true;
    lane.align = tileDepth;
    Index column = Index::constant(0);
    column.lanes = true;
    for (int64_t tile : llvm::seq(stripTiles)) {
      SmallVector<Value> rows;
      for (int64_t i : llvm::seq(tileSize))
        rows.push_back(vector::BitCastOp::create(
            e.b, e.loc, words,
            e.read(stationary,
                   activations.at(leading, first.plus(tile * tileSize + i),
                                  lane))));
      for (auto [pair, row] : llvm::enumerate(e.transpose(rows)))
        e.store(vector::BitCastOp::create(e.b, e.loc, pairs, row), strip,
                {number, Index::constant(tile), Index::constant(pair), column});
    }
    return SmallVector<Value>();
  });
}

/// The sums of tiles from feature `first` of streamed blocks on, which begin at
/// `features`, and of the strip, which begins at feature `strip` of a block.
void TileEmitter::emitSums(ArrayRef<Index> slots, ArrayRef<Index> features,
                           Index strip, Index first) {
  SmallVector<Value> sums;
  for (size_t i = 0; i != slots.size() * stripTiles * streamedTiles; ++i)
    sums.push_back(tiles.zero());
  Value rows = e.getBuffer(streamed);
  sums = forGroups(sums, [&](ArrayRef<Index> leading, Index lane, Index number,
                             ValueRange carried) {
    SmallVector<Value> next(carried), factors;
    Index zero = Index::constant(0);
    for (int64_t tile : llvm::seq(stripTiles))
      factors.push_back(
          tiles.load(this->strip, {number, Index::constant(tile), zero, zero}));
    Value *sum = next.begin();
    for (Index feature : features)
      for (int64_t tile : llvm::seq(streamedTiles)) {
        Index row = e.multiplyAdd(first.plus(tile * tileSize), 1, feature);
        Value streamed = tiles.load(rows, activations.at(leading, row, lane));
        for (Value factor : factors) {
          *sum = tiles.multiplyAdd(streamed, factor, *sum);
          ++sum;
        }
      }
    return next;
  });
  for (auto [number, sum] : llvm::enumerate(sums))
    tiles.store(
        sum, total,
        {Index::constant(number), Index::constant(0), Index::constant(0)});
  int64_t number = 0;
  for (Index slot : slots)
    for (int64_t row : llvm::seq(streamedTiles))
      for (int64_t col : llvm::seq(stripTiles))
        storeTile(Index::constant(number++), slot, first.plus(row * tileSize),
                  strip.plus(col * tileSize));
}

/// Stores tile `number` of the sums, of 16 features of each operand of a block.
void TileEmitter::storeTile(Index number, Index slot, Index streamedFeature,
                            Index stationaryFeature) {
  llvm::SaveAndRestore width(e.width, tileSize);
  auto asLanes = [](Index index) {
    index.lanes = true;
    index.align = tileSize;
    return index;
  };
  auto load = [&](Index row) {
    return e.load(total, {number, row, asLanes(Index::constant(0))});
  };
  Index row = isTransposed ? stationaryFeature : streamedFeature;
  Index col = asLanes(isTransposed ? streamedFeature : stationaryFeature);
  if (!isTransposed) {
    e.loop(tileSize, {}, [&](Index i, ValueRange) {
      e.store(tiles.convert(load(i), outType), output,
              {slot, e.multiplyAdd(i, 1, row), col});
      return SmallVector<Value>();
    });
    return;
  }
  SmallVector<Value> rows;
  for (int64_t i : llvm::seq(tileSize))
    rows.push_back(load(Index::constant(i)));
  for (auto [i, sums] : llvm::enumerate(e.transpose(rows)))
    e.store(tiles.convert(sums, outType), output, {slot, row.plus(i), col});
}

/// Blocks `numbers` of a line, whose strip begins at feature `strip` of each.
void TileEmitter::emitBlocks(ArrayRef<Index> numbers, Index strip) {
  SmallVector<Index> slots, features;
  for (Index number : numbers) {
    slots.push_back(Index::of(loadIndex(e, blocks.slot, number)));
    features.push_back(
        e.multiplyAdd(Index::of(loadIndex(e, blocks.idx, number)),
                      streamedBlock, Index::constant(0)));
  }
  int64_t size = streamedTiles * tileSize;
  e.loop(streamedBlock / size, {}, [&](Index part, ValueRange) {
    emitSums(slots, features, strip,
             e.multiplyAdd(part, size, Index::constant(0)));
    return SmallVector<Value>();
  });
}

/// Blocks of a line as many as there are tiles for, then those that are left,
/// each by itself.
void TileEmitter::emitLine(Index line) {
  Value low = loadIndex(e, blocks.ptr, line);
  Value high = loadIndex(e, blocks.ptr, line.plus(1));
  Value last = arith::SubIOp::create(e.b, e.loc, high, e.constant(1));
  Value count = arith::SubIOp::create(e.b, e.loc, high, low);
  Value rest = arith::RemUIOp::create(e.b, e.loc, count, e.constant(together));
  Value whole = arith::SubIOp::create(e.b, e.loc, high, rest);
  int64_t size = stripTiles * tileSize;
  // Loops over all of a line, of which branches leave some out: so it is known
  // that no other line has these blocks.
  auto forBlocks = [&](int64_t step, arith::CmpIPredicate predicate,
                       Index strip) {
    e.loop(low, high, step, {}, [&](Value first, ValueRange) {
      auto branch = scf::IfOp::create(
          e.b, e.loc,
          arith::CmpIOp::create(e.b, e.loc, predicate, first, whole));
      OpBuilder::InsertionGuard guard(e.b);
      e.b.setInsertionPointToStart(branch.thenBlock());
      e.scope([&] {
        SmallVector<Index> numbers{Index::of(first)};
        for (int64_t i = 1; i != step; ++i)
          numbers.push_back(Index::of(arith::MinUIOp::create(
              e.b, e.loc, e.materialize(Index::of(first).plus(i)), last)));
        emitBlocks(numbers, strip);
      });
      return SmallVector<Value>();
    });
  };
  e.loop(stationaryBlock / size, {}, [&](Index number, ValueRange) {
    Index first = e.multiplyAdd(number, size, Index::constant(0));
    emitStrip(e.multiplyAdd(line, stationaryBlock, first));
    forBlocks(together, arith::CmpIPredicate::ult, first);
    if (together > 1)
      forBlocks(1, arith::CmpIPredicate::uge, first);
    return SmallVector<Value>();
  });
}

void TileEmitter::emit() {
  int64_t lines = pattern.getNumLines(view), parts = getParts(lines, 1);
  e.forall(parts, [&](ArrayRef<Index> item) {
    strip = e.allocate({getGroups(), stripTiles, tileSize, tileDepth},
                       e.b.getBF16Type());
    total = e.allocate({sumTiles, tileSize, tileSize}, e.b.getF32Type());
    forLines(e, blocks, lines, parts, item.front(),
             [&](Index line) { emitLine(line); });
  });
}

void cpu::emitTiledSDDMM(Emitter &e, SDDMMOp op, Value output,
                         const PatternView &view) {
  TileEmitter(e, op, output, view).emit();
}
