// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on tensor cores.
//
// A block of threads walks through all tokens (SampledWalk); a warp owns up to
// 4 blocks, whose sums it keeps in registers.

#include "SampledProduct.h"

using namespace mlir;
using namespace mlir::bsr;

std::optional<SampledProduct> SampledProduct::match(Operation *root,
                                                    GPUAttr chip) {
  SampledProduct product;
  product.op = dyn_cast<SDDMMOp>(root);
  if (!product.op ||
      !isMultiplied(product.op.getA().getType().getElementType()))
    return std::nullopt;
  auto tile = SampledTile::match(product.op);
  if (!tile || !isCovered(tile->pattern.getBlockRows()) ||
      !isCovered(tile->pattern.getBlockCols()))
    return std::nullopt;
  // At most 128 sums a thread.
  int64_t blockCols = tile->pattern.getBlockCols();
  tile->warpBlocks = 64 / blockCols;
  tile->united = std::max<int64_t>(1, fragmentRows / blockCols);
  product.tile = *tile;
  if (!product.tile.setStages(*findChip(chip.getChip()), {64, 32}))
    return std::nullopt;
  return product;
}

namespace mlir::bsr {
/// What a thread does.
class SampledProductEmitter {
public:
  /// `values` is the buffer of the result, `[slots, rows, pairs of columns,
  /// 2]`.
  SampledProductEmitter(SampledProduct &product, KernelBody &kernel,
                        const StoredRows &values, BlockBuilder &b);
  void emit();

private:
  SmallVector<Value> multiply(Value stage, ValueRange sums);
  /// Adds the products of rows, `left`, and one block's columns to `sums`.
  SmallVector<Value> multiplyBlock(ArrayRef<SmallVector<Value, 4>> left,
                                   Value columns, ArrayRef<Value> sums);
  void store(ValueRange sums);

  int64_t getSum(int64_t block, int64_t rows, int64_t cols) const {
    return ((block * rowTiles + rows) * colTiles + cols) * 4;
  }

  const SampledTile &tile;
  const StoredRows &values;
  BlockBuilder &b;
  SampledWalk walk;
  Type type;
  int64_t blockRows, blockCols, rowTiles, colTiles, pitch;
};
} // namespace mlir::bsr

SampledProductEmitter::SampledProductEmitter(SampledProduct &product,
                                             KernelBody &kernel,
                                             const StoredRows &values,
                                             BlockBuilder &b)
    : tile(product.tile), values(values), b(b),
      walk(product.op, product.tile, kernel, b),
      type(product.op.getA().getType().getElementType()),
      blockRows(tile.pattern.getBlockRows()),
      blockCols(tile.pattern.getBlockCols()),
      rowTiles(blockRows / fragmentRows), colTiles(blockCols / fragmentCols),
      pitch(tile.getPitch()) {}

SmallVector<Value> SampledProductEmitter::multiply(Value stage,
                                                   ValueRange sums) {
  SmallVector<Value> next(sums);
  Type i8 = b.b.getI8Type();
  // Tokens are summed: they lie side by side for both operands.
  Value rows = b.at(b.add(stage, getMatrixRow(b, pitch, /*rowsLast=*/false)));
  Value warpStage =
      b.multiplyAdd(b.warp, tile.warpBlocks * blockCols * pitch, stage);
  Value cols =
      b.at(b.add(b.add(warpStage, getMatrixRow(b, pitch, /*rowsLast=*/true)),
                 tile.getRowBytes()));
  auto loadRows = [&] {
    SmallVector<SmallVector<Value, 4>> fragments;
    for (int64_t token = 0; token != tile.tokens; token += fragmentRows)
      for (int64_t row = 0; row != blockRows; row += fragmentRows)
        fragments.push_back(
            b.loadMatrices(b.at(rows, row * pitch + token * elementBytes, i8),
                           /*transpose=*/false));
    return fragments;
  };
  // All blocks of a warp share its rows, whose registers one block has not.
  SmallVector<SmallVector<Value, 4>> left;
  if (tile.warpBlocks != 1)
    left = loadRows();
  int64_t count = getSum(1, 0, 0);
  for (int64_t block = 0; block != tile.warpBlocks; ++block) {
    ArrayRef<Value> before = ArrayRef(next).slice(getSum(block, 0, 0), count);
    SmallVector<Value> after = b.when(walk.isStored[block], before, [&] {
      if (tile.warpBlocks == 1)
        left = loadRows();
      Value columns = b.at(cols, block * blockCols * pitch, i8);
      return multiplyBlock(left, columns, before);
    });
    llvm::copy(after, next.begin() + getSum(block, 0, 0));
  }
  return next;
}

SmallVector<Value>
SampledProductEmitter::multiplyBlock(ArrayRef<SmallVector<Value, 4>> left,
                                     Value columns, ArrayRef<Value> sums) {
  SmallVector<Value> next(sums);
  for (int64_t token = 0; token != tile.tokens; token += fragmentRows)
    for (int64_t col = 0; col != colTiles; col += 2) {
      int64_t offset = col * fragmentCols * pitch + token * elementBytes;
      SmallVector<Value, 4> right = b.loadMatrices(
          b.at(columns, offset, b.b.getI8Type()), /*transpose=*/false);
      for (int64_t row = 0; row != rowTiles; ++row)
        for (int64_t half = 0; half != 2; ++half) {
          MutableArrayRef<Value> sum =
              MutableArrayRef(next).slice(getSum(0, row, col + half), 4);
          llvm::copy(b.multiply(type,
                                left[token / fragmentRows * rowTiles + row],
                                ArrayRef(right).slice(2 * half, 2), sum),
                     sum.begin());
        }
    }
  return next;
}

void SampledProductEmitter::store(ValueRange sums) {
  for (int64_t block = 0; block != tile.warpBlocks; ++block)
    walk.withSlot(b.constant(block), [&](Value slot) {
      for (int64_t rows = 0; rows != rowTiles; ++rows)
        for (int64_t half = 0; half != 2; ++half) {
          Value row = b.add(b.div(b.lane, 4), rows * fragmentRows + half * 8);
          for (int64_t cols = 0; cols != colTiles; cols += 2)
            storeSums(b, sums.slice(getSum(block, rows, cols) + 2 * half, 2),
                      sums.slice(getSum(block, rows, cols + 1) + 2 * half, 2),
                      values, {slot, row}, b.constant(cols * fragmentCols),
                      /*isRagged=*/false);
        }
    });
}

void SampledProductEmitter::emit() {
  walk.run(
      getSum(tile.warpBlocks, 0, 0),
      [&](Value stage, ValueRange sums) { return multiply(stage, sums); },
      [&](ValueRange sums) { store(sums); });
}

LogicalResult SampledProduct::emit(OpBuilder &b, KernelBody &kernel,
                                   ValueRange) {
  if (isSmall()) {
    tile.launch(b, kernel.loc,
                [&](BlockBuilder &block) { emitSmall(kernel, block); });
    return success();
  }
  StoredRows values =
      createRows(b, kernel.loc, kernel.outputs.lookup(op.getValues()),
                 {tile.pattern.getSlots(), tile.pattern.getBlockRows()},
                 tile.pattern.getBlockCols());
  tile.launch(b, kernel.loc, [&](BlockBuilder &block) {
    SampledProductEmitter(*this, kernel, values, block).emit();
  });
  return success();
}
