// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on tensor cores, of which a fragment
// has several.
//
// The left operand of `mma` has 16 columns of the warp's blocks as its rows,
// the right one 8 rows of the block row, or 4, and these twice. Columns of
// blocks lie below each other in shared memory, so that 16 of them are those of
// 4, 2 or 1 blocks.

#include "SmallSDDMM.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::optional<SmallSDDMM> SmallSDDMM::match(const BlockProduct &operands,
                                            GPUAttr chip) {
  if (!operands.fitsFragments(/*tf32=*/false) ||
      operands.getLeastExtent() >= fragmentRows)
    return std::nullopt;
  SmallSDDMM product;
  product.op = cast<SDDMMOp>(operands.op);
  product.tile = SDDMMTile::get(operands);
  int64_t blockCols = operands.pattern.getBlockCols();
  // At most 128 sums a thread.
  product.tile.warpBlocks = 64 / blockCols;
  product.tile.united = std::max<int64_t>(1, fragmentRows / blockCols);
  if (!product.tile.setStages(*findChip(chip.getChip()), {64, 32}))
    return std::nullopt;
  return product;
}

namespace mlir::bsr::gpu {
/// What a thread does.
class SmallSDDMMEmitter {
public:
  SmallSDDMMEmitter(SmallSDDMM &product, KernelBody &kernel, BlockBuilder &b);
  void emit();

private:
  /// The tokens of two products, which lie side by side in four matrices.
  static constexpr int64_t pairTokens = 2 * fragmentRows;

  int64_t getNumTiles() const {
    return tile.warpBlocks * blockCols / fragmentRows;
  }
  int64_t getSum(int64_t tile, int64_t strip) const {
    return (tile * strips + strip) * 4;
  }
  /// Whether one of the blocks of a tile of 16 columns is stored.
  Value hasBlock(int64_t tile) {
    return walk.isStored[tile * fragmentRows / blockCols];
  }
  SmallVector<Value> multiply(Value stage, ValueRange sums);
  /// The fragments of all strips for the tokens of a pair from `token` on.
  SmallVector<SmallVector<Value, 4>> loadRows(Value rows, int64_t token);
  void store(ValueRange sums);
  void storeFragment(int64_t tile, int64_t strip, ValueRange sums, Value slot,
                     Value column);

  const SDDMMTile &tile;
  BlockBuilder &b;
  SDDMMWalk walk;
  /// The buffer of the result, `[slots, rows, columns]`.
  Value values;
  Type type;
  int64_t blockRows, blockCols;
  /// Rows of a block that are columns of one fragment, and how many such strips
  /// there are.
  int64_t stripRows, strips;
  int64_t pitch;
};
} // namespace mlir::bsr::gpu

SmallSDDMMEmitter::SmallSDDMMEmitter(SmallSDDMM &product, KernelBody &kernel,
                                     BlockBuilder &b)
    : tile(product.tile), b(b), walk(product.op, product.tile, kernel, b),
      values(kernel.outputs.lookup(product.op.getValues())),
      type(product.op.getA().getType().getElementType()),
      blockRows(tile.shape.getBlockRows()),
      blockCols(tile.shape.getBlockCols()),
      stripRows(std::min(blockRows, fragmentCols)),
      strips(blockRows / stripRows), pitch(tile.getPitch()) {}

SmallVector<SmallVector<Value, 4>> SmallSDDMMEmitter::loadRows(Value rows,
                                                               int64_t token) {
  SmallVector<SmallVector<Value, 4>> fragments;
  for (int64_t strip = 0; strip != strips; ++strip)
    fragments.push_back(b.loadMatrices(
        b.at(rows, strip * fragmentCols * pitch + token * elementBytes,
             b.b.getI8Type()),
        /*transpose=*/false));
  return fragments;
}

SmallVector<Value> SmallSDDMMEmitter::multiply(Value stage, ValueRange sums) {
  SmallVector<Value> next(sums);
  Type i8 = b.b.getI8Type();
  Value row = b.rem(b.rem(b.lane, 8), stripRows);
  Value rows = b.at(b.multiplyAdd(
      row, pitch, b.multiplyAdd(b.div(b.lane, 8), copiedBytes, stage)));
  Value warpStage =
      b.multiplyAdd(b.warp, tile.warpBlocks * blockCols * pitch, stage);
  Value cols =
      b.at(b.add(b.add(warpStage, getMatrixRow(b, pitch, /*rowsLast=*/false)),
                 tile.getRowBytes()));
  for (int64_t token = 0; token != tile.tokens; token += pairTokens) {
    SmallVector<SmallVector<Value, 4>> right = loadRows(rows, token);
    for (int64_t number = 0; number != getNumTiles(); ++number) {
      MutableArrayRef<Value> ofTile =
          MutableArrayRef(next).slice(getSum(number, 0), getSum(1, 0));
      SmallVector<Value> after = b.when(hasBlock(number), ofTile, [&] {
        SmallVector<Value> sums(ofTile);
        for (int64_t half = 0; half != 2; ++half) {
          int64_t offset = number * fragmentRows * pitch +
                           (token + half * fragmentRows) * elementBytes;
          SmallVector<Value, 4> left =
              b.loadMatrices(b.at(cols, offset, i8), /*transpose=*/false);
          for (int64_t strip = 0; strip != strips; ++strip) {
            MutableArrayRef<Value> sum =
                MutableArrayRef(sums).slice(getSum(0, strip), 4);
            ArrayRef<Value> fragment =
                ArrayRef(right[strip]).slice(2 * half, 2);
            llvm::copy(b.multiply(type, left, fragment, sum), sum.begin());
          }
        }
        return sums;
      });
      llvm::copy(after, ofTile.begin());
    }
  }
  return next;
}

void SmallSDDMMEmitter::storeFragment(int64_t number, int64_t strip,
                                      ValueRange sums, Value slot,
                                      Value column) {
  Type element = cast<MemRefType>(values.getType()).getElementType();
  Value row =
      b.multiplyAdd(b.rem(b.lane, 4), 2, b.constant(strip * fragmentCols));
  auto storeRows = [&] {
    for (int64_t i = 0; i != 2; ++i) {
      Value sum = sums[getSum(number, strip) + i];
      if (!element.isF32())
        sum = arith::TruncFOp::create(b.b, b.loc, element, sum);
      b.store(sum, values, ValueRange{slot, b.add(row, i), column});
    }
  };
  if (stripRows == fragmentCols)
    storeRows();
  else
    b.when(b.less(row, b.constant(stripRows)), storeRows);
}

void SmallSDDMMEmitter::store(ValueRange sums) {
  for (int64_t number = 0; number != getNumTiles(); ++number)
    for (int64_t half = 0; half != 2; ++half) {
      Value column = b.add(b.div(b.lane, 4), number * fragmentRows + half * 8);
      walk.withSlot(b.div(column, blockCols), [&](Value slot) {
        Value inBlock = b.rem(column, blockCols);
        for (int64_t strip = 0; strip != strips; ++strip)
          storeFragment(number, strip, sums.drop_front(2 * half), slot,
                        inBlock);
      });
    }
}

void SmallSDDMMEmitter::emit() {
  walk.run(
      getSum(getNumTiles(), 0),
      [&](Value stage, ValueRange sums) { return multiply(stage, sums); },
      [&](ValueRange sums) { store(sums); });
}

LogicalResult SmallSDDMM::emit(OpBuilder &b, KernelBody &kernel, ValueRange) {
  tile.launch(b, kernel.loc, [&](BlockBuilder &block) {
    SmallSDDMMEmitter(*this, kernel, block).emit();
  });
  return success();
}
