// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Points of loops, and where elements lie at them.

#ifndef BSR_LIB_INTERPRETER_POINTS_H
#define BSR_LIB_INTERPRETER_POINTS_H

#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/AffineMap.h"
#include <vector>

namespace mlir::bsr::interpreter {

/// Calls `run` with each point of loops of `extents`, the last runs fastest.
template <typename Run>
void forEachPoint(const std::vector<int64_t> &extents, Run run) {
  for (int64_t extent : extents)
    if (extent == 0)
      return;
  std::vector<int64_t> point(extents.size(), 0);
  while (true) {
    run(point);
    size_t dim = extents.size();
    while (dim && ++point[dim - 1] == extents[dim - 1])
      point[--dim] = 0;
    if (dim == 0)
      return;
  }
}

/// The place of an element, row-major: the sum of `offset` and of the
/// coordinates of a point, each times its stride.
struct LinearMap {
  int64_t offset = 0;
  std::vector<int64_t> strides;

  int64_t at(const std::vector<int64_t> &point) const {
    int64_t place = offset;
    for (size_t i = 0; i < strides.size(); ++i)
      place += strides[i] * point[i];
    return place;
  }
};

/// Where `map` leads in a tensor of `shape`, or nothing if it has divisions.
inline std::optional<LinearMap>
getLinearMap(mlir::AffineMap map, const std::vector<int64_t> &shape) {
  bool isLinear = true;
  map.walkExprs([&](mlir::AffineExpr expr) {
    isLinear &= expr.getKind() != mlir::AffineExprKind::Mod &&
                expr.getKind() != mlir::AffineExprKind::FloorDiv &&
                expr.getKind() != mlir::AffineExprKind::CeilDiv;
  });
  if (!isLinear || map.getNumSymbols())
    return std::nullopt;
  auto placeOf = [&](const llvm::SmallVector<int64_t> &point) {
    llvm::SmallVector<int64_t> indices = map.compose(point);
    int64_t place = 0;
    for (size_t i = 0; i < shape.size(); ++i)
      place = place * shape[i] + indices[i];
    return place;
  };
  llvm::SmallVector<int64_t> point(map.getNumDims(), 0);
  LinearMap linear;
  linear.offset = placeOf(point);
  for (int64_t &coordinate : point) {
    coordinate = 1;
    linear.strides.push_back(placeOf(point) - linear.offset);
    coordinate = 0;
  }
  return linear;
}

} // namespace mlir::bsr::interpreter

#endif // BSR_LIB_INTERPRETER_POINTS_H
