// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which sampled products sum inner products with grouped strips, and by which
// tiles.

#include "GroupedTiles.h"
#include "InnerProducts.h"
#include "bsr/Analysis/Windows.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// Groups of a vector, at most, and lanes of a group, at least: what is
/// streamed is broadcast 16 bytes at a time.
static constexpr int64_t maxGroups = 4, minLanes = 4;

/// True if `tensor` lies in memory, as it is or in another shape: what is
/// computed where it is read is computed in whole vectors.
static bool isInMemory(Value tensor) {
  while (Operation *op = tensor.getDefiningOp()) {
    if (areReadInLine(op))
      return true;
    if (!isa<tensor::ExtractSliceOp, tensor::ExpandShapeOp,
             tensor::CollapseShapeOp>(op))
      return false;
    tensor = op->getOperand(0);
  }
  return true;
}

std::optional<GroupedTiles> GroupedTiles::find(SDDMMOp op, View view,
                                               CPUTarget target) {
  constexpr int64_t vectors = InnerProducts::stripVectors;
  PatternType pattern = op.getPattern().getType();
  // Blocks of one column are those of one row of the transposed product.
  bool alongRows = view == View::Rows && !isOfColumns(pattern);
  int64_t held = pattern.getBlockExtent(view);
  int64_t other = pattern.getBlockExtent(getOther(view));
  int64_t groups = maxGroups;
  while (groups > 1 && held % (vectors * groups) != 0)
    groups /= 2;
  int64_t groupTokens = target.lanes / groups;
  Activations activations(op.getA().getType().getShape(), op.getFeatureDim());
  bool isF32 = llvm::all_of(
      TypeRange{op.getA().getType(), op.getB().getType(),
                op.getValues().getType()},
      [](Type type) { return getElementTypeOrSelf(type).isF32(); });
  if (!isF32 || !isInMemory(op.getA()) || !isInMemory(op.getB()) ||
      held % vectors != 0 || !llvm::isPowerOf2_64(target.lanes) ||
      target.lanes < maxGroups * minLanes || target.tileVectors() < vectors ||
      activations.tokens % target.lanes != 0)
    return std::nullopt;
  GroupedTiles tiles;
  tiles.features = vectors * groups;
  tiles.together = 1;
  TokenRounds rounds(activations);
  rounds.divide(getStripTokens(maxFeatures, target), target.panel());
  if (!fitsStrip(tiles.features, rounds, target))
    return std::nullopt;
  if (alongRows) {
    // Lanes that are added up are columns, and vectors of the strip.
    if (other % CPUTarget::dotCols != 0 ||
        groupTokens > vectors * CPUTarget::dotCols)
      return std::nullopt;
    tiles.streamed = tileWithRemainder(other, CPUTarget::dotCols);
    return tiles;
  }
  // Rows whose lanes are added up together.
  int64_t rows = groupTokens / vectors, limit = target.dotRows();
  if (rows > limit)
    return std::nullopt;
  if (other % rows == 0 && other > 1) {
    for (Tiles group : tileEvenly(other / rows, limit / rows))
      tiles.streamed.push_back(
          {group.base * rows, group.size * rows, group.count});
    return tiles;
  }
  int64_t unit = rows / std::gcd(rows, other);
  tiles.together = other > limit ? 0 : limit / other / unit * unit;
  tiles.streamed.push_back({0, other, 1});
  return tiles.together ? std::optional(tiles) : std::nullopt;
}
