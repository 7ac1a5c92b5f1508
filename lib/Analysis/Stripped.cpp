// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors without what only reorders, reshapes or rounds them.

#include "bsr/Analysis/Stripped.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SmallBitVector.h"

using namespace mlir;
using namespace mlir::bsr;

/// True if `op` only rounds, widens or keeps one tensor.
static bool isRounding(linalg::LinalgOp op) {
  if (op.getNumDpsInputs() != 1 || op->getNumResults() != 1 ||
      !isElementWise(op) ||
      getAccess(op, *op.getDpsInputOperand(0),
                op.getIndexingMapMatchingResult(op->getResult(0))) !=
          Access::Same)
    return false;
  return llvm::all_of(
      op.getBlock()->without_terminator(), [](Operation &inner) {
        return isa<arith::ExtFOp, arith::TruncFOp, BarrierOp>(inner);
      });
}

/// The dimension of `group`, some of those of `type`, that is all of it: others
/// have one entry; or -1.
static int64_t getOnly(ArrayRef<int64_t> group, RankedTensorType type) {
  if (group.size() == 1)
    return group[0];
  int64_t only = -1;
  for (int64_t dim : group) {
    if (type.getDimSize(dim) == 1)
      continue;
    if (only >= 0)
      return -1;
    only = dim;
  }
  return only;
}

/// `op` as a slice, taken or inserted, that is all of a tensor, or null.
template <typename SliceOp>
static SliceOp getWhole(Operation *op) {
  auto slice = dyn_cast<SliceOp>(op);
  if (!slice)
    return {};
  RankedTensorType source = slice.getSourceType(), result = slice.getType();
  return source.hasStaticShape() && result.hasStaticShape() &&
                 source.getNumElements() == result.getNumElements()
             ? slice
             : SliceOp();
}

/// The dimensions that are not `dropped`.
static SmallVector<int64_t> getKept(const llvm::SmallBitVector &dropped) {
  SmallVector<int64_t> kept;
  for (int64_t dim : llvm::seq<int64_t>(dropped.size()))
    if (!dropped[dim])
      kept.push_back(dim);
  return kept;
}

Stripped bsr::strip(Value value) {
  Stripped stripped{value, {}};
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type)
    return stripped;
  stripped.dims = llvm::to_vector(llvm::seq<int64_t>(type.getRank()));
  auto renumber = [&](function_ref<int64_t(int64_t)> get) {
    for (int64_t &dim : stripped.dims)
      if (dim >= 0)
        dim = get(dim);
  };
  while (Operation *op = stripped.value.getDefiningOp()) {
    SmallVector<int64_t> permutation;
    if (Value source = getPermutedSource(stripped.value, permutation)) {
      renumber([&](int64_t dim) { return permutation[dim]; });
      stripped.value = source;
    } else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
               linalgOp && isRounding(linalgOp)) {
      stripped.value = linalgOp.getDpsInputs()[0];
    } else if (auto reshape = dyn_cast<tensor::CollapseShapeOp>(op)) {
      auto groups = reshape.getReassociationIndices();
      renumber([&](int64_t dim) {
        return getOnly(groups[dim], reshape.getSrcType());
      });
      stripped.value = reshape.getSrc();
    } else if (auto reshape = dyn_cast<tensor::ExpandShapeOp>(op)) {
      auto groups = reshape.getReassociationIndices();
      renumber([&](int64_t dim) -> int64_t {
        for (auto [source, group] : llvm::enumerate(groups))
          if (getOnly(group, reshape.getResultType()) == dim)
            return source;
        return -1;
      });
      stripped.value = reshape.getSrc();
    } else if (auto insert = getWhole<tensor::InsertSliceOp>(op)) {
      SmallVector<int64_t> kept = getKept(insert.getDroppedDims());
      renumber([&](int64_t dim) -> int64_t {
        auto *at = llvm::find(kept, dim);
        return at == kept.end() ? -1 : at - kept.begin();
      });
      stripped.value = insert.getSource();
    } else if (auto slice = getWhole<tensor::ExtractSliceOp>(op)) {
      SmallVector<int64_t> kept = getKept(slice.getDroppedDims());
      renumber([&](int64_t dim) { return kept[dim]; });
      stripped.value = slice.getSource();
    } else {
      break;
    }
  }
  return stripped;
}
