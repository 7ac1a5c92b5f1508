// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on tensor cores.
//
// A block of threads computes up to 128 by 128 sums: it goes through the inner
// numbers 32 at a time (DenseWalk). Operands lie in shared memory as they lie
// in global memory, and are transposed when fragments are loaded where that is
// the wrong way round.

#include "DenseProduct.h"

using namespace mlir;
using namespace mlir::bsr;

std::optional<DenseProduct> DenseProduct::match(Operation *root, GPUAttr chip) {
  auto operands = DenseOperands::match(root);
  // Sums are stored in pairs.
  if (!operands || !isMultiplied(operands->type) ||
      operands->getType().getShape().back() % 2)
    return std::nullopt;
  DenseProduct product;
  product.operands = *operands;
  product.tile =
      DenseTile::get(*operands, operands->rows.size <= 64 ? 64 : 128,
                     operands->cols.size <= 64 ? 64 : 128, /*isSwizzled=*/false,
                     [](int64_t length, bool) { return getPitch(length); });
  product.tile.setParts(*operands);
  if (!product.tile.setStages(*operands, *findChip(chip.getChip())))
    return std::nullopt;
  return product;
}

namespace mlir::bsr {
/// What a thread does.
class DenseProductEmitter {
public:
  DenseProductEmitter(DenseProduct &product, KernelBody &kernel,
                      const StoredRows &result, BlockBuilder &b);
  void emit();

private:
  SmallVector<Value> multiply(Value left, Value right, ValueRange sums);
  void store(ValueRange sums);
  void emitEpilogue(ValueRange sums);

  int64_t getSum(int64_t row, int64_t col) const {
    return (row * colTiles + col) * 4;
  }

  DenseProduct &product;
  const DenseOperands &operands;
  const DenseTile &tile;
  const StoredRows &result;
  BlockBuilder &b;
  DenseWalk walk;
  /// Fragments of a warp.
  int64_t rowTiles, colTiles;
  /// The lane's first row.
  Value firstRow;
};
} // namespace mlir::bsr

DenseProductEmitter::DenseProductEmitter(DenseProduct &product,
                                         KernelBody &kernel,
                                         const StoredRows &result,
                                         BlockBuilder &b)
    : product(product), operands(product.operands), tile(product.tile),
      result(result), b(b), walk(operands, tile, kernel, b),
      rowTiles(tile.getWarpRows() / fragmentRows),
      colTiles(tile.getWarpCols() / fragmentCols),
      firstRow(b.add(walk.firstRow, b.div(b.lane, 4))) {}

SmallVector<Value> DenseProductEmitter::multiply(Value left, Value right,
                                                 ValueRange sums) {
  SmallVector<Value> next(sums);
  // A fragment of a side, `own` and `inner` numbers into it.
  auto load = [&](const DenseTile::Side &side, Value first, int64_t own,
                  int64_t inner, bool isLeft, bool isInnerLast) {
    int64_t row = isInnerLast ? own : inner;
    int64_t column = isInnerLast ? inner : own;
    // The left one goes through its own numbers before the inner ones, the
    // right one the other way round.
    Value at = b.add(first, getMatrixRow(b, side.pitch,
                                         /*rowsLast=*/isLeft != isInnerLast));
    return b.loadMatrices(b.at(b.at(at),
                               row * side.pitch + column * elementBytes,
                               b.b.getI8Type()),
                          /*transpose=*/!isInnerLast);
  };
  auto getFirst = [&](const DenseTile::Side &side, bool isInnerLast,
                      Value warpFirst, Value at) {
    int64_t unit = isInnerLast ? side.pitch : int64_t(elementBytes);
    return b.multiplyAdd(warpFirst, unit, at);
  };
  bool isLeftInner = operands.left.isInnerLast;
  bool isRightInner = operands.right.isInnerLast;
  Value leftFirst = getFirst(tile.left, isLeftInner, walk.warpRow, left);
  Value rightFirst = getFirst(tile.right, isRightInner, walk.warpCol, right);
  for (int64_t inner = 0; inner != DenseTile::innerTile;
       inner += fragmentRows) {
    SmallVector<SmallVector<Value, 4>> rightFragments;
    for (int64_t col = 0; col != colTiles; col += 2)
      rightFragments.push_back(load(tile.right, rightFirst, col * fragmentCols,
                                    inner, /*isLeft=*/false, isRightInner));
    for (int64_t row = 0; row != rowTiles; ++row) {
      SmallVector<Value, 4> leftFragment =
          load(tile.left, leftFirst, row * fragmentRows, inner,
               /*isLeft=*/true, isLeftInner);
      for (int64_t col = 0; col != colTiles; ++col) {
        MutableArrayRef<Value> sum =
            MutableArrayRef(next).slice(getSum(row, col), 4);
        ArrayRef<Value> right =
            ArrayRef(rightFragments[col / 2]).slice(col % 2 * 2, 2);
        llvm::copy(b.multiply(operands.type, leftFragment, right, sum),
                   sum.begin());
      }
    }
  }
  return next;
}

void DenseProductEmitter::emitEpilogue(ValueRange sums) {
  WarpSums warp = walk.getWarpSums(firstRow);
  for (int64_t row = 0; row != rowTiles; ++row)
    for (int64_t half = 0; half != 2; ++half)
      for (int64_t col = 0; col != colTiles; ++col)
        llvm::append_range(warp.sums,
                           sums.slice(getSum(row, col) + 2 * half, 2));
  warp.numRows = 2 * rowTiles;
  product.epilogue->emit(b, warp);
}

void DenseProductEmitter::store(ValueRange sums) {
  for (int64_t row = 0; row != rowTiles; ++row)
    for (int64_t half = 0; half != 2; ++half) {
      Value number = b.add(firstRow, row * fragmentRows + half * 8);
      SmallVector<Value> at = walk.getStoredRow(result, number);
      walk.whenRow(number, [&] {
        for (int64_t col = 0; col != colTiles; col += 2)
          storeSums(b, sums.slice(getSum(row, col) + 2 * half, 2),
                    sums.slice(getSum(row, col + 1) + 2 * half, 2), result, at,
                    b.add(walk.firstCol, col * fragmentCols),
                    walk.areColumnsRagged());
      });
    }
}

void DenseProductEmitter::emit() {
  SmallVector<Value> sums = walk.run(
      getSum(rowTiles, 0), [&](Value left, Value right, ValueRange sums) {
        return multiply(left, right, sums);
      });
  if (product.hasEpilogueInside())
    emitEpilogue(sums);
  else
    store(sums);
}

void DenseProduct::emitBlock(KernelBody &kernel, const StoredRows &result,
                             BlockBuilder &b) {
  DenseProductEmitter(*this, kernel, result, b).emit();
}
