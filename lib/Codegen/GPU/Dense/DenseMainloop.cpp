// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a thread block brings the operands of a dense product to shared
// memory.

#include "DenseMainloop.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

DenseMainloop::DenseMainloop(const DenseContraction &operands,
                             const DenseTile &tile, KernelBody &kernel,
                             BlockBuilder &b)
    : operands(operands), tile(tile), b(b),
      stageBytes(tile.getStageBytes(operands)),
      leftBytes(DenseTile::getSideBytes(tile.left, operands.left.isInnerLast)) {
  int64_t colBlocks = llvm::divideCeil(operands.cols.size, tile.right.tile);
  tileRow = b.mul(b.div(b.block[0], colBlocks), tile.left.tile);
  tileCol = b.mul(b.rem(b.block[0], colBlocks), tile.right.tile);
  batch = b.div(b.block[1], tile.slices);
  slice = b.rem(b.block[1], tile.slices);
  firstInner = b.mul(slice, tile.sliceLength);
  warpRow = b.mul(b.div(b.warp, DenseTile::colWarps), tile.getWarpRows());
  warpCol = b.mul(b.rem(b.warp, DenseTile::colWarps), tile.getWarpCols());
  firstRow = b.add(tileRow, warpRow);
  firstCol = b.add(tileCol, warpCol);
  auto getPointer = [&](const DenseContraction::Side &side) {
    Value first = b.getPointer(kernel.inputs.lookup(side.tensor));
    Value offset = b.add(getOffset(side, operands.batch, batch), side.offset);
    return b.at(first, offset, operands.type);
  };
  left = getPointer(operands.left);
  right = getPointer(operands.right);
}

Value DenseMainloop::getOffset(const DenseContraction::Side &side,
                               const Group &group, Value number) {
  Value offset = b.constant(0);
  for (auto [loop, digit] :
       llvm::zip_equal(group.loops, getDigits(group, number)))
    offset = b.multiplyAdd(digit, side.strides[loop], offset);
  return offset;
}

void DenseMainloop::copySide(const DenseContraction::Side &side,
                             const DenseTile::Side &ofTile, const Group &own,
                             Value pointer, Value first, Value inner,
                             Value stage) {
  PieceCopy pieces{operands.type,
                   side.isInnerLast ? ofTile.tile : DenseTile::innerTile,
                   side.isInnerLast ? DenseTile::innerTile : ofTile.tile,
                   side.copied,
                   ofTile.pitch,
                   ofTile.isSwizzled};
  bool isInnerRagged = tile.slices * tile.sliceLength != operands.inner.size;
  auto find = [&](Value row, Value column) -> PieceCopy::Source {
    Value ownNumber = b.add(first, side.isInnerLast ? row : column);
    Value innerNumber = b.add(inner, side.isInnerLast ? column : row);
    Value isInside;
    if (own.size % ofTile.tile)
      isInside = b.less(ownNumber, b.constant(own.size));
    if (isInnerRagged) {
      Value isInner = b.less(innerNumber, b.constant(operands.inner.size));
      isInside = isInside ? b.bitAnd(isInside, isInner) : isInner;
    }
    return {b.add(getOffset(side, own, ownNumber),
                  getOffset(side, operands.inner, innerNumber)),
            isInside};
  };
  pieces.emit(b, blockThreads, pointer, stage, find);
}

void DenseMainloop::copy(Value step, Value stage) {
  Value inner = b.multiplyAdd(step, DenseTile::innerTile, firstInner);
  copySide(operands.left, tile.left, operands.rows, left, tileRow, inner,
           stage);
  copySide(operands.right, tile.right, operands.cols, right, tileCol, inner,
           b.add(stage, leftBytes));
}

SmallVector<Value> DenseMainloop::run(const Multiplier &multiplier) {
  StepRange steps{b.constant(0),
                  b.constant(tile.sliceLength / DenseTile::innerTile)};
  return CopyPipeline(b, tile.stages, stageBytes)
      .run(
          steps,
          [&](Value step, Value stage, ValueRange) { copy(step, stage); },
          [&] { return b.zeros(multiplier.numSums); },
          [&](Value, Value stage, ValueRange, ValueRange sums) {
            Value rows = multiplier.at(Multiplier::Left, stage);
            Value cols =
                multiplier.at(Multiplier::Right, b.add(stage, leftBytes));
            return multiplier.multiply(rows, cols, sums);
          });
}

SmallVector<Value> DenseMainloop::getDigits(const Group &group, Value number) {
  SmallVector<Value> digits;
  for (unsigned loop : llvm::reverse(group.loops)) {
    bool isFirst = loop == group.loops.front();
    digits.push_back(isFirst ? number : b.rem(number, operands.extents[loop]));
    if (!isFirst)
      number = b.div(number, operands.extents[loop]);
  }
  return llvm::to_vector(llvm::reverse(digits));
}

SmallVector<Value> DenseMainloop::getStoredRow(const StoredRows &result,
                                               Value row) {
  SmallVector<Value> at;
  if (tile.slices != 1)
    at.push_back(slice);
  size_t numGroups = operands.resultOrder.size() - 1;
  constexpr size_t numVectorDims = 2;
  bool isPiece = cast<MemRefType>(result.vectors.getType()).getRank() !=
                 int64_t(at.size() + numGroups + numVectorDims);
  for (Group DenseContraction::*group :
       ArrayRef(operands.resultOrder).drop_back()) {
    if (group != &DenseContraction::batch)
      at.push_back(row);
    else if (isPiece)
      llvm::append_range(at, getDigits(operands.batch, batch));
    else
      at.push_back(batch);
  }
  return at;
}

void DenseMainloop::whenRow(Value row, llvm::function_ref<void()> body) {
  if (!areRowsRagged())
    return body();
  b.when(b.less(row, b.constant(operands.rows.size)), body);
}

WarpSums DenseMainloop::getWarpSums(Value row) {
  WarpSums warp;
  for (Group DenseContraction::*group :
       ArrayRef(operands.resultOrder).drop_back())
    warp.at.push_back(group == &DenseContraction::batch ? batch : row);
  warp.column = firstCol;
  warp.warpNumber = b.div(firstCol, tile.getWarpCols());
  warp.areRowsRagged = areRowsRagged();
  warp.areColumnsRagged = areColumnsRagged();
  return warp;
}

void DenseMainloop::emitNorms(KernelBody &kernel, WarpSums sums, Value row) {
  int64_t colBlocks = llvm::divideCeil(operands.cols.size, tile.right.tile);
  sums.at = {row};
  sums.column = warpCol;
  operands.norms->emit(b, tile.left.tile, tile.right.tile, sums,
                       b.div(b.block[0], colBlocks),
                       b.rem(b.block[0], colBlocks),
                       kernel.outputs.lookup(operands.op->getResult(0)));
}
