// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dense products on tensor cores.
//
// A block of threads computes up to 128 by 128 sums: it goes through the inner
// numbers 32 at a time (DenseWalk). Operands lie in shared memory as they lie
// in global memory, and are transposed when fragments are loaded where that is
// the wrong way round.

#include "DenseProduct.h"
#include "bsr/Codegen/GPU/Core/Multiplier.h"

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

  DenseProduct &product;
  const DenseOperands &operands;
  const DenseTile &tile;
  KernelBody &kernel;
  const StoredRows &result;
  BlockBuilder &b;
  DenseWalk walk;
  WarpMultiplier multiplier;
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
      multiplier(b, operands.type, tile.getWarpRows() / fragmentRows,
                 tile.getWarpCols() / fragmentCols),
      firstRow(b.add(walk.firstRow, b.div(b.lane, 4))) {}

SmallVector<Value> DenseProductEmitter::multiply(Value left, Value right,
                                                 ValueRange sums) {
  const Fragments &fragments = multiplier.fragments;
  // Loads units of a side, whose first number of the warp is `warpFirst`.
  auto getLoad = [&](const DenseTile::Side &side, bool isInnerLast, bool isLeft,
                     Value warpFirst, Value at) {
    int64_t unit = isInnerLast ? side.pitch : fragments.elementBytes;
    Value place = fragments.getLanePlace(b, side.pitch, isInnerLast, isLeft);
    Value first = b.at(b.add(b.multiplyAdd(warpFirst, unit, at), place));
    return [=, &side, &fragments](int64_t own, int64_t inner) {
      int64_t row = isInnerLast ? own : inner;
      int64_t column = isInnerLast ? inner : own;
      int64_t offset = row * side.pitch + column * fragments.elementBytes;
      return fragments.load(b, b.at(first, offset, b.b.getI8Type()), side.pitch,
                            isInnerLast, isLeft);
    };
  };
  auto loadLeft = getLoad(tile.left, operands.left.isInnerLast, /*isLeft=*/true,
                          walk.warpRow, left);
  auto loadRight = getLoad(tile.right, operands.right.isInnerLast,
                           /*isLeft=*/false, walk.warpCol, right);
  return multiplier.multiply(DenseTile::innerTile, loadLeft, loadRight,
                             WarpMultiplier::Kept::Right, sums);
}

WarpSums DenseProductEmitter::getWarpSums(ValueRange sums) {
  WarpSums warp = walk.getWarpSums(firstRow);
  warp.sums = multiplier.getRows(sums);
  warp.numRows = multiplier.getNumRows();
  return warp;
}

void DenseProductEmitter::store(ValueRange sums) {
  for (int64_t row = 0; row != multiplier.getNumRows(); ++row) {
    Value number = b.add(firstRow, row * 8);
    SmallVector<Value> at = walk.getStoredRow(result, number);
    walk.whenRow(number, [&] {
      storeRow(b, multiplier.getRow(sums, row), result, at, walk.firstCol,
               walk.areColumnsRagged());
    });
  }
}

void DenseProductEmitter::emit() {
  SmallVector<Value> sums = walk.run(
      multiplier.getNumSums(), [&](Value left, Value right, ValueRange sums) {
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
