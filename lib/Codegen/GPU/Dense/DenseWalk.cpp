// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a block of threads brings the operands of a dense product to shared
// memory, and what becomes of products that are cut in parts.

#include "DenseWalk.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Blocks of threads that fill a chip.
static constexpr int64_t enoughBlocks = 128;

DenseTile DenseTile::get(
    const DenseOperands &operands, int64_t rows, int64_t cols, bool isSwizzled,
    llvm::function_ref<int64_t(int64_t length, bool isInnerLast)> getPitch) {
  auto getSide = [&](const DenseOperands::Side &side, int64_t tile) {
    return Side{tile,
                getPitch(side.isInnerLast ? innerTile : tile, side.isInnerLast),
                isSwizzled && side.isInnerLast};
  };
  DenseTile result;
  result.left = getSide(operands.left, rows);
  result.right = getSide(operands.right, cols);
  return result;
}

void DenseTile::setParts(const DenseOperands &operands) {
  if (operands.norms) {
    // A norm is of whole sums.
    partLength = llvm::alignTo(operands.inner.size, innerTile);
    return;
  }
  int64_t blocks = operands.batch.size * getNumTiles(operands);
  // A part is of 8 stages at least.
  parts = std::clamp<int64_t>(
      enoughBlocks / blocks, 1,
      std::max<int64_t>(1, operands.inner.size / (8 * innerTile)));
  partLength =
      llvm::alignTo(llvm::divideCeil(operands.inner.size, parts), innerTile);
  parts = llvm::divideCeil(operands.inner.size, partLength);
}

bool DenseTile::setStages(const DenseOperands &operands, const Chip &chip) {
  constexpr int64_t leastStages = 2, mostStages = 6;
  stages = CopyPipeline::getStages(chip.sharedLimit, getStageBytes(operands),
                                   mostStages);
  return stages >= leastStages &&
         (!operands.norms ||
          BlockNorms::getSharedBytes(left.tile, right.tile) <=
              chip.sharedLimit - BlockBuilder::sharedSymbolBytes);
}

DenseWalk::DenseWalk(const DenseOperands &operands, const DenseTile &tile,
                     KernelBody &kernel, BlockBuilder &b)
    : operands(operands), tile(tile), b(b),
      elementBytes(operands.getElementBytes()),
      stageBytes(tile.getStageBytes(operands)),
      leftBytes(DenseTile::getSideBytes(tile.left, operands.left.isInnerLast)) {
  int64_t colBlocks = llvm::divideCeil(operands.cols.size, tile.right.tile);
  tileRow = b.mul(b.div(b.block[0], colBlocks), tile.left.tile);
  tileCol = b.mul(b.rem(b.block[0], colBlocks), tile.right.tile);
  batch = b.div(b.block[1], tile.parts);
  part = b.rem(b.block[1], tile.parts);
  firstInner = b.mul(part, tile.partLength);
  warpRow = b.mul(b.div(b.warp, DenseTile::colWarps), tile.getWarpRows());
  warpCol = b.mul(b.rem(b.warp, DenseTile::colWarps), tile.getWarpCols());
  firstRow = b.add(tileRow, warpRow);
  firstCol = b.add(tileCol, warpCol);
  auto getPointer = [&](const DenseOperands::Side &side) {
    Value first = b.getPointer(kernel.inputs.lookup(side.tensor));
    Value offset = b.add(getOffset(side, operands.batch, batch), side.offset);
    return b.at(first, offset, operands.type);
  };
  left = getPointer(operands.left);
  right = getPointer(operands.right);
}

Value DenseWalk::getOffset(const DenseOperands::Side &side, const Group &group,
                           Value number) {
  Value offset = b.constant(0);
  for (auto [loop, digit] :
       llvm::zip_equal(group.loops, getDigits(group, number)))
    offset = b.multiplyAdd(digit, side.strides[loop], offset);
  return offset;
}

void DenseWalk::copySide(const DenseOperands::Side &side,
                         const DenseTile::Side &place, const Group &own,
                         Value pointer, Value first, Value inner, Value stage) {
  int64_t length = side.isInnerLast ? DenseTile::innerTile : place.tile;
  int64_t height = side.isInnerLast ? place.tile : DenseTile::innerTile;
  int64_t perRow = length / side.copied, rowsPerPass = blockThreads / perRow;
  int64_t bytes = side.copied * elementBytes;
  Value column = b.mul(b.rem(b.thread, perRow), side.copied);
  Value columnBytes = b.mul(column, elementBytes);
  bool isInnerRagged = tile.parts * tile.partLength != operands.inner.size;
  for (int64_t pass = 0; pass * rowsPerPass < height; ++pass) {
    Value row = b.add(b.div(b.thread, perRow), pass * rowsPerPass);
    Value ownNumber = b.add(first, side.isInnerLast ? row : column);
    Value innerNumber = b.add(inner, side.isInnerLast ? column : row);
    // Beyond the operand, zeros are copied, which add nothing.
    Value isInside;
    if (own.size % place.tile)
      isInside = b.less(ownNumber, b.constant(own.size));
    if (isInnerRagged) {
      Value isInner = b.less(innerNumber, b.constant(operands.inner.size));
      isInside = isInside ? b.bitAnd(isInside, isInner) : isInner;
    }
    Value offset = b.add(getOffset(side, own, ownNumber),
                         getOffset(side, operands.inner, innerNumber));
    Value size;
    if (isInside) {
      size = b.select(isInside, b.constant(bytes), b.constant(0));
      offset = b.select(isInside, offset, b.constant(0));
    }
    Value at = columnBytes;
    if (place.isSwizzled)
      at = b.bitXor(at, b.mul(b.rem(b.div(row, 4), 8), copiedBytes));
    Value to = b.multiplyAdd(row, place.pitch, at);
    b.copyAsync(b.at(b.add(stage, to)), b.at(pointer, offset, operands.type),
                size, bytes);
  }
}

void DenseWalk::copy(Value step, Value stage) {
  Value inner = b.multiplyAdd(step, DenseTile::innerTile, firstInner);
  copySide(operands.left, tile.left, operands.rows, left, tileRow, inner,
           stage);
  copySide(operands.right, tile.right, operands.cols, right, tileCol, inner,
           b.add(stage, leftBytes));
}

SmallVector<Value> DenseWalk::run(
    int64_t numSums,
    llvm::function_ref<SmallVector<Value>(Value, Value, ValueRange)> multiply) {
  StepRange steps{b.constant(0),
                  b.constant(tile.partLength / DenseTile::innerTile)};
  return CopyPipeline(b, tile.stages, stageBytes)
      .run(
          steps,
          [&](Value step, Value stage, ValueRange) { copy(step, stage); },
          [&] { return b.zeros(numSums); },
          [&](Value, Value stage, ValueRange, ValueRange sums) {
            return multiply(stage, b.add(stage, leftBytes), sums);
          });
}

SmallVector<Value> DenseWalk::getDigits(const Group &group, Value number) {
  SmallVector<Value> digits;
  for (unsigned loop : llvm::reverse(group.loops)) {
    bool isFirst = loop == group.loops.front();
    digits.push_back(isFirst ? number : b.rem(number, operands.extents[loop]));
    if (!isFirst)
      number = b.div(number, operands.extents[loop]);
  }
  return llvm::to_vector(llvm::reverse(digits));
}

SmallVector<Value> DenseWalk::getStoredRow(const StoredRows &result,
                                           Value row) {
  SmallVector<Value> at;
  if (tile.parts != 1)
    at.push_back(part);
  size_t numGroups = operands.resultOrder.size() - 1;
  constexpr size_t numVectorDims = 2;
  bool isPiece = cast<MemRefType>(result.vectors.getType()).getRank() !=
                 int64_t(at.size() + numGroups + numVectorDims);
  for (Group DenseOperands::*group :
       ArrayRef(operands.resultOrder).drop_back()) {
    if (group != &DenseOperands::batch)
      at.push_back(row);
    else if (isPiece)
      llvm::append_range(at, getDigits(operands.batch, batch));
    else
      at.push_back(batch);
  }
  return at;
}

void DenseWalk::whenRow(Value row, llvm::function_ref<void()> body) {
  if (!areRowsRagged())
    return body();
  b.when(b.less(row, b.constant(operands.rows.size)), body);
}

WarpSums DenseWalk::getWarpSums(Value row) {
  WarpSums warp;
  for (Group DenseOperands::*group : ArrayRef(operands.resultOrder).drop_back())
    warp.at.push_back(group == &DenseOperands::batch ? batch : row);
  warp.column = firstCol;
  warp.warpNumber = b.div(firstCol, tile.getWarpCols());
  warp.areRowsRagged = areRowsRagged();
  warp.areColumnsRagged = areColumnsRagged();
  return warp;
}

void DenseWalk::emitNorms(KernelBody &kernel, WarpSums sums, Value row) {
  int64_t colBlocks = llvm::divideCeil(operands.cols.size, tile.right.tile);
  sums.at = {row};
  sums.column = warpCol;
  operands.norms->emit(b, tile.left.tile, tile.right.tile, sums,
                       b.div(b.block[0], colBlocks),
                       b.rem(b.block[0], colBlocks),
                       kernel.outputs.lookup(operands.op->getResult(0)));
}

std::optional<ResultSpace> DenseTileProduct::getSpace() {
  std::optional<ResultSpace> space = operands.getSpace(tile.getWarpCols());
  // An epilogue is behind the sum of parts, without fragments.
  if (space && tile.parts != 1)
    return ResultSpace{
        {llvm::to_vector<2>(llvm::seq(operands.getType().getRank()))}, 0, 0};
  return space;
}

std::string DenseTileProduct::describeTile() const {
  return llvm::formatv("{0}x{1} sums, {2} parts, {3} stages", tile.left.tile,
                       tile.right.tile, tile.parts, tile.stages);
}

SmallVector<MemRefType> DenseTileProduct::getScratch() {
  SmallVector<MemRefType> types;
  if (tile.parts != 1) {
    SmallVector<int64_t> shape(operands.getType().getShape());
    shape.insert(shape.begin(), tile.parts);
    types.push_back(
        MemRefType::get(shape, operands.getType().getElementType()));
  }
  if (epilogue)
    llvm::append_range(types, epilogue->getScratch());
  return types;
}

/// Emits the launch that adds `parts` of `count` sums in `scratch`, in order: a
/// thread takes `length` of them, which `finish` gets with their number.
static void
emitSum(OpBuilder &b, Location loc, int64_t parts, int64_t count,
        int64_t length, Value scratch,
        llvm::function_ref<void(BlockBuilder &, Value, ValueRange)> finish) {
  Value terms = createRows(b, loc, scratch, parts, count, length).vectors;
  int64_t threads = count / length;
  int64_t blocks = llvm::divideCeil(threads, blockThreads);
  BlockBuilder::launch(
      b, loc, {blocks, 1}, blockThreads,
      /*sharedBytes=*/0, [&](BlockBuilder &b) {
        Value number = b.multiplyAdd(b.block[0], blockThreads, b.thread);
        b.when(b.less(number, b.constant(threads)), [&] {
          SmallVector<Value> sums;
          for (int64_t i = 0; i != length; ++i) {
            sums.push_back(
                b.load(terms, {b.constant(0), number, b.constant(i)}));
            for (int64_t part = 1; part != parts; ++part)
              sums.back() = arith::AddFOp::create(
                  b.b, b.loc, sums.back(),
                  b.load(terms, {b.constant(part), number, b.constant(i)}));
          }
          finish(b, number, sums);
        });
      });
}

StoredRows DenseTileProduct::createResult(OpBuilder &b, Location loc,
                                          Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  int64_t length = getStoredLength(), columns = operands.cols.size;
  if (type.getLayout().isIdentity()) {
    SmallVector<int64_t> sizes;
    if (tile.parts != 1)
      sizes.push_back(tile.parts);
    for (DenseOperands::Group DenseOperands::*group :
         ArrayRef(operands.resultOrder).drop_back())
      sizes.push_back((operands.*group).size);
    return createRows(b, loc, buffer, sizes, columns, length);
  }
  // A piece of a larger buffer.
  auto [strides, offset] = type.getStridesAndOffset();
  strides.back() = length;
  strides.push_back(1);
  SmallVector<int64_t> sizes(type.getShape().drop_back());
  sizes.append({columns / length, length});
  auto layout = StridedLayoutAttr::get(b.getContext(), offset, strides);
  return {memref::ReinterpretCastOp::create(
              b, loc, MemRefType::get(sizes, type.getElementType(), layout),
              buffer, offset, sizes, strides),
          columns, length};
}

LogicalResult DenseTileProduct::emit(OpBuilder &b, KernelBody &kernel,
                                     ValueRange scratch) {
  Location loc = kernel.loc;
  int64_t parts = tile.parts;
  Value output = kernel.outputs.lookup(operands.op->getResult(0));
  Value result = parts == 1 ? output : scratch[0];
  if (epilogue)
    epilogue->begin(b, kernel, scratch.drop_front(parts == 1 ? 0 : 1));
  StoredRows stored;
  if (!hasEpilogueInside() && !operands.norms)
    stored = createResult(b, loc, result);
  int64_t sharedBytes = tile.stages * tile.getStageBytes(operands);
  if (operands.norms)
    sharedBytes =
        std::max(sharedBytes,
                 BlockNorms::getSharedBytes(tile.left.tile, tile.right.tile));
  BlockBuilder::launch(
      b, loc, {tile.getNumTiles(operands), operands.batch.size * parts},
      blockThreads, sharedBytes,
      [&](BlockBuilder &block) { emitBlock(kernel, stored, block); });
  int64_t count = operands.getType().getNumElements();
  if (parts != 1 && epilogue) {
    emitSum(b, loc, parts, count, Epilogue::length, result,
            [&](BlockBuilder &b, Value number, ValueRange sums) {
              epilogue->emit(b, number, sums);
            });
  } else if (parts != 1) {
    int64_t length = count % 2 ? 1 : 2;
    Value vectors = createRows(b, loc, output, {}, count, length).vectors;
    emitSum(b, loc, parts, count, length, result,
            [&](BlockBuilder &b, Value number, ValueRange sums) {
              for (auto [i, sum] : llvm::enumerate(sums))
                b.store(sum, vectors, {number, b.constant(i)});
            });
  }
  return epilogue ? epilogue->end(b) : success();
}
