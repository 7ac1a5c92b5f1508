// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stored blocks of products of activations on tensor cores.
//
// A block of threads owns neighbouring blocks of one block row, whose
// activations it reads once for all of them. It goes through all tokens: a
// stage of shared memory holds the rows of the block row and the columns of its
// blocks for some tokens, while copies for the next stages are under way. A
// warp owns up to 4 blocks, whose sums it keeps in registers, and copies their
// columns itself. There are as many blocks of threads as full block rows need;
// where a block row has fewer blocks, some end at once.

#include "SampledProduct.h"
#include "bsr/Codegen/GPU/Model.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;

int64_t SampledProduct::getStageBytes() const {
  int64_t features =
      pattern.getBlockRows() + getBlocks() * pattern.getBlockCols();
  return features * getPitch(tokens);
}

std::optional<SampledProduct> SampledProduct::match(Operation *root,
                                                    GPUAttr chip) {
  SampledProduct product;
  product.op = dyn_cast<SDDMMOp>(root);
  if (!product.op)
    return std::nullopt;
  SDDMMOp op = product.op;
  Type type = op.getA().getType().getElementType();
  auto rows = Activations::match(op.getA(), op.getFeatureDim());
  auto cols = Activations::match(op.getB(), op.getFeatureDim());
  product.pattern = op.getPattern().getType();
  int64_t blockRows = product.pattern.getBlockRows();
  int64_t blockCols = product.pattern.getBlockCols();
  if (!rows || !cols || !isMultiplied(type) ||
      op.getB().getType().getElementType() != type ||
      !isStored(op.getValues().getType().getElementType(), type) ||
      !isCovered(blockRows) || !isCovered(blockCols) ||
      op.getValues().getType().getNumElements() > INT32_MAX)
    return std::nullopt;
  product.rows = *rows;
  product.cols = *cols;
  // At most 128 sums a thread.
  product.warpBlocks = 64 / blockCols;
  for (int64_t tokens : {64, 32}) {
    product.tokens = tokens;
    product.stages = std::min<int64_t>(
        4, findChip(chip.getChip())->sharedLimit / product.getStageBytes());
    if (product.stages >= 2)
      return product;
  }
  return std::nullopt;
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
  /// Where the tokens of `step` are in `activations`, and how many bytes of
  /// them a copy of the thread, whose tokens begin at `offset`, brings.
  struct Tokens {
    Value batch, first, bytes;
  };
  Tokens getTokens(Value step, Value offset);
  /// Copies the tokens of `step` to `stage`, if there are any.
  void copy(Value step, Value stage);
  void copyRows(Value step, Value stage);
  void copyColumns(Value step, Value stage);
  SmallVector<Value> multiply(Value stage, ValueRange sums);
  /// Adds the products of rows, `left`, and one block's columns to `sums`.
  SmallVector<Value> multiplyBlock(ArrayRef<SmallVector<Value, 4>> left,
                                   Value columns, ArrayRef<Value> sums);
  void store(ValueRange sums);

  int64_t getSum(int64_t block, int64_t rows, int64_t cols) const {
    return ((block * rowTiles + rows) * colTiles + cols) * 4;
  }

  SampledProduct &product;
  KernelBody &kernel;
  const StoredRows &values;
  BlockBuilder &b;
  Type type;
  int64_t blockRows, blockCols, rowTiles, colTiles;
  /// Bytes of a row, of the rows of a block, and of a stage in shared memory.
  int64_t pitch, rowsBytes, stageBytes;
  /// Per batch, and in all.
  int64_t stepsPerBatch, steps;

  /// The block row, its first and last block, and those of the warp.
  Value line, end;
  SmallVector<Value> positions, isStored;
  Value a;
  /// Of each block of the warp, where its columns begin.
  SmallVector<Value> columns;
};
} // namespace mlir::bsr

SampledProductEmitter::SampledProductEmitter(SampledProduct &product,
                                             KernelBody &kernel,
                                             const StoredRows &values,
                                             BlockBuilder &b)
    : product(product), kernel(kernel), values(values), b(b),
      type(product.op.getA().getType().getElementType()),
      blockRows(product.pattern.getBlockRows()),
      blockCols(product.pattern.getBlockCols()),
      rowTiles(blockRows / fragmentRows), colTiles(blockCols / fragmentCols),
      pitch(getPitch(product.tokens)), rowsBytes(blockRows * pitch),
      stageBytes(product.getStageBytes()),
      stepsPerBatch(llvm::divideCeil(product.rows.tokens, product.tokens)),
      steps(product.rows.batches * stepsPerBatch), line(b.block[0]) {}

SampledProductEmitter::Tokens SampledProductEmitter::getTokens(Value step,
                                                               Value offset) {
  Tokens tokens;
  tokens.batch = b.constant(0);
  if (product.rows.batches != 1) {
    tokens.batch = b.div(step, stepsPerBatch);
    step = b.rem(step, stepsPerBatch);
  }
  tokens.first = b.multiplyAdd(step, product.tokens, offset);
  if (product.rows.tokens % product.tokens) {
    Value isInside = b.less(tokens.first, b.constant(product.rows.tokens));
    tokens.bytes = b.select(isInside, b.constant(16), b.constant(0));
    tokens.first = b.select(isInside, tokens.first, b.constant(0));
  }
  return tokens;
}

void SampledProductEmitter::copyRows(Value step, Value stage) {
  int64_t perRow = product.tokens / copiedElements;
  int64_t rowsPerPass = blockThreads / perRow;
  Value row = b.div(b.thread, perRow);
  Value offset = b.mul(b.rem(b.thread, perRow), copiedElements);
  auto copy = [&] {
    Tokens tokens = getTokens(step, offset);
    Value from = b.atFar(a, tokens.batch,
                         product.rows.features * product.rows.tokens, type);
    from =
        b.at(from, b.multiplyAdd(row, product.rows.tokens, tokens.first), type);
    Value to = b.at(
        b.add(stage, b.multiplyAdd(row, pitch, b.mul(offset, elementBytes))));
    for (int64_t first = 0; first < blockRows; first += rowsPerPass)
      b.copyAsync(b.at(to, first * pitch, b.b.getI8Type()),
                  b.at(from, first * product.rows.tokens, type), tokens.bytes);
  };
  if (rowsPerPass <= blockRows)
    copy();
  else
    b.when(b.less(row, b.constant(blockRows)), copy);
}

void SampledProductEmitter::copyColumns(Value step, Value stage) {
  int64_t perRow = product.tokens / copiedElements;
  int64_t rowsPerPass = BlockBuilder::warpThreads / perRow;
  Value row = b.div(b.lane, perRow);
  Value offset = b.mul(b.rem(b.lane, perRow), copiedElements);
  Tokens tokens = getTokens(step, offset);
  Value firstBlock = b.mul(b.warp, product.warpBlocks);
  Value to =
      b.multiplyAdd(firstBlock, blockCols * pitch, b.mul(offset, elementBytes));
  to = b.at(b.add(b.add(b.multiplyAdd(row, pitch, stage), to), rowsBytes));
  for (int64_t block = 0; block != product.warpBlocks; ++block)
    b.when(isStored[block], [&] {
      Value from = b.atFar(columns[block], tokens.batch,
                           product.cols.features * product.cols.tokens, type);
      from = b.at(from, b.multiplyAdd(row, product.cols.tokens, tokens.first),
                  type);
      for (int64_t first = 0; first != blockCols; first += rowsPerPass)
        b.copyAsync(
            b.at(to, (block * blockCols + first) * pitch, b.b.getI8Type()),
            b.at(from, first * product.cols.tokens, type), tokens.bytes);
    });
}

void SampledProductEmitter::copy(Value step, Value stage) {
  b.when(b.less(step, b.constant(steps)), [&] {
    copyRows(step, stage);
    copyColumns(step, stage);
  });
  b.commitCopies();
}

SmallVector<Value> SampledProductEmitter::multiply(Value stage,
                                                   ValueRange sums) {
  SmallVector<Value> next(sums);
  Type i8 = b.b.getI8Type();
  // Tokens are summed: they lie side by side for both operands.
  Value rows = b.at(b.add(stage, getMatrixRow(b, pitch, /*rowsLast=*/false)));
  Value warpStage =
      b.multiplyAdd(b.warp, product.warpBlocks * blockCols * pitch, stage);
  Value cols = b.at(b.add(
      b.add(warpStage, getMatrixRow(b, pitch, /*rowsLast=*/true)), rowsBytes));
  auto loadRows = [&] {
    SmallVector<SmallVector<Value, 4>> fragments;
    for (int64_t token = 0; token != product.tokens; token += fragmentRows)
      for (int64_t row = 0; row != blockRows; row += fragmentRows)
        fragments.push_back(
            b.loadMatrices(b.at(rows, row * pitch + token * elementBytes, i8),
                           /*transpose=*/false));
    return fragments;
  };
  // All blocks of a warp share its rows, whose registers one block has not.
  SmallVector<SmallVector<Value, 4>> left;
  if (product.warpBlocks != 1)
    left = loadRows();
  int64_t count = getSum(1, 0, 0);
  for (int64_t block = 0; block != product.warpBlocks; ++block) {
    ArrayRef<Value> before = ArrayRef(next).slice(getSum(block, 0, 0), count);
    SmallVector<Value> after = b.when(isStored[block], before, [&] {
      if (product.warpBlocks == 1)
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
  for (int64_t token = 0; token != product.tokens; token += fragmentRows)
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
  const PatternView &view =
      kernel.patterns.at({product.op.getPattern(), View::Rows});
  for (int64_t block = 0; block != product.warpBlocks; ++block)
    b.when(isStored[block], [&] {
      Value slot = b.load(view.slot, positions[block]);
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
  const PatternView &view =
      kernel.patterns.at({product.op.getPattern(), View::Rows});
  Value start = b.load(view.ptr, line);
  end = b.load(view.ptr, b.add(line, 1));
  Value firstOfBlock = b.add(start, b.mul(b.block[1], product.getBlocks()));
  b.when(b.less(firstOfBlock, end), [&] {
    Value first = b.add(firstOfBlock, b.mul(b.warp, product.warpBlocks));
    a = b.atFar(b.getPointer(kernel.inputs.lookup(product.op.getA())), line,
                blockRows * product.rows.tokens, type);
    Value all = b.getPointer(kernel.inputs.lookup(product.op.getB()));
    for (int64_t block = 0; block != product.warpBlocks; ++block) {
      Value position = b.add(first, block);
      positions.push_back(position);
      isStored.push_back(b.less(position, end));
      // One that is not stored is not copied: any position will do.
      Value column =
          b.load(view.idx, b.select(isStored.back(), position, firstOfBlock));
      columns.push_back(
          b.atFar(all, column, blockCols * product.cols.tokens, type));
    }
    int64_t ahead = product.stages - 1;
    for (int64_t step = 0; step != ahead; ++step)
      copy(b.constant(step), b.constant(step * stageBytes));
    Type f32 = b.b.getF32Type();
    Value zero = arith::ConstantOp::create(b.b, b.loc, b.b.getZeroAttr(f32));
    int64_t numSums = getSum(product.warpBlocks, 0, 0);
    SmallVector<Value> carried(numSums, zero);
    carried.append({b.constant(0), b.constant(ahead * stageBytes)});
    SmallVector<Value> last = b.loop(
        b.constant(0), b.constant(steps), 1, carried,
        [&](Value step, ValueRange carried) {
          Value stage = carried[numSums], copied = carried[numSums + 1];
          b.waitForCopies(ahead - 1);
          b.barrier();
          copy(b.add(step, ahead), copied);
          SmallVector<Value> next =
              multiply(stage, carried.take_front(numSums));
          next.append({getNextStage(b, stage, stageBytes, product.stages),
                       getNextStage(b, copied, stageBytes, product.stages)});
          return next;
        });
    store(ValueRange(last).take_front(numSums));
  });
}

LogicalResult SampledProduct::emit(OpBuilder &b, KernelBody &kernel,
                                   ValueRange) {
  StoredRows values = createRows(
      b, kernel.loc, kernel.outputs.lookup(op.getValues()),
      {pattern.getSlots(), pattern.getBlockRows()}, pattern.getBlockCols());
  int64_t parts = llvm::divideCeil(pattern.getGridCols(), getBlocks());
  BlockBuilder::launch(
      b, kernel.loc, {pattern.getGridRows(), parts}, blockThreads,
      stages * getStageBytes(), [&](BlockBuilder &block) {
        SampledProductEmitter(*this, kernel, values, block).emit();
      });
  return success();
}
