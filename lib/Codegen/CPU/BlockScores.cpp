// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for bsr.block_scores.

#include "OuterProducts.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Rows and columns of the matrix that a work item has at most, if blocks are
/// not larger: what it reads of a round (a row of `a` is a KiB, a column of `b`
/// too) and its sums stay in the second-level cache.
static constexpr int64_t maxItemRows = 96, maxItemCols = 128;

namespace {
/// The matrix is computed a tile at a time, one for a work item, which goes
/// through the tokens round by round and takes the norms last.
class ScoresEmitter {
public:
  ScoresEmitter(Emitter &e, BlockScoresOp op, Value output);
  void emit();

private:
  void emitNorms(ArrayRef<Index> item, Value sums);

  Emitter &e;
  BlockScoresOp op;
  Value output;
  TokenRounds tokens;
  int64_t gridRows, gridCols, blockRows, blockCols;
  /// Blocks of a work item, and columns of a strip.
  int64_t itemRows, itemCols, stripCols;
  Type sumType;
};
} // namespace

ScoresEmitter::ScoresEmitter(Emitter &e, BlockScoresOp op, Value output)
    : e(e), op(op), output(output),
      tokens(Activations(op.getA().getType().getShape(), op.getFeatureDim())),
      gridRows(op.getScores().getType().getDimSize(0)),
      gridCols(op.getScores().getType().getDimSize(1)),
      blockRows(op.getBlockRows()), blockCols(op.getBlockCols()),
      itemRows(
          getDivisor(gridRows, std::max<int64_t>(1, maxItemRows / blockRows))),
      itemCols(
          getDivisor(gridCols, std::max<int64_t>(1, maxItemCols / blockCols))),
      stripCols(OuterProducts::getCols(itemCols * blockCols, e.target)),
      sumType(getSumType(e.b, {op.getA().getType(), op.getB().getType()})) {
  tokens.divide(getStripTokens(stripCols, e.target), e.target.panel());
}

void ScoresEmitter::emit() {
  int64_t rows = itemRows * blockRows, cols = itemCols * blockCols;
  int64_t strips = cols / stripCols;
  OuterProducts products(e, op.getA(), op.getB(), tokens, stripCols, sumType);
  e.forall(
      {gridRows / itemRows, gridCols / itemCols}, [&](ArrayRef<Index> item) {
        Index firstRow = e.multiplyAdd(item[0], rows, Index::constant(0));
        Index firstCol = e.multiplyAdd(item[1], cols, Index::constant(0));
        products.allocateStrip();
        Value sums = e.allocate({rows, cols}, sumType);
        e.nest(tokens.rounds, {}, [&](ArrayRef<Index> at, ValueRange) {
          Round round(e, at);
          e.loop(strips, {}, [&](Index number, ValueRange) {
            Index col = e.multiplyAdd(number, stripCols, Index::constant(0));
            products.start(round, e.multiplyAdd(col, 1, firstCol));
            for (const Tiles &tiles : tileEvenly(rows, products.maxRows()))
              e.loop(tiles.count, {}, [&](Index tile, ValueRange) {
                Index row = e.multiplyAdd(tile, tiles.size,
                                          Index::constant(tiles.base));
                SmallVector<Value> tileSums = products.multiply(
                    round, e.multiplyAdd(row, 1, firstRow), tiles.size);
                llvm::SaveAndRestore width(e.width, stripCols);
                for (auto [i, sum] : llvm::enumerate(tileSums)) {
                  SmallVector<Index> place{row.plus(i), col};
                  place.back().lanes = stripCols > 1;
                  storeSum(e, sum, sums, place, round);
                }
                return SmallVector<Value>();
              });
            return SmallVector<Value>();
          });
          return SmallVector<Value>();
        });
        emitNorms(item, sums);
      });
}

/// The norms of the blocks of a work item, from the `sums` of its tile.
void ScoresEmitter::emitNorms(ArrayRef<Index> item, Value sums) {
  e.nest({itemRows, itemCols}, {}, [&](ArrayRef<Index> block, ValueRange) {
    llvm::SaveAndRestore width(e.width, blockCols);
    Value norm = e.loop(
        blockRows, getZeros(e, sumType, 1), [&](Index row, ValueRange norm) {
          SmallVector<Index> place{
              e.multiplyAdd(block[0], blockRows, row),
              e.multiplyAdd(block[1], blockCols, Index::constant(0))};
          place.back().lanes = blockCols > 1;
          return SmallVector<Value>{
              addToNorm(e, op.getNorm(), norm[0], e.load(sums, place))};
        })[0];
    if (blockCols > 1)
      norm = op.getNorm() == Norm::LInf
                 ? vector::ReductionOp::create(
                       e.b, e.loc, vector::CombiningKind::MAXIMUMF, norm)
                       .getResult()
                 : e.sumLanes(norm);
    e.store(finishNorm(e, op.getNorm(), norm), output,
            {e.multiplyAdd(item[0], itemRows, block[0]),
             e.multiplyAdd(item[1], itemCols, block[1])});
    return SmallVector<Value>();
  });
}

void cpu::emitBlockScores(Emitter &e, BlockScoresOp op, Value output) {
  ScoresEmitter(e, op, output).emit();
}
