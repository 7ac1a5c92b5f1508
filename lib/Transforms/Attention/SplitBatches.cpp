// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Splits batch dimensions of products that were merged. (Upstream folds
// reshapes by expansion as patterns that lose attributes, and into all
// operations around.)

#include "SplitBatches.h"
#include "AttentionMatcher.h"
#include "AttentionScores.h"
#include "ShareKeys.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

static RankedTensorType getType(Value tensor) {
  return cast<RankedTensorType>(tensor.getType());
}

/// The dimension of the operand with `map` that loop `loop` goes along.
static std::optional<unsigned> getDim(AffineMap map, unsigned loop) {
  return map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
}

/// True if something only sums `value` up over dimension `dim`.
static bool isSummedOver(Value value, unsigned dim) {
  if (!value.hasOneUse())
    return false;
  OpOperand &use = *value.use_begin();
  auto op = dyn_cast<linalg::GenericOp>(use.getOwner());
  if (!op || op.isDpsInit(&use))
    return false;
  auto loop =
      dyn_cast<AffineDimExpr>(op.getMatchingIndexingMap(&use).getResult(dim));
  return loop && op.getIteratorTypesArray()[loop.getPosition()] ==
                     utils::IteratorType::reduction;
}

/// The extents of the dimensions that dimension `dim` of `value` was merged of,
/// or is split into; nothing if it is one. Heads that share keys are one
/// dimension: what was repeated to give each its own (see ShareKeys.h), or is
/// summed up over them, was not merged of two.
static SmallVector<int64_t> getParts(Value value, unsigned dim) {
  auto getExtents = [&](auto reshape, Value split,
                        function_ref<bool(unsigned)> isOne) {
    SmallVector<int64_t> extents, large;
    SmallVector<ReassociationIndices> groups =
        reshape.getReassociationIndices();
    for (int64_t part : groups[dim]) {
      extents.push_back(getType(split).getDimSize(part));
      if (extents.back() != 1)
        large.push_back(part);
    }
    return large.size() > 1 && llvm::none_of(large, isOne)
               ? extents
               : SmallVector<int64_t>();
  };
  if (auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>())
    return getExtents(collapse, collapse.getSrc(), [&](unsigned part) {
      return isConstantAlong(collapse.getSrc(), part);
    });
  for (Operation *user : value.getUsers())
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(user))
      if (SmallVector<int64_t> extents =
              getExtents(expand, expand.getResult(),
                         [&](unsigned part) {
                           return isSummedOver(expand.getResult(), part);
                         });
          !extents.empty())
        return extents;
  return {};
}

/// The groups of the dimensions of a tensor of rank `rank` whose dimension
/// `dim` is split into `parts`.
static SmallVector<ReassociationIndices> getGroups(int64_t rank, unsigned dim,
                                                   size_t parts) {
  SmallVector<ReassociationIndices> groups(rank);
  int64_t next = 0;
  for (auto [number, group] : llvm::enumerate(groups))
    for (size_t part = 0; part != (number == dim ? parts : 1); ++part)
      group.push_back(next++);
  return groups;
}

static RankedTensorType getSplitType(RankedTensorType type, unsigned dim,
                                     ArrayRef<int64_t> parts) {
  SmallVector<int64_t> shape(type.getShape());
  shape.erase(shape.begin() + dim);
  shape.insert(shape.begin() + dim, parts.begin(), parts.end());
  return type.clone(shape);
}

/// What each dimension of a tensor is merged of, of those of `source`, where
/// `groups` are merged, if dimension `dim` is split into `parts`; nothing if it
/// was merged of others.
static std::optional<SmallVector<ReassociationIndices>>
refine(ArrayRef<ReassociationIndices> groups, RankedTensorType source,
       unsigned dim, ArrayRef<int64_t> parts) {
  SmallVector<ReassociationIndices> result;
  for (auto [number, group] : llvm::enumerate(groups)) {
    if (number != dim) {
      result.push_back(group);
      continue;
    }
    ArrayRef<int64_t> rest = group;
    for (int64_t part : parts) {
      ReassociationIndices piece;
      int64_t extent = 1;
      while (!rest.empty() && (piece.empty() || extent < part)) {
        piece.push_back(rest.front());
        extent *= source.getDimSize(rest.front());
        rest = rest.drop_front();
      }
      if (extent != part)
        return std::nullopt;
      result.push_back(piece);
    }
    for (int64_t left : rest) {
      if (source.getDimSize(left) != 1)
        return std::nullopt;
      result.back().push_back(left);
    }
  }
  return result;
}

/// The reshape of `value` to `type` by `groups`: one that is there, or a new
/// one, where `value` is defined.
template <typename OpTy>
static Value reshape(OpBuilder &b, Value value, RankedTensorType type,
                     ArrayRef<ReassociationIndices> groups) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointAfterValue(value);
  for (Operation *user : value.getUsers())
    if (auto known = dyn_cast<OpTy>(user);
        known && known.getResultType() == type &&
        ArrayRef(known.getReassociationIndices()) == groups) {
      known->moveBefore(b.getInsertionBlock(), b.getInsertionPoint());
      return known.getResult();
    }
  return OpTy::create(b, value.getLoc(), type, value, groups);
}

/// `value` with dimension `dim` split into `parts`. Equal splits are one value,
/// since the search for attention compares values.
static Value split(OpBuilder &b, Value value, unsigned dim,
                   ArrayRef<int64_t> parts) {
  RankedTensorType type = getSplitType(getType(value), dim, parts);
  if (auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>()) {
    std::optional<SmallVector<ReassociationIndices>> groups = refine(
        collapse.getReassociationIndices(), collapse.getSrcType(), dim, parts);
    if (groups && collapse.getSrcType() == type)
      return collapse.getSrc();
    if (groups)
      return reshape<tensor::CollapseShapeOp>(b, collapse.getSrc(), type,
                                              *groups);
  }
  return reshape<tensor::ExpandShapeOp>(
      b, value, type, getGroups(getType(value).getRank(), dim, parts.size()));
}

/// Makes loop `loop` of the product `op` one loop for each of `parts`.
static linalg::GenericOp split(linalg::GenericOp op, unsigned loop,
                               ArrayRef<int64_t> parts) {
  OpBuilder b(op);
  Location loc = op.getLoc();
  size_t numLoops = op.getNumLoops() + parts.size() - 1;
  SmallVector<Value> operands;
  SmallVector<AffineMap> maps;
  for (auto [operand, map] :
       llvm::zip_equal(op->getOperands(), op.getIndexingMapsArray())) {
    SmallVector<AffineExpr> results;
    for (AffineExpr expr : map.getResults()) {
      unsigned dim = cast<AffineDimExpr>(expr).getPosition();
      if (dim != loop) {
        results.push_back(
            b.getAffineDimExpr(dim < loop ? dim : dim + parts.size() - 1));
        continue;
      }
      for (size_t part = 0; part != parts.size(); ++part)
        results.push_back(b.getAffineDimExpr(loop + part));
    }
    maps.push_back(AffineMap::get(numLoops, 0, results, b.getContext()));
    std::optional<unsigned> dim = getDim(map, loop);
    operands.push_back(
        dim && operands.size() < 2 ? split(b, operand, *dim, parts) : operand);
  }
  unsigned dim = *getDim(op.getIndexingMapsArray()[2], loop);
  RankedTensorType type = getSplitType(getType(op.getResult(0)), dim, parts);
  Value empty =
      tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  Value zero =
      arith::ConstantOp::create(b, loc, b.getZeroAttr(type.getElementType()));
  Value init = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  kinds.insert(kinds.begin() + loop, parts.size() - 1,
               utils::IteratorType::parallel);
  auto product = linalg::GenericOp::create(
      b, loc, type, ArrayRef(operands).take_front(2), init, maps, kinds);
  product->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  product.getRegion().takeBody(op.getRegion());

  SmallVector<ReassociationIndices> groups =
      getGroups(getType(op.getResult(0)).getRank(), dim, parts.size());
  for (Operation *user : llvm::make_early_inc_range(op->getUsers())) {
    auto expand = dyn_cast<tensor::ExpandShapeOp>(user);
    if (!expand)
      continue;
    std::optional<SmallVector<ReassociationIndices>> parted = refine(
        expand.getReassociationIndices(), expand.getResultType(), dim, parts);
    if (!parted)
      continue;
    Value result = product.getResult(0);
    if (expand.getResultType() != type) {
      b.setInsertionPoint(expand);
      result = tensor::ExpandShapeOp::create(
          b, expand.getLoc(), expand.getResultType(), result, *parted);
    }
    expand.getResult().replaceAllUsesWith(result);
    expand.erase();
  }
  b.setInsertionPoint(op);
  if (!op->use_empty()) {
    Value merged = tensor::CollapseShapeOp::create(
        b, loc, op.getResult(0).getType(), product.getResult(0), groups);
    op.getResult(0).replaceAllUsesWith(merged);
  }
  op.erase();
  return product;
}

namespace {
/// A loop of a product that is a batch dimension, and of which.
struct MergedLoop {
  unsigned loop;
  SmallVector<int64_t> parts;
};
} // namespace

/// A batch dimension of `op` that was merged, if there is one.
static std::optional<MergedLoop> getMergedLoop(linalg::GenericOp op) {
  if (op.getNumDpsInputs() != 2 || op->getNumResults() != 1 ||
      !linalg::isaContractionOpInterface(op) || !isZeros(op.getDpsInits()[0]))
    return std::nullopt;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (!llvm::all_of(maps,
                    [](AffineMap map) { return map.isProjectedPermutation(); }))
    return std::nullopt;
  FailureOr<linalg::ContractionDimensions> dims =
      linalg::inferContractionDims(op);
  if (failed(dims))
    return std::nullopt;
  for (unsigned loop : dims->batch)
    for (auto [value, map] : llvm::zip_equal(
             SmallVector<Value>{op->getOperand(0), op->getOperand(1),
                                op->getResult(0)},
             maps))
      if (SmallVector<int64_t> parts = getParts(value, *getDim(map, loop));
          !parts.empty())
        return MergedLoop{loop, parts};
  return std::nullopt;
}

/// The products of attention in `block` that are found as they are.
static DenseSet<Operation *> findWhole(Block &block) {
  DenseSet<Operation *> maximized = findMaximized(block), whole;
  for (auto op : block.getOps<linalg::GenericOp>()) {
    AttentionObstacle obstacle;
    if (auto match = matchAttention(op, maximized, obstacle))
      for (Operation *product :
           {match->scores, match->output, match->queryGradient,
            match->keyGradient, match->valueGradient,
            match->probabilityGradient})
        whole.insert(product);
  }
  return whole;
}

void bsr::splitBatches(Block &block) {
  auto products = llvm::to_vector(block.getOps<linalg::GenericOp>());
  if (llvm::none_of(products, [](auto op) { return getMergedLoop(op); }))
    return;
  DenseSet<Operation *> whole = findWhole(block);
  for (linalg::GenericOp op : products)
    if (!whole.contains(op))
      while (std::optional<MergedLoop> loop = getMergedLoop(op))
        op = split(op, loop->loop, loop->parts);
}
