// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention as tensor cores take it.

#include "AttentionOperands.h"
#include "bsr/Codegen/GPU/Core/StridedView.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

std::optional<AttentionMatrix>
AttentionMatrix::match(const Attention &attention,
                       const AttentionTensor &operand, unsigned tokenDim,
                       unsigned featureDim) {
  StridedView view = StridedView::get(operand.tensor);
  if (!view.isCopied())
    return std::nullopt;
  AttentionMatrix matrix{view.buffer,
                         view.offset,
                         SmallVector<int64_t>(attention.extents.size(), 0),
                         tokenDim,
                         featureDim,
                         attention.extents[tokenDim],
                         attention.extents[featureDim],
                         /*isFeatureLast=*/false,
                         /*copied=*/0};
  for (auto [dim, stride] : llvm::enumerate(view.strides))
    matrix.strides[operand.map.getDimPosition(dim)] = stride;
  unsigned last = operand.map.getDimPosition(view.strides.size() - 1);
  matrix.isFeatureLast = last == featureDim;
  std::optional<int64_t> copied =
      view.getCopied(elementBytes, attention.extents[last]);
  if (!copied || (last != featureDim && last != tokenDim))
    return std::nullopt;
  matrix.copied = *copied;
  return matrix;
}

/// The tokens of a tile along a dimension of `extent`, whose blocks in the
/// pattern have `block`, or 0 without one; 0 if there is no tile.
static int64_t getTile(int64_t extent, int64_t block) {
  for (int64_t tile : {64, 32, 16})
    if (block ? block % tile == 0 : extent > tile / 2 || tile == fragmentRows)
      return tile;
  return 0;
}

std::optional<AttentionOperands>
AttentionOperands::match(const Attention &attention) {
  if (!getElementTypeOrSelf(attention.lse.getType()).isF32())
    return std::nullopt;
  Type type = getElementTypeOrSelf(attention.q.tensor.getType());
  if (!isMultiplied(type))
    return std::nullopt;
  unsigned queries = attention.getQueryDim(), keys = attention.getKeyDim();
  unsigned features = attention.getFeatureDim();
  unsigned valueFeatures = attention.getValueFeatureDim();
  auto match = [&](const AttentionTensor &operand, unsigned tokens,
                   unsigned features) -> std::optional<AttentionMatrix> {
    if (getElementTypeOrSelf(operand.tensor.getType()) != type ||
        attention.extents[features] > maxFeatures)
      return std::nullopt;
    return AttentionMatrix::match(attention, operand, tokens, features);
  };
  auto q = match(attention.q, queries, features);
  auto k = match(attention.k, keys, features);
  auto v = match(attention.v, keys, valueFeatures);
  if (!q || !k || !v)
    return std::nullopt;
  AttentionOperands result{attention,     *q, *k, *v, {}, type,
                           /*batches=*/1, 0,  0};
  if (attention.dy) {
    result.dy = match(attention.dy, queries, valueFeatures);
    if (!result.dy)
      return std::nullopt;
  }
  for (int64_t extent : attention.getBatch())
    result.batches *= extent;
  PatternType pattern =
      attention.pattern ? attention.pattern.getType() : PatternType();
  result.queryTile =
      getTile(attention.getQueries(), pattern ? pattern.getBlockRows() : 0);
  result.keyTile =
      getTile(attention.getKeys(), pattern ? pattern.getBlockCols() : 0);
  // Points of the batch are numbered along the second dimension of a grid.
  constexpr int64_t maxGrid = 65535;
  if (!result.queryTile || !result.keyTile || result.batches > maxGrid)
    return std::nullopt;
  return result;
}
