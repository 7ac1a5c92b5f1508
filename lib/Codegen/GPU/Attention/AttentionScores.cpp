// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scores of attention: products with their factor, what is added to them, and
// what masks them.

#include "AttentionThreadBlock.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

SmallVector<Value>
AttentionThreadBlock::getIndices(const AttentionTensor &tensor, Value row,
                                 Value col, Value feature) {
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
      AttentionThreadBlock &block, GPUEvaluator &e,
      const AttentionTensor &tensor,
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
  AttentionThreadBlock &block;
  GPUEvaluator &e;
  const AttentionTensor &tensor;
  llvm::function_ref<SmallVector<Value>(int64_t, int64_t)> indices;
  std::map<std::pair<int64_t, int64_t>, Value> elements;
};
} // namespace

AttentionThreadBlock::Scores
AttentionThreadBlock::getScores(ValueRange products, Value first) {
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

SmallVector<Value> AttentionThreadBlock::areColumns(Value first) {
  if (!operands.isRagged(colDim, cols))
    return SmallVector<Value>(getNumColumns());
  SmallVector<Value> result;
  for (int64_t j = 0; j != getNumColumns(); ++j)
    result.push_back(b.less(b.add(first, getColumn(j)),
                            b.constant(attention.extents[colDim])));
  return result;
}
