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
  if (!product.op)
    return std::nullopt;
  Type type = product.op.getA().getType().getElementType();
  if (!isMultiplied(type, chip.getTf32()))
    return std::nullopt;
  auto tile = SampledTile::match(product.op);
  if (!tile || !isCovered(tile->pattern.getBlockRows(), type) ||
      !isCovered(tile->pattern.getBlockCols(), type))
    return std::nullopt;
  // At most 128 sums a thread.
  int64_t blockCols = tile->pattern.getBlockCols();
  tile->warpBlocks = 64 / blockCols;
  tile->united = std::max<int64_t>(1, fragmentRows / blockCols);
  product.tile = *tile;
  // As many bytes of each row, whatever its elements.
  int64_t most = 128 / tile->elementBytes;
  if (!product.tile.setStages(*findChip(chip.getChip()), {most, most / 2}))
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
  SmallVector<Value> multiplyBlock(ArrayRef<SmallVector<Value, 8>> left,
                                   Value columns, ArrayRef<Value> sums);
  void store(ValueRange sums);

  int64_t getSum(int64_t block, int64_t rows, int64_t cols) const {
    return ((block * rowTiles + rows) * colTiles + cols) * 4;
  }

  const SampledTile &tile;
  const StoredRows &values;
  BlockBuilder &b;
  SampledWalk walk;
  Fragments fragments;
  int64_t blockRows, blockCols, rowTiles, colTiles, pitch;
};
} // namespace mlir::bsr

SampledProductEmitter::SampledProductEmitter(SampledProduct &product,
                                             KernelBody &kernel,
                                             const StoredRows &values,
                                             BlockBuilder &b)
    : tile(product.tile), values(values), b(b),
      walk(product.op, product.tile, kernel, b),
      fragments(product.op.getA().getType().getElementType()),
      blockRows(tile.pattern.getBlockRows()),
      blockCols(tile.pattern.getBlockCols()),
      rowTiles(blockRows / fragmentRows), colTiles(blockCols / fragmentCols),
      pitch(tile.getPitch()) {}

SmallVector<Value> SampledProductEmitter::multiply(Value stage,
                                                   ValueRange sums) {
  SmallVector<Value> next(sums);
  Type i8 = b.b.getI8Type();
  // Tokens are summed: they lie side by side for both operands.
  auto getPlace = [&](bool isLeft) {
    return fragments.getLanePlace(b, pitch, /*isInnerLast=*/true, isLeft);
  };
  Value rows = b.at(b.add(stage, getPlace(/*isLeft=*/true)));
  Value warpStage =
      b.multiplyAdd(b.warp, tile.warpBlocks * blockCols * pitch, stage);
  Value cols = b.at(
      b.add(b.add(warpStage, getPlace(/*isLeft=*/false)), tile.getRowBytes()));
  auto loadRows = [&] {
    SmallVector<SmallVector<Value, 8>> units;
    for (int64_t token = 0; token != tile.tokens; token += fragmentRows)
      for (int64_t row = 0; row != blockRows; row += fragmentRows) {
        int64_t offset = row * pitch + token * fragments.elementBytes;
        units.push_back(fragments.load(b, b.at(rows, offset, i8), pitch,
                                       /*isInnerLast=*/true, /*isLeft=*/true));
      }
    return units;
  };
  // All blocks of a warp share its rows, whose registers one block has not.
  SmallVector<SmallVector<Value, 8>> left;
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
SampledProductEmitter::multiplyBlock(ArrayRef<SmallVector<Value, 8>> left,
                                     Value columns, ArrayRef<Value> sums) {
  SmallVector<Value> next(sums);
  for (int64_t token = 0; token != tile.tokens; token += fragmentRows)
    for (int64_t col = 0; col != colTiles; col += 2) {
      int64_t offset =
          col * fragmentCols * pitch + token * fragments.elementBytes;
      SmallVector<Value, 8> right =
          fragments.load(b, b.at(columns, offset, b.b.getI8Type()), pitch,
                         /*isInnerLast=*/true, /*isLeft=*/false);
      for (int64_t row = 0; row != rowTiles; ++row)
        for (int64_t half = 0; half != 2; ++half)
          fragments.multiplyAdd(
              b, left[token / fragmentRows * rowTiles + row], right, half,
              MutableArrayRef(next).slice(getSum(0, row, col + half), 4));
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
