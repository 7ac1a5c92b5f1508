// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How MLIR's sparse tensors write what patterns and values are here.

#include "SparseTensors.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::sparse_tensor;

RankedTensorType bsr::getSparseType(RankedTensorType dense, int64_t blockRows,
                                    int64_t blockCols) {
  MLIRContext *context = dense.getContext();
  AffineExpr i = getAffineDimExpr(0, context), j = getAffineDimExpr(1, context);
  SmallVector<AffineExpr> levels{i.floorDiv(blockRows), j.floorDiv(blockCols)};
  SmallVector<LevelType> types{LevelFormat::Dense, LevelFormat::Compressed};
  for (auto [dim, extent] : {std::pair(i, blockRows), std::pair(j, blockCols)})
    if (extent != 1) {
      levels.push_back(dim % extent);
      types.push_back(LevelFormat::Dense);
    }
  auto encoding = SparseTensorEncodingAttr::get(
      context, types, AffineMap::get(2, 0, levels, context), AffineMap(),
      /*posWidth=*/32, /*crdWidth=*/32);
  return RankedTensorType::get(dense.getShape(), dense.getElementType(),
                               encoding);
}

std::optional<std::pair<int64_t, int64_t>> bsr::getBlock(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto encoding = getSparseTensorEncoding(type);
  if (!tensor || !encoding || tensor.getRank() != 2 ||
      encoding.getLvlRank() < 2)
    return std::nullopt;
  // What follows the first two levels is i mod r, j mod c, or both.
  int64_t block[] = {1, 1};
  AffineMap map = encoding.getDimToLvl();
  for (AffineExpr level : map.getResults().drop_front(2)) {
    auto modulo = dyn_cast<AffineBinaryOpExpr>(level);
    auto dim = modulo ? dyn_cast<AffineDimExpr>(modulo.getLHS()) : nullptr;
    auto extent =
        modulo ? dyn_cast<AffineConstantExpr>(modulo.getRHS()) : nullptr;
    if (!dim || !extent || extent.getValue() < 1)
      return std::nullopt;
    block[dim.getPosition()] = extent.getValue();
  }
  auto known =
      getSparseTensorEncoding(getSparseType(tensor, block[0], block[1]));
  return known.getLvlTypes() == encoding.getLvlTypes() &&
                 known.getDimToLvl() == map
             ? std::optional(std::pair(block[0], block[1]))
             : std::nullopt;
}
