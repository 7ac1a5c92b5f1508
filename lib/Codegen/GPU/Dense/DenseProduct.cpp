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
using namespace mlir::bsr::gpu;

std::optional<DenseProduct> DenseProduct::match(const DenseOperands &operands,
                                                GPUAttr chip) {
  // Sums are stored in pairs.
  if (!isMultiplied(operands.type, chip.getTf32()) ||
      (!operands.norms && operands.getType().getShape().back() % 2))
    return std::nullopt;
  DenseProduct product;
  product.operands = operands;
  product.tile =
      DenseTile::get(operands, operands.rows.size <= 64 ? 64 : 128,
                     operands.cols.size <= 64 ? 64 : 128, /*isSwizzled=*/false,
                     [&](int64_t length, bool isInnerLast) {
                       return Fragments::getPitch(
                           length, operands.getElementBytes(), isInnerLast);
                     });
  product.tile.setParts(operands);
  if (!product.tile.setStages(operands, *findChip(chip.getChip())))
    return std::nullopt;
  return product;
}

namespace mlir::bsr::gpu {
/// What a thread does.
class DenseProductEmitter {
public:
  DenseProductEmitter(DenseProduct &product, KernelBody &kernel,
                      const StoredRows &result, BlockBuilder &b);
  void emit();

private:
  SmallVector<Value> multiply(Value left, Value right, ValueRange sums);
  void store(ValueRange sums);
  WarpSums getWarpSums(ValueRange sums);

  int64_t getSum(int64_t row, int64_t col) const {
    return (row * colTiles + col) * 4;
  }

  DenseProduct &product;
  const DenseOperands &operands;
  const DenseTile &tile;
  KernelBody &kernel;
  const StoredRows &result;
  BlockBuilder &b;
  DenseWalk walk;
  Fragments fragments;
  /// Fragments of a warp.
  int64_t rowTiles, colTiles;
  /// The lane's first row.
  Value firstRow;
};
} // namespace mlir::bsr::gpu

DenseProductEmitter::DenseProductEmitter(DenseProduct &product,
                                         KernelBody &kernel,
                                         const StoredRows &result,
                                         BlockBuilder &b)
    : product(product), operands(product.operands), tile(product.tile),
      kernel(kernel), result(result), b(b), walk(operands, tile, kernel, b),
      fragments(operands.type), rowTiles(tile.getWarpRows() / fragmentRows),
      colTiles(tile.getWarpCols() / fragmentCols),
      firstRow(b.add(walk.firstRow, b.div(b.lane, 4))) {}

SmallVector<Value> DenseProductEmitter::multiply(Value left, Value right,
                                                 ValueRange sums) {
  SmallVector<Value> next(sums);
  // Where the lane's numbers of a side begin.
  auto getFirst = [&](const DenseTile::Side &side, bool isInnerLast,
                      bool isLeft, Value warpFirst, Value at) {
    int64_t unit = isInnerLast ? side.pitch : fragments.elementBytes;
    Value place = fragments.getLanePlace(b, side.pitch, isInnerLast, isLeft);
    return b.at(b.add(b.multiplyAdd(warpFirst, unit, at), place));
  };
  // A unit of a side, `own` and `inner` numbers into it.
  auto load = [&](const DenseTile::Side &side, Value first, int64_t own,
                  int64_t inner, bool isInnerLast, bool isLeft) {
    int64_t row = isInnerLast ? own : inner;
    int64_t column = isInnerLast ? inner : own;
    int64_t offset = row * side.pitch + column * fragments.elementBytes;
    return fragments.load(b, b.at(first, offset, b.b.getI8Type()), side.pitch,
                          isInnerLast, isLeft);
  };
  bool isLeftInner = operands.left.isInnerLast;
  bool isRightInner = operands.right.isInnerLast;
  Value leftFirst =
      getFirst(tile.left, isLeftInner, /*isLeft=*/true, walk.warpRow, left);
  Value rightFirst =
      getFirst(tile.right, isRightInner, /*isLeft=*/false, walk.warpCol, right);
  for (int64_t inner = 0; inner != DenseTile::innerTile;
       inner += fragmentRows) {
    SmallVector<SmallVector<Value, 8>> rightUnits;
    for (int64_t col = 0; col != colTiles; col += 2)
      rightUnits.push_back(load(tile.right, rightFirst, col * fragmentCols,
                                inner, isRightInner, /*isLeft=*/false));
    for (int64_t row = 0; row != rowTiles; ++row) {
      SmallVector<Value, 8> leftUnit =
          load(tile.left, leftFirst, row * fragmentRows, inner, isLeftInner,
               /*isLeft=*/true);
      for (int64_t col = 0; col != colTiles; ++col)
        fragments.multiplyAdd(b, leftUnit, rightUnits[col / 2], col % 2,
                              MutableArrayRef(next).slice(getSum(row, col), 4));
    }
  }
  return next;
}

WarpSums DenseProductEmitter::getWarpSums(ValueRange sums) {
  WarpSums warp = walk.getWarpSums(firstRow);
  for (int64_t row = 0; row != rowTiles; ++row)
    for (int64_t half = 0; half != 2; ++half)
      for (int64_t col = 0; col != colTiles; ++col)
        llvm::append_range(warp.sums,
                           sums.slice(getSum(row, col) + 2 * half, 2));
  warp.numRows = 2 * rowTiles;
  return warp;
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
  if (operands.norms)
    walk.emitNorms(kernel, getWarpSums(sums),
                   b.add(walk.warpRow, b.div(b.lane, 4)));
  else if (product.hasEpilogueInside())
    product.epilogue->emit(b, getWarpSums(sums));
  else
    store(sums);
}

void DenseProduct::emitBlock(KernelBody &kernel, const StoredRows &result,
                             BlockBuilder &b) {
  DenseProductEmitter(*this, kernel, result, b).emit();
}
