// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.sddmm.

#include "OuterProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// How a kernel goes through a sampled product: work items, tokens and tiles.
struct Tiling {
  /// Outer products need memory, inner ones do not.
  Tiling(SDDMMOp op, Registers registers, bool hasStack);

  TokenRounds tokens;
  int64_t blockRows, blockCols;
  /// Columns of blocks, and the work items that they are divided into.
  int64_t lines, parts;
  Type sumType, outType;
  /// Outer products, or else inner ones.
  bool isOuter;
  /// Columns of a block that are taken together: of `b`, what a round reads for
  /// them stays in the cache.
  int64_t stripCols;
  /// A register tile of inner products.
  int64_t innerRows, innerCols;
};

/// The sums of products of rows of `a` and `b` over tokens. A work item has
/// columns of blocks and takes a round of tokens at a time, for all blocks of a
/// column; in between the sums are where they end up.
class SDDMMEmitter : Tiling {
public:
  SDDMMEmitter(Emitter &e, SDDMMOp op, Value output,
               const PatternViews &patterns)
      : Tiling(op, e.registers, e.hasStack), e(e), op(op), output(output),
        view(patterns.at({op.getPattern(), true})) {}
  void emit();

private:
  // Outer products: vectors along columns of `b`, which are transposed first.
  void emitOuter(OuterProducts &products, Value strip, const Round &round,
                 Index line);

  // Inner products: vectors along tokens, summed up at last.
  void emitInnerTile(const Round &round, Index slot, Index firstRow,
                     Index firstCol, Index row, Index col);
  void emitInner(const Round &round, Index line);

  Emitter &e;
  SDDMMOp op;
  Value output;
  PatternView view;
};
} // namespace

Tiling::Tiling(SDDMMOp op, Registers registers, bool hasStack)
    : tokens(Activations(op.getA().getType().getShape(), op.getFeatureDim())) {
  PatternType pattern = op.getPattern().getType();
  blockRows = pattern.getBlockRows();
  blockCols = pattern.getBlockCols();
  lines = pattern.getGridCols();
  parts = getParts(lines, 1);
  OpBuilder b(op);
  outType = op.getValues().getType().getElementType();
  sumType = getSumType(b, {op.getA().getType(), op.getB().getType(), outType});
  // Halves are rounded once: all tokens at a time, more than a strip holds.
  bool isRoundedOnce = sumType != outType;
  int64_t lanes = registers.lanes, vectors = registers.tileVectors();
  isOuter = hasStack && !isRoundedOnce && blockCols % lanes == 0 &&
            tokens.activations.tokens % lanes == 0;
  innerRows = getDivisor(blockRows, vectors);
  innerCols = getDivisor(blockCols, Registers::dotCols);
  stripCols = isOuter ? OuterProducts::getCols(blockCols, registers)
                      : innerCols * getDivisor(blockCols / innerCols,
                                               16 / Registers::dotCols);
  tokens.divide(isRoundedOnce ? std::numeric_limits<int64_t>::max() / 2
                              : OuterProducts::getTokens(
                                    std::max<int64_t>(stripCols, 16)),
                registers.panel());
}

//===----------------------------------------------------------------------===//
// Outer products
//===----------------------------------------------------------------------===//

void SDDMMEmitter::emitOuter(OuterProducts &products, Value strip,
                             const Round &round, Index line) {
  e.loop(blockCols / stripCols, {}, [&](Index number, ValueRange) {
    Index col = e.multiplyAdd(number, stripCols, Index::constant(0));
    products.transpose(round, e.multiplyAdd(line, blockCols, col), strip);
    forBlocks(e, view, line, {}, [&](Index slot, Index position, ValueRange) {
      for (const Tiles &tiles : spread(blockRows, products.maxRows()))
        e.loop(tiles.count, {}, [&](Index tile, ValueRange) {
          Index row =
              e.multiplyAdd(tile, tiles.size, Index::constant(tiles.base));
          SmallVector<Value> sums =
              products.multiply(round, e.multiplyAdd(position, blockRows, row),
                                tiles.size, strip);
          e.width = stripCols;
          for (auto [i, sum] : llvm::enumerate(sums)) {
            SmallVector<Index> place{slot, row.plus(i), col};
            place.back().lanes = stripCols > 1;
            storeSum(e, sum, output, place, round);
          }
          e.width = 1;
          return SmallVector<Value>();
        });
      return SmallVector<Value>();
    });
    return SmallVector<Value>();
  });
}

//===----------------------------------------------------------------------===//
// Inner products
//===----------------------------------------------------------------------===//

void SDDMMEmitter::emitInnerTile(const Round &round, Index slot, Index firstRow,
                                 Index firstCol, Index row, Index col) {
  int64_t numSums = innerRows * innerCols;
  // Worth the instructions?
  bool asks = blockRows * blockCols >= 16;
  // Few sums are spread over several vectors of tokens.
  int64_t ways = std::max<int64_t>(1, Registers::dotCols *
                                          e.registers.tileVectors() / numSums);
  Value total;
  int64_t done = 0;
  for (int64_t size = std::min<int64_t>(
           e.registers.lanes, llvm::bit_floor<uint64_t>(tokens.chunk));
       size; size /= 2) {
    int64_t vectors = (tokens.chunk - done) / size;
    if (!vectors)
      continue;
    // A panel in a row, its vectors summed up in turns.
    int64_t unroll =
        getDivisor(vectors, std::max(ways, e.registers.panel() / size));
    int64_t spread = getDivisor(unroll, ways);
    e.width = size;
    SmallVector<int64_t> extents(tokens.slices);
    extents.push_back(vectors / unroll);
    SmallVector<Value> sums = e.nest(
        extents, getZeros(e, sumType, numSums * spread),
        [&](ArrayRef<Index> ivs, ValueRange carried) {
          SmallVector<Index> leading;
          for (auto [at, extent, iv] :
               llvm::zip(round.at, tokens.slices, ivs.drop_back()))
            leading.push_back(e.multiplyAdd(at, extent, iv));
          SmallVector<Value> next(carried);
          Index ahead = e.multiplyAdd(
              round.at.back(), tokens.chunk,
              e.multiplyAdd(
                  ivs.back(), size * unroll,
                  Index::constant(done + linesAhead * size * unroll)));
          for (int64_t i = 0; asks && i != innerRows; ++i)
            e.prefetch(op.getA(),
                       tokens.activations.at(leading, firstRow.plus(i), ahead),
                       size * unroll);
          for (int64_t step = 0; step != unroll; ++step) {
            Index lane = e.multiplyAdd(
                round.at.back(), tokens.chunk,
                e.multiplyAdd(ivs.back(), size * unroll,
                              Index::constant(done + step * size)));
            lane.lanes = size > 1;
            lane.align = size;
            auto read = [&](Value tensor, Index feature) {
              return e.read(tensor,
                            tokens.activations.at(leading, feature, lane));
            };
            SmallVector<Value> as, bs;
            for (int64_t i = 0; i != innerRows; ++i)
              as.push_back(read(op.getA(), firstRow.plus(i)));
            for (int64_t j = 0; j != innerCols; ++j)
              bs.push_back(read(op.getB(), firstCol.plus(j)));
            for (int64_t i = 0; i != innerRows; ++i)
              for (int64_t j = 0; j != innerCols; ++j) {
                Value &sum = next[(i * innerCols + j) * spread + step % spread];
                sum = multiplyAdd(e, as[i], bs[j], sum);
              }
          }
          return next;
        });
    SmallVector<Value> merged;
    for (int64_t number = 0; number != numSums; ++number) {
      Value sum = sums[number * spread];
      for (int64_t way = 1; way != spread; ++way)
        sum =
            arith::AddFOp::create(e.b, e.loc, sum, sums[number * spread + way]);
      merged.push_back(sum);
    }
    Value part = e.sumLanes(merged);
    total = total ? arith::AddFOp::create(e.b, e.loc, total, part) : part;
    done += vectors * size;
  }
  e.width = innerCols;
  for (int64_t i = 0; i != innerRows; ++i) {
    SmallVector<Index> place{slot, row.plus(i), col};
    place.back().lanes = innerCols > 1;
    Value sum =
        innerCols > 1
            ? vector::ExtractStridedSliceOp::create(e.b, e.loc, total,
                                                    i * innerCols, innerCols, 1)
                  .getResult()
            : vector::ExtractOp::create(e.b, e.loc, total, i).getResult();
    storeSum(e, sum, output, place, round);
  }
  e.width = 1;
}

void SDDMMEmitter::emitInner(const Round &round, Index line) {
  forBlocks(e, view, line, {}, [&](Index slot, Index position, ValueRange) {
    e.nest(
        {blockCols / stripCols, blockRows / innerRows, stripCols / innerCols},
        {}, [&](ArrayRef<Index> tile, ValueRange) {
          Index row = e.multiplyAdd(tile[1], innerRows, Index::constant(0));
          Index col = e.multiplyAdd(
              tile[0], stripCols,
              e.multiplyAdd(tile[2], innerCols, Index::constant(0)));
          emitInnerTile(round, slot, e.multiplyAdd(position, blockRows, row),
                        e.multiplyAdd(line, blockCols, col), row, col);
          return SmallVector<Value>();
        });
    return SmallVector<Value>();
  });
}

void SDDMMEmitter::emit() {
  emitParallel(e, parts, [&](ArrayRef<Index> item) {
    OuterProducts products(e, op.getA(), op.getB(), tokens, stripCols, sumType);
    Value strip = isOuter ? products.allocateStrip() : Value();
    e.nest(tokens.rounds, {}, [&](ArrayRef<Index> at, ValueRange) {
      Round round(e, at);
      forLines(e, view, lines, parts, item.front(), [&](Index line) {
        if (isOuter)
          emitOuter(products, strip, round, line);
        else
          emitInner(round, line);
      });
      return SmallVector<Value>();
    });
  });
}

void bsr::emitSDDMM(Emitter &e, SDDMMOp op, Value output,
                    const PatternViews &patterns) {
  SDDMMEmitter(e, op, output, patterns).emit();
}
