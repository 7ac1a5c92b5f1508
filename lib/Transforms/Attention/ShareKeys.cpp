// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keys and values that several heads of queries share.
//
// Programs with fewer heads of keys than of queries repeat each for a group of
// queries' heads (`repeat_kv`), before or after they scale or transpose them:
// head h of what the attention reads is head h / size of what was repeated. The
// dimension of the heads becomes two here, groups and what is in a group, of
// which keys and values have the first one.

#include "ShareKeys.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Dialect/Attention.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StructuredOpsUtils.h"
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;

static RankedTensorType getType(Value tensor) {
  return cast<RankedTensorType>(tensor.getType());
}

/// `op` if it computes one tensor element by element, each dimension of the
/// result being a loop of its own; or null.
static linalg::GenericOp getElementWise(Operation *op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  if (!generic || generic->getNumResults() != 1 ||
      generic.getNumParallelLoops() != generic.getNumLoops() ||
      !generic.hasPureTensorSemantics() || generic.hasIndexSemantics() ||
      !generic.getIndexingMapsArray().back().isPermutation() ||
      !llvm::all_of(generic.getIndexingMapsArray(), [](AffineMap map) {
        return map.isProjectedPermutation(/*allowZeroInResults=*/true);
      }))
    return {};
  // What is in a body comes from outside of the loops, or from the inputs.
  return generic.payloadUsesValueFromOperand(generic.getDpsInitOperand(0))
             ? linalg::GenericOp()
             : generic;
}

/// The dimension of an operand with `map` that loop `loop` goes along.
static std::optional<unsigned> getDim(AffineMap map, unsigned loop) {
  return map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
}

/// The loop along dimension `dim` of the result of `op`.
static unsigned getLoop(linalg::GenericOp op, unsigned dim) {
  AffineMap map = op.getIndexingMapsArray().back();
  return cast<AffineDimExpr>(map.getResult(dim)).getPosition();
}

/// Calls `visit` for what element-wise `op` reads along dimension `dim` of its
/// result, with the dimension that it is there.
static void forReadAlong(linalg::GenericOp op, unsigned dim,
                         llvm::function_ref<void(Value, unsigned)> visit) {
  unsigned loop = getLoop(op, dim);
  for (OpOperand *input : op.getDpsInputOperands())
    if (std::optional<unsigned> at =
            getDim(op.getMatchingIndexingMap(input), loop))
      visit(input->get(), *at);
}

bool bsr::isConstantAlong(Value value, unsigned dim) {
  SetVector<std::pair<Value, unsigned>> reached;
  reached.insert({value, dim});
  for (size_t next = 0; next != reached.size(); ++next) {
    auto [read, along] = reached[next];
    if (::getType(read).getDimSize(along) == 1)
      continue;
    linalg::GenericOp op = getElementWise(read.getDefiningOp());
    if (!op)
      return false;
    forReadAlong(op, along, [&](Value input, unsigned at) {
      reached.insert({input, at});
    });
  }
  return true;
}

namespace {
/// How many positions along a dimension of a value, one after the other and
/// from any multiple of that number on, are the same.
class Repeats {
public:
  int64_t count(Value value, unsigned dim) {
    auto [known, isNew] = counts.try_emplace({value, dim}, 0);
    if (!isNew)
      return known->second;
    int64_t count = compute(value, dim);
    return counts[{value, dim}] = count;
  }

private:
  int64_t compute(Value value, unsigned dim);

  DenseMap<std::pair<Value, unsigned>, int64_t> counts;
};
} // namespace

int64_t Repeats::compute(Value value, unsigned dim) {
  if (auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>()) {
    int64_t repeats = 1;
    SmallVector<ReassociationIndices> parts =
        collapse.getReassociationIndices();
    for (int64_t part : llvm::reverse(parts[dim])) {
      if (!isConstantAlong(collapse.getSrc(), part))
        return repeats * count(collapse.getSrc(), part);
      repeats *= collapse.getSrcType().getDimSize(part);
    }
    return repeats;
  }
  int64_t extent = getType(value).getDimSize(dim);
  linalg::GenericOp op = getElementWise(value.getDefiningOp());
  if (!op)
    return 1;
  int64_t repeats = extent;
  forReadAlong(op, dim, [&](Value input, unsigned at) {
    repeats = std::gcd(repeats, count(input, at));
  });
  return repeats;
}

static int64_t countRepeats(Value value, unsigned dim) {
  return Repeats().count(value, dim);
}

/// `type` with extent `extent` along dimension `dim`.
static RankedTensorType resize(RankedTensorType type, unsigned dim,
                               int64_t extent) {
  SmallVector<int64_t> shape(type.getShape());
  shape[dim] = extent;
  return type.clone(shape);
}

namespace {
/// Values as they were before they were repeated.
class UnrepeatedValues {
public:
  /// What `value` is at every multiple of `repeats` along dimension `dim`,
  /// where `countRepeats` is a multiple of `repeats`.
  Value get(Value value, unsigned dim, int64_t repeats) {
    if (repeats == 1)
      return value;
    std::pair key(value, std::pair(dim, repeats));
    Value known = values.lookup(key);
    if (!known)
      values[key] = known = make(value, dim, repeats);
    return known;
  }

private:
  Value make(Value value, unsigned dim, int64_t repeats);

  DenseMap<std::pair<Value, std::pair<unsigned, int64_t>>, Value> values;
};
} // namespace

Value UnrepeatedValues::make(Value value, unsigned dim, int64_t repeats) {
  OpBuilder b(value.getContext());
  b.setInsertionPointAfterValue(value);
  int64_t extent = getType(value).getDimSize(dim) / repeats;
  RankedTensorType type = resize(getType(value), dim, extent);
  if (auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>()) {
    Value source = collapse.getSrc();
    SmallVector<ReassociationIndices> parts =
        collapse.getReassociationIndices();
    for (int64_t part : llvm::reverse(parts[dim])) {
      int64_t size = std::gcd(repeats, getType(source).getDimSize(part));
      source = get(source, part, size);
      repeats /= size;
    }
    return tensor::CollapseShapeOp::create(b, value.getLoc(), type, source,
                                           collapse.getReassociationIndices());
  }
  linalg::GenericOp op = getElementWise(value.getDefiningOp());
  unsigned loop = getLoop(op, dim);
  SmallVector<Value> inputs;
  for (OpOperand *input : op.getDpsInputOperands()) {
    std::optional<unsigned> at = getDim(op.getMatchingIndexingMap(input), loop);
    inputs.push_back(at ? get(input->get(), *at, repeats) : input->get());
  }
  // What is left of a copy is what was copied.
  if (OpOperand *copied = getYieldedInput(op);
      copied && inputs[copied->getOperandNumber()].getType() == type &&
      op.getMatchingIndexingMap(copied) == op.getIndexingMapsArray().back())
    return inputs[copied->getOperandNumber()];
  Value empty = tensor::EmptyOp::create(b, value.getLoc(), type.getShape(),
                                        type.getElementType());
  inputs.push_back(empty);
  return clone(b, op, TypeRange(type), inputs)->getResult(0);
}

/// The groups of the dimensions of a tensor whose dimension `dim`, of `rank`,
/// is two.
static SmallVector<ReassociationIndices> getGroups(int64_t rank, unsigned dim) {
  SmallVector<ReassociationIndices> groups(rank);
  int64_t next = 0;
  for (auto [number, group] : llvm::enumerate(groups))
    for (unsigned part = 0; part != (number == dim ? 2 : 1); ++part)
      group.push_back(next++);
  return groups;
}

namespace {
/// A batch dimension of an attention that becomes two.
struct Grouping {
  unsigned dim;
  int64_t groups, size;

  RankedTensorType split(RankedTensorType type, unsigned at) const {
    SmallVector<int64_t> shape(type.getShape());
    shape[at] = groups;
    shape.insert(shape.begin() + at + 1, size);
    return type.clone(shape);
  }
  /// `value` with dimension `at` as two.
  Value split(OpBuilder &b, Value value, unsigned at) const {
    RankedTensorType type = split(getType(value), at);
    auto collapse = value.getDefiningOp<tensor::CollapseShapeOp>();
    if (collapse && collapse.getSrcType() == type)
      return collapse.getSrc();
    return tensor::ExpandShapeOp::create(
        b, value.getLoc(), type, value,
        getGroups(getType(value).getRank(), at));
  }
  /// `value`, whose dimensions `at` and `at + 1` are what was split, as one.
  Value merge(OpBuilder &b, Value value, RankedTensorType type,
              unsigned at) const {
    return tensor::CollapseShapeOp::create(b, value.getLoc(), type, value,
                                           getGroups(type.getRank(), at));
  }
  /// `map`, of the attention's dimensions, with one dimension more; if
  /// `isShared` without what is in a group.
  AffineMap split(AffineMap map, bool isShared) const {
    SmallVector<AffineExpr> results;
    MLIRContext *context = map.getContext();
    for (AffineExpr expr : map.getResults()) {
      auto known = dyn_cast<AffineDimExpr>(expr);
      unsigned position = known ? known.getPosition() : 0;
      if (known && position > dim)
        expr = getAffineDimExpr(position + 1, context);
      results.push_back(expr);
      if (known && position == dim && !isShared)
        results.push_back(getAffineDimExpr(dim + 1, context));
    }
    return AffineMap::get(map.getNumDims() + 1, 0, results, context);
  }
};

/// The sum over the heads of a group of a gradient, as a program has it: what
/// scales or permutes the gradient first, what splits its heads, and the sum.
struct GroupSum {
  SmallVector<linalg::GenericOp> scalings;
  tensor::ExpandShapeOp split;
  linalg::GenericOp sum;
  /// The dimension of the heads in what is split.
  unsigned dim;
};
} // namespace

/// True if `op` only permutes the dimensions of a tensor, or multiplies it with
/// a number, too.
static bool isLinear(linalg::GenericOp op) {
  if (!op || op.getNumDpsInputs() != 1 ||
      !op.getIndexingMapsArray().front().isPermutation())
    return false;
  Block *body = op.getBody();
  Value yielded = body->getTerminator()->getOperand(0);
  if (yielded == body->getArgument(0))
    return true;
  auto product = yielded.getDefiningOp<arith::MulFOp>();
  return product && llvm::hasSingleElement(body->without_terminator()) &&
         (product.getLhs() == body->getArgument(0)) !=
             (product.getRhs() == body->getArgument(0));
}

/// How what reads `gradient` sums it up over the heads of each group, along
/// dimension `dim`; nothing if something else reads it.
static std::optional<GroupSum> findSum(Value gradient, unsigned dim,
                                       const Grouping &grouping) {
  GroupSum found;
  Value value = gradient;
  while (value.hasOneUse()) {
    Operation *user = *value.user_begin();
    if (auto expand = dyn_cast<tensor::ExpandShapeOp>(user)) {
      SmallVector<int64_t> large;
      ReassociationIndices group = expand.getReassociationIndices()[dim];
      for (int64_t part : group)
        if (expand.getResultType().getDimSize(part) != 1)
          large.push_back(part);
      bool isSplit = large.size() == 2 && expand.getResultType().getDimSize(
                                              large[1]) == grouping.size;
      bool isAll = expand.getResultType().getRank() ==
                   expand.getSrcType().getRank() - 1 +
                       static_cast<int64_t>(group.size());
      if (!isSplit || !isAll || !expand->hasOneUse())
        return std::nullopt;
      auto sum = dyn_cast<linalg::GenericOp>(*expand->user_begin());
      if (!sum || sum.getNumDpsInputs() != 1 || sum->getNumResults() != 1 ||
          !isZeros(sum.getDpsInits()[0]) ||
          !sum.getIndexingMapsArray()[0].isPermutation())
        return std::nullopt;
      SmallVector<unsigned> reduced;
      sum.getReductionDims(reduced);
      Block *body = sum.getBody();
      auto add =
          body->getTerminator()->getOperand(0).getDefiningOp<arith::AddFOp>();
      auto loop = cast<AffineDimExpr>(
          sum.getIndexingMapsArray()[0].getResult(large[1]));
      if (reduced.size() != 1 || reduced[0] != loop.getPosition() || !add ||
          !llvm::hasSingleElement(body->without_terminator()) ||
          !llvm::is_contained(add.getOperands(), body->getArgument(0)) ||
          !llvm::is_contained(add.getOperands(), body->getArgument(1)))
        return std::nullopt;
      found.split = expand;
      found.sum = sum;
      found.dim = dim;
      return found;
    }
    auto op = dyn_cast<linalg::GenericOp>(user);
    if (!op || !getElementWise(op) || !isLinear(op))
      return std::nullopt;
    unsigned loop =
        cast<AffineDimExpr>(op.getIndexingMapsArray()[0].getResult(dim))
            .getPosition();
    dim = *getDim(op.getIndexingMapsArray().back(), loop);
    found.scalings.push_back(op);
    value = op->getResult(0);
  }
  return std::nullopt;
}

/// Makes `summed`, the gradient of what heads share, what the program has after
/// `found`.
static void replaceSum(Value summed, GroupSum found) {
  OpBuilder b(found.sum);
  for (linalg::GenericOp op : found.scalings) {
    AffineMap from = op.getIndexingMapsArray()[0];
    AffineMap to = op.getIndexingMapsArray().back();
    SmallVector<int64_t> extents(op.getNumLoops());
    for (auto [expr, extent] :
         llvm::zip_equal(from.getResults(), getType(summed).getShape()))
      extents[cast<AffineDimExpr>(expr).getPosition()] = extent;
    SmallVector<int64_t> shape;
    for (AffineExpr expr : to.getResults())
      shape.push_back(extents[cast<AffineDimExpr>(expr).getPosition()]);
    auto type = getType(op->getResult(0)).clone(shape);
    Value empty =
        tensor::EmptyOp::create(b, op.getLoc(), shape, type.getElementType());
    summed = clone(b, op, TypeRange(type), {summed, empty})->getResult(0);
  }
  // Dimensions of the sum: those of the groups, perhaps permuted, perhaps with
  // one of extent 1 for what was summed up.
  linalg::GenericOp sum = found.sum;
  RankedTensorType split = found.split.getResultType();
  SmallVector<int64_t> shape(split.getShape());
  AffineMap read = sum.getIndexingMapsArray()[0];
  SmallVector<unsigned> reduced;
  sum.getReductionDims(reduced);
  shape[*getDim(read, reduced[0])] = 1;
  Value whole =
      tensor::ExpandShapeOp::create(b, sum.getLoc(), split.clone(shape), summed,
                                    found.split.getReassociationIndices());
  Value result =
      clone(b, sum, sum->getResultTypes(), {whole, sum.getDpsInits()[0]})
          ->getResult(0);
  sum->getResult(0).replaceAllUsesWith(result);
}

/// The groups that heads of `attention` are in along `dim`; nothing if neither
/// keys nor values were repeated.
static std::optional<Grouping> findGrouping(const Attention &attention,
                                            unsigned dim) {
  int64_t extent = attention.extents[dim], size = 1;
  for (const AttentionTensor &tensor : {attention.k, attention.v})
    if (std::optional<unsigned> at = getDim(tensor.map, dim)) {
      int64_t repeats = countRepeats(tensor.tensor, *at);
      size = size == 1      ? repeats
             : repeats == 1 ? size
                            : std::gcd(size, repeats);
    }
  if (size == 1)
    return std::nullopt;
  return Grouping{dim, extent / size, size};
}

namespace {
/// Makes one attention read keys and values as they were before they were
/// repeated along one dimension.
class Sharer {
public:
  Sharer(Operation *op, const Grouping &grouping, UnrepeatedValues &unrepeated)
      : b(op), attention(*getAttention(op)), grouping(grouping),
        unrepeated(unrepeated) {}

  /// Null if the target has no kernels for what that would be.
  Operation *share(AttentionOp op);
  Operation *share(AttentionGradOp op);

private:
  /// What is read of `tensor` now; its map is the next one.
  Value read(const AttentionTensor &tensor, bool isKey = false);
  RankedTensorType make(const AttentionTensor &tensor, bool isSummed = false);
  /// Replaces `from` by `to`, whose dimensions `at` and `at + 1` are one there.
  void replace(Value from, Value to, std::optional<unsigned> at);
  bool hasKernels(Operation *op) {
    if (getTarget(op).hasAttention(op))
      return true;
    op->erase();
    return false;
  }

  OpBuilder b;
  Attention attention;
  const Grouping &grouping;
  UnrepeatedValues &unrepeated;
  SmallVector<AffineMap> maps;
};
} // namespace

Value Sharer::read(const AttentionTensor &tensor, bool isKey) {
  if (!tensor)
    return {};
  std::optional<unsigned> at = getDim(tensor.map, grouping.dim);
  bool isShared =
      at && isKey && countRepeats(tensor.tensor, *at) % grouping.size == 0;
  maps.push_back(grouping.split(tensor.map, isShared));
  if (!at)
    return tensor.tensor;
  return isShared ? unrepeated.get(tensor.tensor, *at, grouping.size)
                  : grouping.split(b, tensor.tensor, *at);
}

RankedTensorType Sharer::make(const AttentionTensor &tensor, bool isSummed) {
  if (!tensor)
    return {};
  maps.push_back(grouping.split(tensor.map, isSummed));
  RankedTensorType type = getType(tensor.tensor);
  std::optional<unsigned> at = getDim(tensor.map, grouping.dim);
  if (!at)
    return type;
  return isSummed ? resize(type, *at, grouping.groups)
                  : grouping.split(type, *at);
}

void Sharer::replace(Value from, Value to, std::optional<unsigned> at) {
  if (!from)
    return;
  if (at)
    to = grouping.merge(b, to, getType(from), *at);
  from.replaceAllUsesWith(to);
}

Operation *Sharer::share(AttentionOp op) {
  Value q = read(attention.q), k = read(attention.k, /*isKey=*/true),
        v = read(attention.v, /*isKey=*/true);
  RankedTensorType y = make(attention.y);
  Value bias = read(attention.bias), mask = read(attention.mask),
        factor = read(attention.factor);
  auto lse = grouping.split(getType(op.getLse()), grouping.dim + 1);
  auto shared =
      AttentionOp::create(b, op.getLoc(), y, lse, q, k, v, bias, mask, factor,
                          op.getPattern(), op.getScaleAttr(), op.getFillAttr(),
                          op.getZeroEmptyAttr(), b.getAffineMapArrayAttr(maps));
  shared->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  if (!hasKernels(shared))
    return nullptr;
  replace(op.getY(), shared.getY(), getDim(attention.y.map, grouping.dim));
  replace(op.getLse(), shared.getLse(), grouping.dim + 1);
  return shared;
}

Operation *Sharer::share(AttentionGradOp op) {
  std::optional<GroupSum> keySum, valueSum;
  std::optional<unsigned> keyDim = getDim(attention.dk.map, grouping.dim),
                          valueDim = getDim(attention.dv.map, grouping.dim);
  if (keyDim) {
    keySum = findSum(op.getDk(), *keyDim, grouping);
    valueSum = findSum(op.getDv(), *valueDim, grouping);
  }
  bool isSummed = keySum && valueSum;
  Value q = read(attention.q), k = read(attention.k, /*isKey=*/true),
        v = read(attention.v, /*isKey=*/true), y = read(attention.y),
        dy = read(attention.dy);
  Value lse = grouping.split(b, op.getLse(), grouping.dim + 1);
  RankedTensorType dq = make(attention.dq), dk = make(attention.dk, isSummed),
                   dv = make(attention.dv, isSummed),
                   dbias = make(attention.dbias);
  Value bias = read(attention.bias), mask = read(attention.mask),
        factor = read(attention.factor);
  auto shared = AttentionGradOp::create(
      b, op.getLoc(), dq, dk, dv, dbias, q, k, v, y, lse, dy, bias, mask,
      factor, op.getPattern(), op.getScaleAttr(), op.getFillAttr(),
      op.getZeroEmptyAttr(), b.getAffineMapArrayAttr(maps));
  shared->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  if (!hasKernels(shared))
    return nullptr;
  replace(op.getDq(), shared.getDq(), getDim(attention.dq.map, grouping.dim));
  if (isSummed) {
    replaceSum(shared.getDk(), *keySum);
    replaceSum(shared.getDv(), *valueSum);
  } else {
    replace(op.getDk(), shared.getDk(), keyDim);
    replace(op.getDv(), shared.getDv(), valueDim);
  }
  if (op.getDbias())
    replace(op.getDbias(), shared.getDbias(),
            getDim(attention.dbias.map, grouping.dim));
  return shared;
}

void bsr::shareKeys(Block &block) {
  UnrepeatedValues unrepeated;
  SmallVector<Operation *> ops;
  for (Operation &op : block)
    if (isa<AttentionOp, AttentionGradOp>(op))
      ops.push_back(&op);
  for (Operation *op : ops) {
    Attention attention = *getAttention(op);
    for (unsigned dim = 0; dim != attention.numBatchDims; ++dim) {
      std::optional<Grouping> grouping = findGrouping(attention, dim);
      if (!grouping)
        continue;
      if (!decide("bsr-share-keys", op))
        break;
      Sharer sharer(op, *grouping, unrepeated);
      if (auto forward = dyn_cast<AttentionOp>(op))
        sharer.share(forward);
      else
        sharer.share(cast<AttentionGradOp>(op));
      break;
    }
  }
}
