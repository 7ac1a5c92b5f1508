// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the kernels of attention and of its gradient share.

#include "AttentionBlock.h"
#include "bsr/Codegen/Common/Exponential.h"
#include "bsr/Codegen/GPU/Core/AsyncCopies.h"
#include "bsr/Codegen/GPU/Core/Pipeline.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

AttentionBlock::AttentionBlock(const AttentionOperands &operands,
                               KernelBody &kernel, BlockBuilder &b,
                               unsigned rowDim, int64_t rows, int64_t cols)
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
// Copies and products
//===----------------------------------------------------------------------===//

void AttentionBlock::copy(const AttentionTile &operand, Value first, Value to) {
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

/// How `operand` lies in shared memory, whose inner numbers are features or
/// tokens.
static WarpMultiplier::Operand getOperand(const AttentionTile &operand,
                                          bool areFeaturesInner,
                                          Value first = {}) {
  return {operand.getPitch(), operand.matrix->isFeatureLast == areFeaturesInner,
          first};
}

AttentionBlock::Left::Left(AttentionBlock &block, const AttentionTile &operand,
                           Value begin)
    : block(&block), operand(operand), begin(begin) {}

WarpMultiplier
AttentionBlock::Left::getMultiplier(const AttentionTile &right) const {
  BlockBuilder &b = block->b;
  return WarpMultiplier(b,
                        {block->operands.type, /*rows=*/1,
                         right.tokens / fragmentCols,
                         operand.matrix->getPaddedFeatures()},
                        getOperand(operand, /*areFeaturesInner=*/true,
                                   b.mul(b.warp, fragmentRows)),
                        getOperand(right, /*areFeaturesInner=*/true));
}

void AttentionBlock::Left::hold() {
  WarpMultiplier multiplier = getMultiplier(operand);
  held =
      multiplier.load(Multiplier::Left, multiplier.at(Multiplier::Left, begin));
}

FragmentSums AttentionBlock::Left::multiply(const AttentionTile &right,
                                            Value rightBegin) {
  WarpMultiplier multiplier = getMultiplier(right);
  SmallVector<Value> left = held;
  if (left.empty())
    left = {multiplier.at(Multiplier::Left, begin)};
  return multiplier.multiply(left, multiplier.at(Multiplier::Right, rightBegin),
                             block->b.zeros(multiplier.numSums));
}

FragmentSums AttentionBlock::addProducts(ValueRange sums, ValueRange scores,
                                         const AttentionTile &right,
                                         Value begin) {
  // Scores are in registers: two fragments of sums, side by side, are one of a
  // left operand.
  WarpMultiplier multiplier(
      b,
      {operands.type, /*rows=*/1,
       right.matrix->getPaddedFeatures() / fragmentCols, right.tokens},
      /*left=*/{}, getOperand(right, /*areFeaturesInner=*/false));
  auto packScores = [&](int64_t, int64_t token) {
    SmallVector<Value, 8> left;
    for (int64_t i = 0; i != 4; ++i)
      left.push_back(packPair(
          b, scores.slice(token / fragmentCols * 4 + 2 * i, 2), operands.type));
    return left;
  };
  Value pointer = multiplier.at(Multiplier::Right, begin);
  return multiplier.multiplyUnits(
      packScores,
      [&](int64_t feature, int64_t token) {
        return multiplier.getUnit(Multiplier::Right, pointer, feature, token);
      },
      sums);
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

void AttentionBlock::follow(Value ptr, Value idx) {
  this->idx = idx;
  Value line = b.div(firstRow, getBlockExtent(attention, rowDim));
  low = b.load(ptr, line);
  Value high = b.load(ptr, b.add(line, 1));
  numSteps = b.mul(b.sub(high, low), getBlockExtent(attention, colDim) / cols);
}

Value AttentionBlock::getNumSteps() {
  return numSteps ? numSteps : b.constant(operands.getNumTiles(colDim, cols));
}

Value AttentionBlock::getFirst(Value step) {
  if (!idx)
    return b.mul(step, cols);
  int64_t extent = getBlockExtent(attention, colDim), tiles = extent / cols;
  Value position = b.load(idx, b.add(low, b.div(step, tiles)));
  return b.multiplyAdd(position, extent, b.mul(b.rem(step, tiles), cols));
}

SmallVector<Value> AttentionBlock::runMainloop(
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
// Scores
//===----------------------------------------------------------------------===//

SmallVector<Value> AttentionBlock::getIndices(const AttentionTensor &tensor,
                                              Value row, Value col,
                                              Value feature) {
  SmallVector<Value> loops(batchAt);
  loops.resize(attention.extents.size(), feature);
  loops[rowDim] = row;
  loops[colDim] = col;
  return llvm::map_to_vector(
      tensor.map.getResults(), [&](AffineExpr expr) -> Value {
        auto dim = dyn_cast<AffineDimExpr>(expr);
        return dim ? loops[dim.getPosition()] : b.constant(0);
      });
}

namespace {
/// Reads what is added to scores, or masks them, once for all rows or columns
/// of a lane that have one element.
class ElementReader {
public:
  ElementReader(
      AttentionBlock &block, GPUEvaluator &e, const AttentionTensor &tensor,
      llvm::function_ref<SmallVector<Value>(int64_t, int64_t)> indices)
      : block(block), e(e), tensor(tensor), indices(indices) {}

  Value read(int64_t i, int64_t j) {
    auto [known, isNew] = elements.try_emplace(
        {tensor.map.isFunctionOfDim(block.rowDim) ? i : 0,
         tensor.map.isFunctionOfDim(block.colDim) ? j : 0});
    if (isNew) {
      BlockBuilder &b = block.b;
      known->second = e.read(
          tensor.tensor, llvm::map_to_vector(indices(i, j), [&](Value at) {
            APInt number;
            if (matchPattern(at, m_ConstantInt(&number)))
              return Index::constant(number.getSExtValue());
            return Index::of(
                arith::IndexCastOp::create(b.b, b.loc, b.b.getIndexType(), at));
          }));
    }
    return known->second;
  }

private:
  AttentionBlock &block;
  GPUEvaluator &e;
  const AttentionTensor &tensor;
  llvm::function_ref<SmallVector<Value>(int64_t, int64_t)> indices;
  std::map<std::pair<int64_t, int64_t>, Value> elements;
};
} // namespace

AttentionBlock::Scores AttentionBlock::getScores(ValueRange products,
                                                 Value first) {
  GPUEvaluator e(b.b, b.loc);
  for (auto [argument, buffer] : kernel.inputs)
    e.setBuffer(argument, buffer);
  // Tokens beyond the last are clamped: their scores are masked.
  auto clamp = [&](Value token, unsigned dim, int64_t tile) {
    return operands.isRagged(dim, tile)
               ? b.min(token, b.constant(attention.extents[dim] - 1))
               : token;
  };
  auto indicesOf = [&](const AttentionTensor &tensor) {
    return [&](int64_t i, int64_t j) {
      return getIndices(tensor, clamp(getRow(i), rowDim, rows),
                        clamp(b.add(first, getColumn(j)), colDim, cols),
                        b.constant(0));
    };
  };
  auto biasIndices = indicesOf(attention.bias),
       maskIndices = indicesOf(attention.mask);
  ElementReader biases(*this, e, attention.bias, biasIndices);
  ElementReader masks(*this, e, attention.mask, maskIndices);
  Type f32 = b.b.getF32Type();
  Value scale = constant(attention.scale), fill = constant(attention.fill);
  Scores scores{FragmentSums(products), {}};
  if (attention.mask)
    scores.isLive.resize(products.size());
  for (int64_t j = 0; j != getNumColumns(); ++j)
    for (int64_t i = 0; i != 2; ++i) {
      Value &x = scores.x[getSum(i, j)];
      if (attention.scale != 1)
        x = mul(x, scale);
      if (attention.bias)
        x = add(x, e.convert(biases.read(i, j), f32));
      if (attention.mask) {
        Value isLive = masks.read(i, j);
        scores.isLive[getSum(i, j)] = isLive;
        x = b.select(isLive, x, fill);
      }
    }
  hasFailed |= e.hasFailed;
  return scores;
}

SmallVector<Value> AttentionBlock::areColumns(Value first) {
  if (!operands.isRagged(colDim, cols))
    return SmallVector<Value>(getNumColumns());
  SmallVector<Value> result;
  for (int64_t j = 0; j != getNumColumns(); ++j)
    result.push_back(b.less(b.add(first, getColumn(j)),
                            b.constant(attention.extents[colDim])));
  return result;
}

void AttentionBlock::whenRow(int64_t i, llvm::function_ref<void()> body) {
  if (!operands.isRagged(rowDim, rows))
    return body();
  b.when(b.less(getRow(i), b.constant(attention.extents[rowDim])), body);
}

AttentionResult AttentionResult::get(OpBuilder &b, const KernelBody &kernel,
                                     const AttentionTensor &tensor,
                                     unsigned featureDim) {
  AttentionResult result{tensor, featureDim,
                         kernel.outputs.lookup(tensor.tensor), std::nullopt};
  auto type = cast<RankedTensorType>(tensor.tensor.getType());
  int64_t columns = type.getShape().back();
  if (result && columns % 2 == 0 &&
      tensor.map.getDimPosition(type.getRank() - 1) == featureDim)
    result.pairs = createRows(b, kernel.loc, result.buffer,
                              type.getShape().drop_back(), columns,
                              /*length=*/2);
  return result;
}

void AttentionBlock::storeRows(
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

Value AttentionBlock::constant(double value) {
  return arith::ConstantOp::create(b.b, b.loc, b.b.getF32FloatAttr(value));
}
Value AttentionBlock::add(Value x, Value y) {
  return arith::AddFOp::create(b.b, b.loc, x, y);
}
Value AttentionBlock::sub(Value x, Value y) {
  return arith::SubFOp::create(b.b, b.loc, x, y);
}
Value AttentionBlock::mul(Value x, Value y) {
  return arith::MulFOp::create(b.b, b.loc, x, y);
}

Value AttentionBlock::exp(Value x) {
  NumberBuilder numbers(b.b, b.loc, b.b.getF32Type());
  return createFlushedExp(numbers, x);
}

Value AttentionBlock::combineLanes(
    Value x, llvm::function_ref<Value(Value, Value)> combine) {
  for (int64_t mask : {1, 2})
    x = combine(x, b.exchange(x, mask));
  return x;
}
