// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations, a block row at a time.
//
// A thread block goes through all tokens (RowMainloop), and multiplies units
// of its columns, those of one or several blocks, by all rows, which it keeps
// in registers for some tokens.
//
// On tensor cores a unit is of 16 columns, which are the rows of the left
// operand, and rows of the block row are columns of the right one, 8 of each
// fragment, or 4, and these twice. Columns of blocks lie below each other in
// shared memory, so that 16 of them are those of 4, 2 or 1 blocks.
//
// Without, a lane has every so many'th row and column, and every so many'th 4
// tokens: 8 lanes read 128 bytes that lie in different banks, the others read
// the same rows, or columns. In the end, lanes with the same rows and columns
// add up what they have.

#include "RowSDDMM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Tokens of two fragments, which lie side by side in four matrices.
static constexpr int64_t pairTokens = 2 * fragmentRows;

std::optional<RowSDDMM> RowSDDMM::matchWarp(const BlockProduct &operands,
                                            const Chip &chip) {
  if (!operands.fitsFragments(/*tf32=*/false) ||
      operands.getLeastExtent() >= fragmentRows)
    return std::nullopt;
  RowSDDMM product;
  product.isOnTensorCores = true;
  product.tile = RowTile::get(operands);
  int64_t blockCols = operands.pattern.getBlockCols();
  // At most 128 sums a thread.
  product.tile.warpBlocks = 64 / blockCols;
  product.tile.united = std::max<int64_t>(1, fragmentRows / blockCols);
  if (!product.tile.setStages(chip, {64, 32}))
    return std::nullopt;
  return product;
}

std::optional<RowSDDMM> RowSDDMM::matchLane(const BlockProduct &operands,
                                            const Chip &chip) {
  if (!operands.fitsLanes())
    return std::nullopt;
  RowSDDMM product;
  RowTile &tile = product.tile;
  tile = RowTile::get(operands);
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
  if (!tile.setStages(chip, tokens))
    return std::nullopt;
  return product;
}

std::optional<RowSDDMM> RowSDDMM::match(const BlockProduct &operands,
                                        GPUAttr target) {
  const Chip &chip = *findChip(target.getChip());
  std::optional<RowSDDMM> product = matchWarp(operands, chip);
  if (!product)
    product = matchLane(operands, chip);
  if (product)
    product->op = cast<SDDMMOp>(operands.op);
  return product;
}

namespace mlir::bsr::gpu {
/// What a thread does.
class RowSDDMMEmitter {
public:
  RowSDDMMEmitter(RowSDDMM &product, KernelBody &kernel, BlockBuilder &b)
      : tile(product.tile), b(b), mainloop(product.op, product.tile, kernel, b),
        values(kernel.outputs.lookup(product.op.getValues())),
        type(product.op.getA().getType().getElementType()),
        isOnTensorCores(product.isOnTensorCores),
        blockCols(tile.shape.getBlockCols()) {
    if (isOnTensorCores)
      setWarp();
    else
      setLane(product);
  }

  void emit();

private:
  /// Numbers of a lane: `count`, of which `together` are neighbours, and the
  /// next ones begin `distance` behind these; those from `end` on are another
  /// lane's.
  struct Numbers {
    Value first;
    int64_t count, together, distance, end;

    Value get(BlockBuilder &b, int64_t i) const {
      return b.add(first, i / together * distance + i % together);
    }
  };

  void setWarp();
  void setLane(const RowSDDMM &product);
  int64_t getNumUnits() const { return tile.warpBlocks * blockCols / unitCols; }
  SmallVector<Value> multiply(Value stage, ValueRange sums);
  /// Adds the products of the tokens that are loaded at once, at `rowsAt` and
  /// `colsAt`.
  SmallVector<Value> multiplyTokens(Value rowsAt, Value colsAt,
                                    ValueRange sums);
  void store(ValueRange sums);
  void storeColumn(ValueRange sums, Value slot, Value column);

  const RowTile &tile;
  BlockBuilder &b;
  RowMainloop mainloop;
  /// The buffer of the result, `[slots, rows, columns]`.
  Value values;
  Type type;
  bool isOnTensorCores;
  int64_t blockCols;

  /// What multiplies all rows and a unit of columns, `turnTokens` at a time;
  /// and which of its operands rows are, where they begin in a stage.
  std::unique_ptr<Multiplier> multiplier;
  Multiplier::Side rowsSide, colsSide;
  /// Columns of a unit of the warp, and tokens of a turn of it, how many turns
  /// are written out, and where what the lane has of these begins in a row.
  int64_t unitCols, turnTokens, turnsTogether;
  Value firstBytes;
  /// Of the lane, its rows and the columns of a unit.
  Numbers rows, cols;
  /// Lanes that share rows and columns, and the lane's number among these.
  int64_t tokenLanes = 1;
  Value tokenLane;
};
} // namespace mlir::bsr::gpu

void RowSDDMMEmitter::setWarp() {
  // Rows of a block that are columns of one fragment.
  int64_t stripRows = std::min(tile.shape.getBlockRows(), fragmentCols);
  int64_t strips = tile.shape.getBlockRows() / stripRows;
  rowsSide = Multiplier::Right;
  colsSide = Multiplier::Left;
  unitCols = fragmentRows;
  turnTokens = pairTokens;
  turnsTogether = tile.tokens / turnTokens;
  firstBytes = b.constant(0);
  WarpMultiplier::Operand ofCols{tile.getPitch(), /*isInnerLast=*/true};
  WarpMultiplier::Operand ofRows = ofCols;
  ofRows.count = stripRows;
  multiplier = std::make_unique<WarpMultiplier>(
      b, WarpMultiplier::Shape{type, /*rows=*/1, strips, turnTokens, rowsSide},
      ofCols, ofRows);
  rows = {b.mul(b.rem(b.lane, 4), 2), 2 * strips, /*together=*/2,
          /*distance=*/fragmentCols, stripRows};
  cols = {b.div(b.lane, 4), 2, /*together=*/1, /*distance=*/8, unitCols};
}

void RowSDDMMEmitter::setLane(const RowSDDMM &product) {
  int64_t rowLanes = product.getRowLanes(), colLanes = product.getColLanes();
  int64_t side = product.getSide();
  // What is multiplied without a loop around it, at most.
  constexpr int64_t mostProducts = 1024;
  rowsSide = Multiplier::Left;
  colsSide = Multiplier::Right;
  unitCols = tile.united * blockCols;
  tokenLanes = product.getTokenLanes();
  tokenLane = b.rem(b.lane, tokenLanes);
  turnTokens = tokenLanes * side;
  turnsTogether = std::clamp<int64_t>(
      mostProducts / (side * product.getRows() * product.getCols()), 1,
      tile.tokens / turnTokens);
  firstBytes = b.mul(tokenLane, side * tile.shape.elementBytes);
  rows = {b.rem(b.div(b.lane, tokenLanes), rowLanes), product.getRows(),
          /*together=*/1, rowLanes, tile.shape.getBlockRows()};
  cols = {b.div(b.lane, tokenLanes * rowLanes), unitCols / colLanes,
          /*together=*/1, colLanes, unitCols};
  auto getOperand = [&](const Numbers &numbers) {
    return LaneMultiplier::Operand{tile.getPitch(),  /*isInnerLast=*/true,
                                   numbers.count,    numbers.together,
                                   numbers.distance, numbers.first};
  };
  multiplier = std::make_unique<LaneMultiplier>(
      b, LaneMultiplier::Shape{type, /*depth=*/side, /*together=*/side},
      SumLayout(), getOperand(rows), getOperand(cols));
}

SmallVector<Value> RowSDDMMEmitter::multiplyTokens(Value rowsAt, Value colsAt,
                                                   ValueRange sums) {
  SmallVector<Value> next(sums), kept = multiplier->load(rowsSide, rowsAt);
  int64_t ofUnit = multiplier->numSums;
  for (int64_t unit = 0; unit != getNumUnits(); ++unit) {
    SmallVector<Value> before(ArrayRef(next).slice(unit * ofUnit, ofUnit));
    auto multiplyUnit = [&] {
      Value at =
          b.at(colsAt, unit * unitCols * tile.getPitch(), b.b.getI8Type());
      return rowsSide == Multiplier::Left
                 ? multiplier->multiply(kept, at, before)
                 : multiplier->multiply(at, kept, before);
    };
    Value isStored = mainloop.isStored[unit * unitCols / blockCols];
    llvm::copy(getNumUnits() == 1 ? multiplyUnit()
                                  : b.when(isStored, before, multiplyUnit),
               next.begin() + unit * ofUnit);
  }
  return next;
}

SmallVector<Value> RowSDDMMEmitter::multiply(Value stage, ValueRange sums) {
  Type i8 = b.b.getI8Type();
  Value tokens = b.add(stage, firstBytes);
  Value rowsAt = multiplier->at(rowsSide, tokens);
  int64_t warpBytes = tile.warpBlocks * blockCols * tile.getPitch();
  Value colsAt =
      multiplier->at(colsSide, b.add(b.multiplyAdd(b.warp, warpBytes, tokens),
                                     tile.getRowBytes()));
  auto multiplyAll = [&] {
    int64_t bytes = turnTokens * tile.shape.elementBytes;
    return b.unroll(tile.tokens / turnTokens, turnsTogether, sums,
                    [&](Value first, int64_t i, ValueRange sums) {
                      auto move = [&](Value pointer) {
                        return b.at(b.at(pointer, b.mul(first, bytes), i8),
                                    i * bytes, i8);
                      };
                      return multiplyTokens(move(rowsAt), move(colsAt), sums);
                    });
  };
  return getNumUnits() == 1 ? b.when(mainloop.isStored[0], sums, multiplyAll)
                            : multiplyAll();
}

void RowSDDMMEmitter::storeColumn(ValueRange sums, Value slot, Value column) {
  Type element = cast<MemRefType>(values.getType()).getElementType();
  for (int64_t i = 0; i != rows.count; i += rows.together) {
    auto storeRows = [&] {
      for (int64_t j = i; j != i + rows.together; ++j) {
        Value sum = sums[j];
        if (!element.isF32())
          sum = arith::TruncFOp::create(b.b, b.loc, element, sum);
        b.store(sum, values, ValueRange{slot, rows.get(b, j), column});
      }
    };
    if (isOnTensorCores && rows.end < fragmentCols)
      b.when(b.less(rows.get(b, i), b.constant(rows.end)), storeRows);
    else
      storeRows();
  }
}

void RowSDDMMEmitter::store(ValueRange sums) {
  SmallVector<Value> all = llvm::map_to_vector(sums, [&](Value sum) -> Value {
    for (int64_t mask = 1; mask != tokenLanes; mask *= 2)
      sum = arith::AddFOp::create(b.b, b.loc, sum, b.exchange(sum, mask));
    return sum;
  });
  auto storeAll = [&] {
    int64_t ofUnit = multiplier->numSums;
    for (int64_t unit = 0; unit != getNumUnits(); ++unit) {
      SmallVector<Value> own =
          multiplier->getRows(ValueRange(all).slice(unit * ofUnit, ofUnit));
      for (int64_t col = 0; col != cols.count; ++col) {
        // Rows of sums are columns of blocks where these are the left operand.
        SmallVector<Value> ofColumn;
        for (int64_t row = 0; row != rows.count; ++row)
          ofColumn.push_back(
              own[colsSide == Multiplier::Left ? col * rows.count + row
                                               : row * cols.count + col]);
        Value number = b.add(cols.get(b, col), unit * unitCols);
        mainloop.withSlot(b.div(number, blockCols), [&](Value slot) {
          storeColumn(ofColumn, slot, b.rem(number, blockCols));
        });
      }
    }
  };
  if (tokenLanes == 1)
    storeAll();
  else
    b.when(b.equal(tokenLane, b.constant(0)), storeAll);
}

void RowSDDMMEmitter::emit() {
  mainloop.run(
      getNumUnits() * multiplier->numSums,
      [&](Value stage, ValueRange sums) { return multiply(stage, sums); },
      [&](ValueRange sums) { store(sums); });
}

LogicalResult RowSDDMM::emit(OpBuilder &b, KernelBody &kernel, ValueRange) {
  tile.launch(b, kernel.loc, [&](BlockBuilder &block) {
    RowSDDMMEmitter(*this, kernel, block).emit();
  });
  return success();
}
