// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.sddmm.

#include "SparseKernels.h"
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

  Activations activations;
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
  /// A round has `slices` of the leading dimensions and `chunk` lanes of each.
  SmallVector<int64_t> rounds, slices;
  int64_t chunk;

private:
  void divideTokens(int64_t limit, int64_t panel);
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
  /// A round of tokens: where the loops over rounds are, and whether it is the
  /// first, which writes the sums that the others add to (null: the only one).
  struct Round {
    SmallVector<Index> at;
    Value isFirst;
  };
  /// Consecutive tokens: the leading indices, the first lane, and how many
  /// tokens of the round precede.
  struct Tokens {
    SmallVector<Index> leading;
    Index lane, number;
  };

  /// A loop over the tokens of `round`, `size` lanes at a time.
  SmallVector<Value> forTokens(
      const Round &round, int64_t size, ValueRange inits,
      llvm::function_ref<SmallVector<Value>(const Tokens &, ValueRange)> body);
  void write(Value sum, ArrayRef<Index> place, const Round &round);

  // Outer products: vectors along columns of `b`, which are transposed first.
  SmallVector<Index> getStripPlace(Index token, int64_t col);
  void transpose(const Round &round, Index firstCol);
  void emitOuterTile(const Round &round, Index slot, Index firstRow, Index row,
                     Index col, int64_t rows);
  void emitOuter(const Round &round, Index line);

  // Inner products: vectors along tokens, summed up at last.
  void emitInnerTile(const Round &round, Index slot, Index firstRow,
                     Index firstCol, Index row, Index col);
  void emitInner(const Round &round, Index line);

  Emitter &e;
  SDDMMOp op;
  Value output;
  PatternView view;
  /// The memory of a work item for what it transposes.
  Value strip;
};
} // namespace

Tiling::Tiling(SDDMMOp op, Registers registers, bool hasStack)
    : activations(op.getA().getType().getShape(), op.getFeatureDim()) {
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
            activations.tokens % lanes == 0;
  innerRows = getDivisor(blockRows, vectors);
  innerCols = getDivisor(blockCols, Registers::dotCols);
  stripCols = isOuter ? lanes * getDivisor(blockCols / lanes, vectors)
                      : innerCols * getDivisor(blockCols / innerCols,
                                               16 / Registers::dotCols);
  divideTokens(isRoundedOnce
                   ? std::numeric_limits<int64_t>::max() / 2
                   : std::max<int64_t>(cacheBytes / (4 * stripCols), 1),
               registers.panel());
}

/// Rounds of at most `limit` tokens, if divisors of what there is allow it.
void Tiling::divideTokens(int64_t limit, int64_t panel) {
  int64_t taken = activations.tokens;
  for (int64_t extent : llvm::reverse(activations.leading)) {
    int64_t inner = taken > limit ? 1 : getDivisor(extent, limit / taken);
    slices.insert(slices.begin(), inner);
    rounds.insert(rounds.begin(), extent / inner);
    taken = inner == extent ? taken * inner : limit + 1;
  }
  chunk = activations.tokens;
  if (chunk > limit)
    chunk = std::max(panel, limit / panel * panel);
  if (activations.tokens % chunk)
    chunk = activations.tokens;
  rounds.push_back(activations.tokens / chunk);
}

SmallVector<Value> SDDMMEmitter::forTokens(
    const Round &round, int64_t size, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(const Tokens &, ValueRange)> body) {
  SmallVector<int64_t> extents(slices);
  extents.push_back(chunk / size);
  return e.nest(extents, inits, [&](ArrayRef<Index> ivs, ValueRange carried) {
    Tokens tokens;
    Index slice = Index::constant(0);
    for (auto [at, iv, extent] : llvm::zip(round.at, ivs.drop_back(), slices)) {
      tokens.leading.push_back(e.multiplyAdd(at, extent, iv));
      slice = e.multiplyAdd(slice, extent, iv);
    }
    Index first = e.multiplyAdd(ivs.back(), size, Index::constant(0));
    tokens.lane = e.multiplyAdd(round.at.back(), chunk, first);
    tokens.number = e.multiplyAdd(slice, chunk, first);
    return body(tokens, carried);
  });
}

void SDDMMEmitter::write(Value sum, ArrayRef<Index> place, const Round &round) {
  sum = e.convert(sum, outType);
  if (round.isFirst) {
    Value zero = e.broadcast(
        arith::ConstantOp::create(e.b, e.loc, e.b.getZeroAttr(outType)));
    Value old = arith::SelectOp::create(e.b, e.loc, round.isFirst, zero,
                                        e.load(output, place));
    sum = arith::AddFOp::create(e.b, e.loc, old, sum);
  }
  e.store(sum, output, place);
}

//===----------------------------------------------------------------------===//
// Outer products
//===----------------------------------------------------------------------===//

/// Where the strip has `stripCols` columns, or vectors of them, of a token.
SmallVector<Index> SDDMMEmitter::getStripPlace(Index token, int64_t col) {
  SmallVector<Index> place{token, Index::constant(col)};
  place.back().lanes = e.width > 1;
  return place;
}

/// Writes the strip: columns from `firstCol` on, side by side for each token.
void SDDMMEmitter::transpose(const Round &round, Index firstCol) {
  int64_t lanes = e.registers.lanes, panel = e.registers.panel();
  int64_t size = chunk % panel ? lanes : panel;
  e.width = lanes;
  forTokens(round, size, {}, [&](const Tokens &tokens, ValueRange) {
    for (int64_t col = 0; col != stripCols; ++col)
      e.prefetch(op.getB(),
                 activations.at(tokens.leading, firstCol.plus(col),
                                tokens.lane.plus(size)),
                 size);
    for (int64_t first = 0; first != size; first += lanes) {
      Index lane = tokens.lane.plus(first);
      lane.lanes = lanes > 1;
      lane.align = lanes;
      for (int64_t col = 0; col != stripCols; col += lanes) {
        SmallVector<Value> rows;
        for (int64_t i = 0; i != lanes; ++i)
          rows.push_back(e.convert(
              e.read(op.getB(), activations.at(tokens.leading,
                                               firstCol.plus(col + i), lane)),
              sumType));
        for (auto [i, row] : llvm::enumerate(e.transpose(rows)))
          e.store(row, strip,
                  getStripPlace(tokens.number.plus(first + i), col));
      }
    }
    return SmallVector<Value>();
  });
  e.width = 1;
}

/// `rows` rows of a block from `row` on, which is row `firstRow` of `a`, times
/// a strip: for each token, elements of `a` times vectors of the strip.
void SDDMMEmitter::emitOuterTile(const Round &round, Index slot, Index firstRow,
                                 Index row, Index col, int64_t rows) {
  // A cache line of tokens at a time, asked for long enough before: a row's
  // next line is a panel away, where no processor expects it.
  constexpr int64_t linesAhead = 3;
  int64_t bytes = op.getA().getType().getElementTypeBitWidth() / 8;
  int64_t size = getDivisor(chunk, lineBytes / bytes);
  int64_t unroll = getDivisor(size, 4);
  auto place = [&](const Tokens &tokens, int64_t number, Index token) {
    return activations.at(tokens.leading, firstRow.plus(number), token);
  };
  e.width = stripCols;
  SmallVector<Value> sums = forTokens(
      round, size, getZeros(e, sumType, rows),
      [&](const Tokens &tokens, ValueRange carried) {
        for (int64_t number = 0; number != rows; ++number)
          e.prefetch(op.getA(),
                     place(tokens, number, tokens.lane.plus(linesAhead * size)),
                     1);
        return e.loop(
            size / unroll, carried, [&](Index step, ValueRange carried) {
              SmallVector<Value> sums(carried);
              for (int64_t i = 0; i != unroll; ++i) {
                Value vector = e.load(
                    strip,
                    getStripPlace(
                        e.multiplyAdd(step, unroll, tokens.number.plus(i)), 0));
                Index token = e.multiplyAdd(step, unroll, tokens.lane.plus(i));
                for (auto [number, sum] : llvm::enumerate(sums))
                  sum = multiplyAdd(
                      e, e.read(op.getA(), place(tokens, number, token)),
                      vector, sum);
              }
              return sums;
            });
      });
  for (auto [number, sum] : llvm::enumerate(sums)) {
    SmallVector<Index> at{slot, row.plus(number), col};
    at.back().lanes = stripCols > 1;
    write(sum, at, round);
  }
  e.width = 1;
}

void SDDMMEmitter::emitOuter(const Round &round, Index line) {
  int64_t vectors = stripCols / e.registers.lanes;
  int64_t limit = Registers::tileRows * e.registers.tileVectors() / vectors;
  e.loop(blockCols / stripCols, {}, [&](Index number, ValueRange) {
    Index col = e.multiplyAdd(number, stripCols, Index::constant(0));
    transpose(round, e.multiplyAdd(line, blockCols, col));
    forBlocks(e, view, line, {}, [&](Index slot, Index position, ValueRange) {
      for (const Tiles &tiles : spread(blockRows, limit))
        e.loop(tiles.count, {}, [&](Index tile, ValueRange) {
          Index row =
              e.multiplyAdd(tile, tiles.size, Index::constant(tiles.base));
          emitOuterTile(round, slot, e.multiplyAdd(position, blockRows, row),
                        row, col, tiles.size);
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
  // Few sums are spread over several vectors of tokens.
  int64_t ways = std::max<int64_t>(1, Registers::dotCols *
                                          e.registers.tileVectors() / numSums);
  Value total;
  int64_t done = 0;
  for (int64_t size = std::min<int64_t>(e.registers.lanes,
                                        llvm::bit_floor<uint64_t>(chunk));
       size; size /= 2) {
    int64_t vectors = (chunk - done) / size;
    if (!vectors)
      continue;
    // A panel in a row, its vectors summed up in turns.
    int64_t unroll =
        getDivisor(vectors, std::max(ways, e.registers.panel() / size));
    int64_t spread = getDivisor(unroll, ways);
    e.width = size;
    SmallVector<int64_t> extents(slices);
    extents.push_back(vectors / unroll);
    SmallVector<Value> sums = e.nest(
        extents, getZeros(e, sumType, numSums * spread),
        [&](ArrayRef<Index> ivs, ValueRange carried) {
          SmallVector<Index> leading;
          for (auto [at, extent, iv] :
               llvm::zip(round.at, slices, ivs.drop_back()))
            leading.push_back(e.multiplyAdd(at, extent, iv));
          SmallVector<Value> next(carried);
          for (int64_t step = 0; step != unroll; ++step) {
            Index lane = e.multiplyAdd(
                round.at.back(), chunk,
                e.multiplyAdd(ivs.back(), size * unroll,
                              Index::constant(done + step * size)));
            lane.lanes = size > 1;
            lane.align = size;
            auto read = [&](Value tensor, Index feature) {
              return e.read(tensor, activations.at(leading, feature, lane));
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
    write(sum, place, round);
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
    if (isOuter) {
      int64_t tokens = chunk;
      for (int64_t extent : slices)
        tokens *= extent;
      strip = e.allocate({tokens, stripCols}, sumType);
    }
    e.nest(rounds, {}, [&](ArrayRef<Index> at, ValueRange) {
      Round round{SmallVector<Index>(at), e.areZero(at)};
      forLines(e, view, lines, parts, item.front(), [&](Index line) {
        if (isOuter)
          emitOuter(round, line);
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
