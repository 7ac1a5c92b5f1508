// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on arithmetic units.
//
// A block of threads walks through all tokens (SDDMMWalk). A lane has every
// so many'th row and column of the warp's blocks, and every so many'th 4
// tokens: 8 lanes read 128 bytes that lie in different banks, the others read
// the same rows, or columns. In the end, lanes with the same rows and columns
// add up what they have.

#include "LaneSDDMM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::optional<LaneSDDMM> LaneSDDMM::match(const BlockProduct &operands,
                                          GPUAttr chip) {
  if (!operands.fitsLanes())
    return std::nullopt;
  LaneSDDMM product;
  product.op = cast<SDDMMOp>(operands.op);
  SDDMMTile &tile = product.tile;
  tile = SDDMMTile::get(operands);
  // At most 8 rows and 8 columns a lane, 16 of blocks of 64x64.
  constexpr int64_t wantedCols = 32, mostBlocks = 16;
  int64_t blockCols = tile.shape.getBlockCols();
  tile.warpBlocks = std::clamp<int64_t>(wantedCols / blockCols, 1, mostBlocks);
  tile.united = std::max<int64_t>(1, product.getColLanes() / blockCols);
  // Rows that lanes read at once, and what they read of them, are neighbours.
  tile.padding = llvm::alignTo(product.getTokenLanes() * product.getSide() *
                                   tile.shape.elementBytes,
                               copiedBytes) %
                 128;
  // Each lane has as many tokens.
  SmallVector<int64_t> tokens{64, 32};
  if (product.getTokenLanes() * product.getSide() <= 16)
    tokens.push_back(16);
  if (!tile.setStages(*findChip(chip.getChip()), tokens))
    return std::nullopt;
  return product;
}

namespace mlir::bsr::gpu {
/// What a thread does.
class LaneSDDMMEmitter {
public:
  LaneSDDMMEmitter(LaneSDDMM &product, KernelBody &kernel, BlockBuilder &b);
  void emit();

private:
  /// What is multiplied without a loop around it, at most.
  static constexpr int64_t mostProducts = 1024;

  /// Of the lane: rows and columns, in all and of the blocks that are brought
  /// together.
  int64_t getSum(int64_t col, int64_t row) const { return col * rows + row; }
  int64_t getUnitCols() const {
    return tile.united * tile.shape.getBlockCols() / colLanes;
  }
  bool isOneUnit() const { return getUnitCols() == cols; }
  SmallVector<Value> multiply(Value stage, ValueRange sums);
  /// Adds the products of the tokens that are loaded at once, at `rowsAt` and
  /// `colsAt`.
  SmallVector<Value> multiplyTokens(Value rowsAt, Value colsAt,
                                    ValueRange sums);
  /// The same for all tokens of the lane, from there on.
  SmallVector<Value> multiplyTurns(Value rowsAt, Value colsAt, ValueRange sums);
  SmallVector<Value> addTokenLanes(ValueRange sums);
  void store(ValueRange sums);

  const SDDMMTile &tile;
  BlockBuilder &b;
  SDDMMWalk walk;
  /// The buffer of the result, `[slots, rows, columns]`.
  Value values;
  Type type;
  int64_t rowLanes, colLanes, tokenLanes, rows, cols, side;
  /// The lane's first row, column and tokens.
  Value firstRow, firstCol, firstTokens;
};
} // namespace mlir::bsr::gpu

LaneSDDMMEmitter::LaneSDDMMEmitter(LaneSDDMM &product, KernelBody &kernel,
                                   BlockBuilder &b)
    : tile(product.tile), b(b), walk(product.op, product.tile, kernel, b),
      values(kernel.outputs.lookup(product.op.getValues())),
      type(product.op.getA().getType().getElementType()),
      rowLanes(product.getRowLanes()), colLanes(product.getColLanes()),
      tokenLanes(product.getTokenLanes()), rows(product.getRows()),
      cols(product.getCols()), side(product.getSide()) {
  firstTokens = b.rem(b.lane, tokenLanes);
  firstRow = b.rem(b.div(b.lane, tokenLanes), rowLanes);
  firstCol = b.div(b.lane, tokenLanes * rowLanes);
}

SmallVector<Value> LaneSDDMMEmitter::multiplyTokens(Value rowsAt, Value colsAt,
                                                    ValueRange sums) {
  SmallVector<Value> next(sums);
  Type i8 = b.b.getI8Type();
  int64_t pitch = tile.getPitch();
  SmallVector<SmallVector<Value>> left;
  for (int64_t row = 0; row != rows; ++row)
    left.push_back(
        b.loadFloats(b.at(rowsAt, row * rowLanes * pitch, i8), type, side));
  int64_t unitCols = getUnitCols();
  for (int64_t first = 0; first != cols; first += unitCols) {
    MutableArrayRef<Value> ofUnit =
        MutableArrayRef(next).slice(getSum(first, 0), getSum(unitCols, 0));
    Value isStored = walk.isStored[first / unitCols * tile.united];
    auto multiplyUnit = [&] {
      SmallVector<Value> sums(ofUnit);
      for (int64_t col = 0; col != unitCols; ++col) {
        SmallVector<Value> right = b.loadFloats(
            b.at(colsAt, (first + col) * colLanes * pitch, i8), type, side);
        for (int64_t token = 0; token != side; ++token)
          for (int64_t row = 0; row != rows; ++row) {
            Value &sum = sums[getSum(col, row)];
            sum = math::FmaOp::create(b.b, b.loc, left[row][token],
                                      right[token], sum);
          }
      }
      return sums;
    };
    llvm::copy(isOneUnit() ? multiplyUnit()
                           : b.when(isStored, ofUnit, multiplyUnit),
               ofUnit.begin());
  }
  return next;
}

SmallVector<Value> LaneSDDMMEmitter::multiply(Value stage, ValueRange sums) {
  int64_t pitch = tile.getPitch();
  Value tokens =
      b.multiplyAdd(firstTokens, side * tile.shape.elementBytes, stage);
  Value rowsAt = b.at(b.multiplyAdd(firstRow, pitch, tokens));
  int64_t warpCols = tile.warpBlocks * tile.shape.getBlockCols();
  Value col = b.multiplyAdd(b.warp, warpCols, firstCol);
  Value colsAt =
      b.at(b.add(b.multiplyAdd(col, pitch, tokens), tile.getRowBytes()));
  if (!isOneUnit())
    return multiplyTurns(rowsAt, colsAt, sums);
  return b.when(walk.isStored[0], sums,
                [&] { return multiplyTurns(rowsAt, colsAt, sums); });
}

SmallVector<Value> LaneSDDMMEmitter::multiplyTurns(Value rowsAt, Value colsAt,
                                                   ValueRange sums) {
  // Each lane has the same number of tokens of a turn.
  int64_t turns = tile.tokens / side / tokenLanes;
  int64_t bytes = tokenLanes * side * tile.shape.elementBytes;
  int64_t step =
      std::clamp<int64_t>(mostProducts / (side * getSum(cols, 0)), 1, turns);
  auto multiply = [&](Value rowsAt, Value colsAt, ValueRange sums) {
    SmallVector<Value> next(sums);
    for (int64_t turn = 0; turn != step; ++turn)
      next = multiplyTokens(b.at(rowsAt, turn * bytes, b.b.getI8Type()),
                            b.at(colsAt, turn * bytes, b.b.getI8Type()), next);
    return next;
  };
  if (step == turns)
    return multiply(rowsAt, colsAt, sums);
  return b.loop(b.constant(0), b.constant(turns), step, sums,
                [&](Value turn, ValueRange sums) {
                  Value offset = b.mul(turn, bytes);
                  return multiply(b.at(rowsAt, offset, b.b.getI8Type()),
                                  b.at(colsAt, offset, b.b.getI8Type()), sums);
                });
}

SmallVector<Value> LaneSDDMMEmitter::addTokenLanes(ValueRange sums) {
  return llvm::map_to_vector(sums, [&](Value sum) -> Value {
    for (int64_t mask = 1; mask != tokenLanes; mask *= 2)
      sum = arith::AddFOp::create(b.b, b.loc, sum, b.exchange(sum, mask));
    return sum;
  });
}

void LaneSDDMMEmitter::store(ValueRange sums) {
  Type element = cast<MemRefType>(values.getType()).getElementType();
  int64_t blockCols = tile.shape.getBlockCols();
  SmallVector<Value> all = addTokenLanes(sums);
  b.when(b.equal(firstTokens, b.constant(0)), [&] {
    for (int64_t col = 0; col != cols; ++col) {
      Value number = b.add(firstCol, col * colLanes);
      walk.withSlot(b.div(number, blockCols), [&](Value slot) {
        for (int64_t row = 0; row != rows; ++row) {
          Value sum = all[getSum(col, row)];
          if (!element.isF32())
            sum = arith::TruncFOp::create(b.b, b.loc, element, sum);
          b.store(sum, values,
                  ValueRange{slot, b.add(firstRow, row * rowLanes),
                             b.rem(number, blockCols)});
        }
      });
    }
  });
}

void LaneSDDMMEmitter::emit() {
  walk.run(
      getSum(cols, 0),
      [&](Value stage, ValueRange sums) { return multiply(stage, sums); },
      [&](ValueRange sums) { store(sums); });
}

LogicalResult LaneSDDMM::emit(OpBuilder &b, KernelBody &kernel, ValueRange) {
  tile.launch(b, kernel.loc, [&](BlockBuilder &block) {
    LaneSDDMMEmitter(*this, kernel, block).emit();
  });
  return success();
}
