// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a thread block does in the kernels of attention and of its gradient:
// copies, the mainloop, and how results are stored.

#include "AttentionThreadBlock.h"
#include "bsr/Codegen/Common/Exponential.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

AttentionThreadBlock::AttentionThreadBlock(const AttentionOperands &operands,
                                           KernelBody &kernel, BlockBuilder &b,
                                           unsigned rowDim, int64_t rows,
                                           int64_t cols)
    : operands(operands), attention(operands.attention), kernel(kernel), b(b),
      rowDim(rowDim),
      colDim(attention.getQueryDim() + attention.getKeyDim() - rowDim),
      rows(rows), cols(cols), batch(b.block[1]),
      firstRow(b.mul(b.block[0], rows)) {
  laneRow =
      b.add(b.add(firstRow, b.mul(b.warp, fragmentRows)), b.div(b.lane, 4));
  laneColumn = b.mul(b.rem(b.lane, 4), 2);
  ArrayRef<int64_t> extents = attention.getBatch();
  batchAt.resize(extents.size());
  Value rest = batch;
  for (int64_t dim = extents.size() - 1; dim >= 0; --dim) {
    batchAt[dim] = dim == 0 ? rest : b.rem(rest, extents[dim]);
    rest = b.div(rest, extents[dim]);
  }
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

void AttentionThreadBlock::copy(const AttentionTile &operand, Value first,
                                Value to) {
  const AttentionMatrix &matrix = *operand.matrix;
  Value pointer = b.getPointer(kernel.inputs.lookup(matrix.tensor));
  Value begin = b.constant(matrix.offset);
  for (auto [dim, at] : llvm::enumerate(batchAt))
    begin = b.multiplyAdd(at, matrix.strides[dim], begin);
  PieceCopy pieces{operands.type, operand.getRows(), operand.getLength(),
                   matrix.copied, operand.getPitch()};
  auto find = [&](Value row, Value column) -> PieceCopy::Source {
    Value token = b.add(first, matrix.isFeatureLast ? row : column);
    Value feature = matrix.isFeatureLast ? column : row;
    Value isInside;
    if (operands.isRagged(matrix.tokenDim, operand.tokens))
      isInside = b.less(token, b.constant(matrix.tokens));
    if (matrix.getPaddedFeatures() != matrix.features) {
      Value isFeature = b.less(feature, b.constant(matrix.features));
      isInside = isInside ? b.bitAnd(isInside, isFeature) : isFeature;
    }
    return {
        b.multiplyAdd(
            token, matrix.strides[matrix.tokenDim],
            b.multiplyAdd(feature, matrix.strides[matrix.featureDim], begin)),
        isInside};
  };
  pieces.emit(b, getThreads(rows), pointer, to, find);
}

//===----------------------------------------------------------------------===//
// The mainloop
//===----------------------------------------------------------------------===//

/// The tokens along `dim` of a block of the pattern.
static int64_t getBlockExtent(const Attention &attention, unsigned dim) {
  PatternType pattern = attention.pattern.getType();
  return dim == attention.getQueryDim() ? pattern.getBlockRows()
                                        : pattern.getBlockCols();
}

void AttentionThreadBlock::follow(Value ptr, Value idx) {
  this->idx = idx;
  Value line = b.div(firstRow, getBlockExtent(attention, rowDim));
  low = b.load(ptr, line);
  Value high = b.load(ptr, b.add(line, 1));
  numSteps = b.mul(b.sub(high, low), getBlockExtent(attention, colDim) / cols);
}

Value AttentionThreadBlock::getNumSteps() {
  return numSteps ? numSteps : b.constant(operands.getNumTiles(colDim, cols));
}

Value AttentionThreadBlock::getFirst(Value step) {
  if (!idx)
    return b.mul(step, cols);
  int64_t extent = getBlockExtent(attention, colDim), tiles = extent / cols;
  Value position = b.load(idx, b.add(low, b.div(step, tiles)));
  return b.multiplyAdd(position, extent, b.mul(b.rem(step, tiles), cols));
}

SmallVector<Value> AttentionThreadBlock::runMainloop(
    Value ring, int64_t stages, int64_t bytes, ValueRange carried,
    llvm::function_ref<void(Value, Value)> copyTile,
    llvm::function_ref<void()> begin,
    llvm::function_ref<SmallVector<Value>(Value, Value, ValueRange)> compute) {
  CopyPipeline pipeline(b, stages, bytes, ring);
  pipeline.separateCopies();
  auto copy = [&](Value step, Value stage, ValueRange) {
    copyTile(getFirst(step), stage);
  };
  return pipeline.run(
      {b.constant(0), getNumSteps()}, copy,
      [&] {
        pipeline.waitForSeparateCopies();
        begin();
        return SmallVector<Value>(carried);
      },
      [&](Value step, Value stage, ValueRange, ValueRange carried) {
        return compute(getFirst(step), stage, carried);
      });
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

void AttentionThreadBlock::whenRow(int64_t i, llvm::function_ref<void()> body) {
  if (!operands.isRagged(rowDim, rows))
    return body();
  b.when(b.less(getRow(i), b.constant(attention.extents[rowDim])), body);
}

void AttentionThreadBlock::storeRows(
    const AttentionResult &result, ValueRange sums,
    llvm::function_ref<Value(Value, int64_t)> finish) {
  Type element = getElementTypeOrSelf(result.tensor.tensor.getType());
  int64_t features = attention.extents[result.featureDim];
  // Of features beyond the last one, nothing is stored.
  auto whenFeature = [&](Value feature, int64_t unit,
                         llvm::function_ref<void()> body) {
    if (features % unit == 0)
      return body();
    b.when(b.less(feature, b.constant(features)), body);
  };
  auto storePair = [&](int64_t i, Value feature, ValueRange values) {
    SmallVector<Value> at =
        getIndices(result.tensor, getRow(i), b.constant(0), feature);
    if (result.pairs) {
      at.pop_back();
      storeVector(b, values, *result.pairs, at, feature, /*isRagged=*/false);
      return;
    }
    for (auto [k, value] : llvm::enumerate(values)) {
      if (!element.isF32())
        value = arith::TruncFOp::create(b.b, b.loc, element, value);
      Value own = b.add(feature, k);
      whenFeature(own, k + 1, [&, value = value] {
        b.store(value, result.buffer,
                getIndices(result.tensor, getRow(i), b.constant(0), own));
      });
    }
  };
  for (int64_t i = 0; i != 2; ++i)
    whenRow(i, [&] {
      for (int64_t j = 0; 2 * j < int64_t(sums.size()); j += 2) {
        Value feature = getColumn(j);
        whenFeature(feature, fragmentRows, [&] {
          storePair(i, feature,
                    {finish(sums[getSum(i, j)], i),
                     finish(sums[getSum(i, j + 1)], i)});
        });
      }
    });
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

Value AttentionThreadBlock::constant(double value) {
  return arith::ConstantOp::create(b.b, b.loc, b.b.getF32FloatAttr(value));
}
Value AttentionThreadBlock::add(Value x, Value y) {
  return arith::AddFOp::create(b.b, b.loc, x, y);
}
Value AttentionThreadBlock::sub(Value x, Value y) {
  return arith::SubFOp::create(b.b, b.loc, x, y);
}
Value AttentionThreadBlock::mul(Value x, Value y) {
  return arith::MulFOp::create(b.b, b.loc, x, y);
}

Value AttentionThreadBlock::exp(Value x) {
  NumberBuilder numbers(b.b, b.loc, b.b.getF32Type());
  return createFlushedExp(numbers, x);
}

Value AttentionThreadBlock::combineLanes(
    Value x, llvm::function_ref<Value(Value, Value)> combine) {
  for (int64_t mask : {1, 2})
    x = combine(x, b.exchange(x, mask));
  return x;
}
