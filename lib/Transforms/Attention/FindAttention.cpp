// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes attention, and its gradient, of products and a softmax.

#include "AttentionBlocks.h"
#include "AttentionCandidates.h"
#include "AttentionMark.h"
#include "AttentionMatcher.h"
#include "AttentionScores.h"
#include "NarrowAttention.h"
#include "ShareKeys.h"
#include "SplitBatches.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attention.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Attention/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>
#include <map>

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRFINDATTENTION
#include "bsr/Transforms/Attention/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The product of queries and keys.
static Value getProduct(const AttentionMatch &match) {
  linalg::GenericOp op = match.scores;
  return op.getResult(0);
}

/// The map from the dimensions of `match` to those of `tensor`.
static AffineMap getMap(MLIRContext *context, const AttentionMatch &match,
                        const LabelledTensor &tensor) {
  SmallVector<AffineExpr> results;
  for (int64_t label : tensor.labels)
    results.push_back(label < 0 ? getAffineConstantExpr(0, context)
                                : getAffineDimExpr(label, context));
  return AffineMap::get(match.extents.size(), 0, results, context);
}

/// What `body` makes of `tensors`, score by score.
static LabelledTensor
combine(OpBuilder &b, const AttentionMatch &match,
        ArrayRef<LabelledTensor> tensors, Type type,
        llvm::function_ref<Value(OpBuilder &, Location, ValueRange)> body) {
  Location loc = getProduct(match).getLoc();
  unsigned rank = match.numBatchDims + 2;
  SmallVector<AffineMap> maps;
  SmallVector<Value> inputs;
  for (const LabelledTensor &tensor : tensors) {
    AffineMap map = getMap(b.getContext(), match, tensor);
    maps.push_back(AffineMap::get(rank, 0, map.getResults(), b.getContext()));
    inputs.push_back(tensor.tensor);
  }
  maps.push_back(b.getMultiDimIdentityMap(rank));
  ArrayRef<int64_t> shape = ArrayRef(match.extents).take_front(rank);
  Value init = tensor::EmptyOp::create(b, loc, shape, type);
  auto op = linalg::GenericOp::create(
      b, loc, init.getType(), inputs, init, maps,
      SmallVector<utils::IteratorType>(rank, utils::IteratorType::parallel),
      [&](OpBuilder &b, Location loc, ValueRange arguments) {
        linalg::YieldOp::create(b, loc, body(b, loc, arguments.drop_back()));
      });
  return {op.getResult(0), llvm::to_vector(llvm::seq<int64_t>(0, rank))};
}

/// The sum of the biases of `match`, or null.
static LabelledTensor getBias(OpBuilder &b, const AttentionMatch &match) {
  if (match.biases.size() < 2)
    return match.biases.empty() ? LabelledTensor() : match.biases.front();
  Type type = getElementTypeOrSelf(getProduct(match).getType());
  return combine(
      b, match, match.biases, type,
      [&](OpBuilder &b, Location loc, ValueRange values) {
        Value sum;
        for (Value value : values) {
          value = convertScalarToDtype(b, loc, value, type,
                                       /*isUnsignedCast=*/false);
          sum = sum ? arith::AddFOp::create(b, loc, sum, value).getResult()
                    : value;
        }
        return sum;
      });
}

/// The mask of `match`, true where scores count, or null.
static LabelledTensor getMask(OpBuilder &b, const AttentionMatch &match) {
  if (match.masks.empty())
    return {};
  if (match.masks.size() == 1 && !match.masks.front().isNegated)
    return match.masks.front().tensor;
  SmallVector<LabelledTensor> tensors;
  for (const AttentionMatch::Mask &mask : match.masks)
    tensors.push_back(mask.tensor);
  return combine(
      b, match, tensors, b.getI1Type(),
      [&](OpBuilder &b, Location loc, ValueRange values) {
        Value all;
        for (auto [mask, value] : llvm::zip_equal(match.masks, values)) {
          if (mask.isNegated) {
            Value yes = arith::ConstantOp::create(b, loc, b.getBoolAttr(true));
            value = arith::XOrIOp::create(b, loc, value, yes);
          }
          all = all ? arith::AndIOp::create(b, loc, all, value).getResult()
                    : value;
        }
        return all;
      });
}

/// The factor of `match`, or null.
static LabelledTensor getFactor(OpBuilder &b, const AttentionMatch &match) {
  const AttentionMatch::Factor &factor = match.factor;
  if (factor.isOne())
    return {};
  Type type = getElementTypeOrSelf(getProduct(match).getType());
  SmallVector<LabelledTensor> tensors(factor.tensors);
  for (const AttentionMatch::Mask &mask : factor.masks)
    tensors.push_back(mask.tensor);
  return combine(
      b, match, tensors, type,
      [&](OpBuilder &b, Location loc, ValueRange values) {
        auto constant = [&](double number) -> Value {
          return arith::ConstantOp::create(b, loc,
                                           b.getFloatAttr(type, number));
        };
        Value product = constant(factor.number);
        size_t numTensors = factor.tensors.size();
        for (Value value : values.take_front(numTensors))
          product = arith::MulFOp::create(
              b, loc, product,
              convertScalarToDtype(b, loc, value, type,
                                   /*isUnsignedCast=*/false));
        for (auto [mask, value] :
             llvm::zip_equal(factor.masks, values.drop_front(numTensors))) {
          Value zero = constant(0);
          product = arith::SelectOp::create(b, loc, value,
                                            mask.isNegated ? zero : product,
                                            mask.isNegated ? product : zero);
        }
        return product;
      });
}

/// The name of attention number `number`, whose scores are `op`: what marks
/// match.
static std::string nameAttention(Operation *op, unsigned number) {
  std::string name = ("attention." + Twine(number)).str();
  if (auto place = op->getLoc()->findInstanceOf<FileLineColLoc>())
    name +=
        (" " + place.getFilename().getValue() + ":" + Twine(place.getLine()))
            .str();
  op->getLoc()->walk([&](Location loc) {
    if (auto scope = dyn_cast<NameLoc>(loc))
      name += (" " + scope.getName().getValue()).str();
    return WalkResult::advance();
  });
  return name;
}

namespace {
struct FindAttention : bsr::impl::BSRFindAttentionBase<FindAttention> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    if (minKeys <= 0)
      return emitError(UnknownLoc::get(context),
                       "expected the fewest keys of attention to be 1 or "
                       "greater, but got ")
             << minKeys.getValue();
    auto error = [&] { return emitError(UnknownLoc::get(context)); };
    marked.clear();
    for (const std::string &text : marks) {
      FailureOr<AttentionMark> mark = AttentionMark::parse(text, error);
      if (failed(mark))
        return failure();
      marked.push_back(std::move(*mark));
    }
    return success();
  }

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !func.getBody().hasOneBlock())
      return;
    Block &block = func.getBody().front();
    for (auto op : llvm::to_vector(block.getOps<AttentionOp>()))
      settle(op);
    splitBatches(block);
    DenseSet<Operation *> maximized = findMaximized(block);
    unsigned number = 0;
    SmallVector<std::string> names;
    SmallVector<bool> used(marked.size(), false);
    for (auto op : llvm::to_vector(block.getOps<linalg::GenericOp>())) {
      AttentionObstacle obstacle;
      std::optional<AttentionMatch> match =
          matchAttention(op, maximized, obstacle);
      if (!match && (!obstacle.op || !mayHaveValues(op)))
        continue;
      const AttentionMark *mark = nullptr;
      if (!marked.empty()) {
        names.push_back(nameAttention(op, number++));
        for (auto [each, isUsed] : llvm::zip_equal(marked, used))
          if (each.matches(names.back())) {
            isUsed = true;
            if (!mark)
              mark = &each;
          }
      }
      if (failed(rewrite(op, match, obstacle, mark,
                         names.empty() ? "" : names.back())))
        return signalPassFailure();
    }
    for (auto [mark, isUsed] : llvm::zip_equal(marked, used))
      if (!isUsed) {
        InFlightDiagnostic error =
            func.emitError("expected '")
            << mark.match
            << "' to match the name of an attention, but "
               "got no match in "
            << names.size() << " names";
        for (auto [index, name] : llvm::enumerate(names))
          error << (index ? ", '" : ": '") << name << "'";
        return signalPassFailure();
      }
    shareKeys(block);
    narrowAttention(block);
    eraseDead(block);
    patterns.clear();
  }

  LogicalResult rewrite(linalg::GenericOp scores,
                        std::optional<AttentionMatch> &match,
                        const AttentionObstacle &obstacle,
                        const AttentionMark *mark, StringRef name);
  bool rewrite(AttentionMatch &match, std::optional<AttentionBlocks> imposed);
  void settle(AttentionOp op);
  bool hasKernels(Operation *op);
  Value getPattern(OpBuilder &b, Operation *op, const AttentionMatch &match,
                   std::optional<AttentionBlocks> blocks);
  std::optional<AttentionBlocks> getLive(const AttentionMatch &match);

  SmallVector<AttentionMark> marked;
  /// Of the masks that were evaluated, the blocks.
  std::map<std::vector<int64_t>, std::optional<AttentionBlocks>> patterns;
};
} // namespace

/// `tensor`, or what it permutes the dimensions of, if rows lie side by side
/// there or do not here either: kernels read it as it lies.
static LabelledTensor getRead(const AttentionMatch &match,
                              LabelledTensor tensor) {
  auto hasLanes = [&](const LabelledTensor &tensor) {
    return !tensor.labels.empty() &&
           (tensor.labels.back() == match.getQueryDim() ||
            tensor.labels.back() == match.getKeyDim());
  };
  LabelledTensor source = getUnpermuted(tensor);
  return hasLanes(tensor) && !hasLanes(source) ? tensor : source;
}

/// The blocks in which the masks of `match` have an entry, which are the same
/// for all attention with these masks; nothing if those are all.
std::optional<AttentionBlocks>
FindAttention::getLive(const AttentionMatch &match) {
  std::vector<int64_t> key(match.extents.begin(), match.extents.end());
  auto add = [&](const LabelledTensor &tensor, int64_t kind) {
    key.push_back(
        reinterpret_cast<intptr_t>(tensor.tensor.getAsOpaquePointer()));
    key.push_back(kind);
    llvm::append_range(key, tensor.labels);
  };
  for (const AttentionMatch::Mask &mask : match.masks)
    add(mask.tensor, mask.isNegated);
  for (const LabelledTensor &bias : match.biases)
    add(bias, 2);
  auto [known, isNew] = patterns.try_emplace(key);
  if (isNew)
    known->second = getLiveBlocks(match);
  return known->second;
}

/// The pattern of `blocks`, or else that which a mask of `match` is masked by,
/// or of the blocks in which its masks have an entry, or null; at the place of
/// `op`.
Value FindAttention::getPattern(OpBuilder &b, Operation *op,
                                const AttentionMatch &match,
                                std::optional<AttentionBlocks> blocks) {
  if (!blocks) {
    AttentionObstacle obstacle;
    if (Value pattern = getMaskPattern(match, obstacle))
      return pattern;
    if (!obstacle.op && !obstacle.reason.empty())
      obstacle.op = op;
    if (obstacle.op)
      PassRemark::missed("bsr-find-attention", "AllBlocks", obstacle.op,
                         PassRemark::remarkIf(report))
              .add("Operation", obstacle.op->getName())
              .add("Reason", obstacle.reason)
          << "expected attention of the blocks that a marked mask stores, but "
             "got "
          << obstacle.reason << ": attention is computed of all blocks";
  }
  if (!blocks)
    blocks = getLive(match);
  if (!blocks)
    return {};
  auto type = PatternType::get(
      b.getContext(), match.extents[match.getQueryDim()],
      match.extents[match.getKeyDim()], blocks->blockRows, blocks->blockCols,
      static_cast<int64_t>(blocks->colIdx.size()));
  ++numPatterns;
  return ConstantPatternOp::create(b, op->getLoc(), type, blocks->rowPtr,
                                   blocks->colIdx);
}

/// Has `op`, which was imported, and its gradients read tensors as they lie
/// before their dimensions are permuted, and compute the blocks in which masks
/// have an entry alone.
void FindAttention::settle(AttentionOp op) {
  Attention attention(op);
  AttentionMatch match;
  match.numBatchDims = attention.numBatchDims;
  match.extents = attention.extents;
  match.fill = attention.fill;
  match.zeroEmpty = attention.zeroEmpty;
  auto getLabelled = [](Value tensor, AffineMap map) {
    LabelledTensor labelled{tensor, {}};
    for (AffineExpr expr : map.getResults()) {
      auto dim = dyn_cast<AffineDimExpr>(expr);
      labelled.labels.push_back(dim ? int64_t(dim.getPosition()) : -1);
    }
    return labelled;
  };
  if (attention.mask)
    match.masks.push_back(
        {getLabelled(attention.mask.tensor, attention.mask.map), false});
  if (attention.bias)
    match.biases.push_back(
        getLabelled(attention.bias.tensor, attention.bias.map));

  OpBuilder b(op);
  Value pattern = op.getPattern();
  if (!pattern)
    pattern = getPattern(b, op, match, std::nullopt);
  SmallVector<Operation *> ops{op};
  for (Operation *user : op.getLse().getUsers())
    if (isa<AttentionGradOp>(user))
      ops.push_back(user);
  for (Operation *each : ops) {
    // What has features: as many operands as are in front of the bias.
    SmallVector<OpOperand *> reads;
    for (OpOperand &operand : each->getOpOperands())
      if (operand.get() != op.getLse() && reads.size() < (each == op ? 3 : 5))
        reads.push_back(&operand);
    SmallVector<AffineMap> maps = getTensorMaps(each);
    for (auto [number, operand] : llvm::enumerate(reads)) {
      LabelledTensor read =
          getRead(match, getLabelled(operand->get(), maps[number]));
      maps[number] = getMap(b.getContext(), match, read);
      operand->set(read.tensor);
    }
    setTensorMaps(each, maps);
    if (!pattern)
      continue;
    if (auto gradient = dyn_cast<AttentionGradOp>(each))
      gradient.getPatternMutable().assign(pattern);
    else
      op.getPatternMutable().assign(pattern);
  }
}

/// True if the target has kernels for `op`, an attention or a gradient; else a
/// remark says so, and what was made for it has no uses.
bool FindAttention::hasKernels(Operation *op) {
  if (getTarget(op).hasAttention(op))
    return true;
  PassRemark::missed("bsr-find-attention", "NoKernels", op,
                     PassRemark::remarkIf(report))
          .add("Operation", op->getName())
      << "expected attention that the target has kernels for, but got '"
      << op->getName() << "' of " << op->getOperandTypes().front()
      << ": scores stay in memory";
  return false;
}

/// `value`, whose dimensions `labels` names as an attention has them, with
/// dimensions of extent 1 where `type` has them.
static Value addUnits(OpBuilder &b, Value value, ArrayRef<int64_t> labels,
                      RankedTensorType type) {
  SmallVector<ReassociationIndices> groups(1);
  bool isNamed = false;
  for (auto [dim, label] : llvm::enumerate(labels)) {
    if (label >= 0 && isNamed)
      groups.emplace_back();
    isNamed |= label >= 0;
    groups.back().push_back(dim);
  }
  if (value.getType() == type)
    return value;
  return tensor::ExpandShapeOp::create(b, value.getLoc(), type, value, groups);
}

/// Rewrites what `match` is of, or says why not; fails if a mark imposes a
/// pattern that it cannot have.
LogicalResult FindAttention::rewrite(linalg::GenericOp scores,
                                     std::optional<AttentionMatch> &match,
                                     const AttentionObstacle &obstacle,
                                     const AttentionMark *mark,
                                     StringRef name) {
  auto error = [&]() -> InFlightDiagnostic {
    return scores.emitError() << name << ": ";
  };
  if (!match) {
    if (mark) {
      InFlightDiagnostic diagnostic =
          error() << "expected attention that '" << mark->match
                  << "' imposes a pattern on, but got '"
                  << obstacle.op->getName() << "' that " << obstacle.reason;
      diagnostic.attachNote(obstacle.op->getLoc())
          << "this is what is in the way";
      return diagnostic;
    }
    bool isRequired = requireSparse && getNumKeys(scores) >= minKeys &&
                      isExponentiated(scores);
    PassRemark remark =
        isRequired
            ? PassRemark::failed("bsr-find-attention", "NoAttention",
                                 obstacle.op, DiagnosticSeverity::Error)
            : PassRemark::missed("bsr-find-attention", "NoAttention",
                                 obstacle.op, PassRemark::remarkIf(report));
    if (remark)
      remark.add("Operation", obstacle.op->getName())
              .add("Reason", obstacle.reason)
              .add("Keys", getNumKeys(scores))
          << "expected attention, but got '" << obstacle.op->getName()
          << "' that " << obstacle.reason << ": scores stay in memory";
    return failure(isRequired);
  }
  int64_t keys = match->extents[match->getKeyDim()];
  if (!mark) {
    if (keys < minKeys)
      PassRemark::missed("bsr-find-attention", "FewKeys", scores,
                         PassRemark::remarkIf(report))
              .add("Keys", keys)
          << "expected attention to at least " << minKeys.getValue()
          << " keys, but got " << keys << ": scores stay in memory";
    else if (decide("bsr-find-attention", scores))
      rewrite(*match, std::nullopt);
    return success();
  }
  if (!match->output)
    return error() << "expected attention that '" << mark->match
                   << "' imposes a pattern on to be computed once, but got "
                      "scores that a gradient computes again";
  FailureOr<AttentionBlocks> blocks = mark->impose(*match, error);
  if (failed(blocks))
    return failure();
  PassRemark::passed("bsr-find-attention", "PatternImposed", scores,
                     PassRemark::remarkIf(report))
          .add("Attention", name)
          .add("Blocks", blocks->colIdx.size())
      << "imposed on " << name << ": " << blocks->colIdx.size() << " blocks of "
      << blocks->blockRows << "x" << blocks->blockCols;
  if (!rewrite(*match, *blocks))
    return error() << "expected a target with kernels for attention that '"
                   << mark->match << "' imposes a pattern on, but got none";
  return success();
}

/// Makes attention of `match`; false if the target has no kernels for it.
bool FindAttention::rewrite(AttentionMatch &match,
                            std::optional<AttentionBlocks> imposed) {
  Operation *first = nullptr;
  bool hasLanes = true;
  if (match.probabilityGradient)
    for (linalg::GenericOp op :
         {match.valueGradient, match.queryGradient, match.keyGradient}) {
      if (!first || op->isBeforeInBlock(first))
        first = op;
      hasLanes &= attrs::lanes.isOn(op);
    }
  Operation *place = match.output ? match.output.getOperation() : first;
  OpBuilder b(place);
  Location loc = match.scores.getLoc();
  LabelledTensor bias = getBias(b, match), mask = getMask(b, match),
                 factor = getFactor(b, match);
  Value pattern = getPattern(b, match.scores, match, std::move(imposed));
  LabelledTensor q = getRead(match, match.q), k = getRead(match, match.k),
                 v = getRead(match, match.v);
  // What is computed again for a gradient alone has an output all the same: its
  // products with dy are known of each row.
  LabelledTensor y = match.y;
  auto outputType = cast<RankedTensorType>(
      match.output ? match.y.tensor.getType() : match.dy.tensor.getType());
  if (!match.output)
    y.labels = match.dy.labels;
  FloatAttr scale = b.getF64FloatAttr(match.scale);
  FloatAttr fill = match.fill && *match.fill != -INFINITY
                       ? b.getF64FloatAttr(*match.fill)
                       : FloatAttr();
  UnitAttr zeroEmpty = match.zeroEmpty ? b.getUnitAttr() : UnitAttr();
  auto getMaps = [&](ArrayRef<LabelledTensor> tensors) {
    SmallVector<AffineMap> maps;
    for (const LabelledTensor &tensor : tensors)
      maps.push_back(getMap(b.getContext(), match, tensor));
    for (const LabelledTensor &tensor : {bias, mask, factor})
      if (tensor)
        maps.push_back(getMap(b.getContext(), match, tensor));
    return b.getAffineMapArrayAttr(maps);
  };
  SmallVector<int64_t> parts{2};
  llvm::append_range(
      parts, ArrayRef(match.extents).take_front(match.numBatchDims + 1));
  auto statistics = RankedTensorType::get(parts, match.getSumType());
  auto attention = AttentionOp::create(
      b, loc, outputType, statistics, q.tensor, k.tensor, v.tensor, bias.tensor,
      mask.tensor, factor.tensor, pattern, scale, fill, zeroEmpty,
      getMaps({q, k, v, y}));
  if (attrs::lanes.isOn(place))
    attrs::lanes.set(attention, b.getUnitAttr());
  if (!hasKernels(attention))
    return false;
  y.tensor = attention.getY();
  auto replaceOutput = [&] {
    if (match.output)
      match.output.getResult(0).replaceAllUsesWith(attention.getY());
    ++numFound;
    PassRemark::passed("bsr-find-attention", "AttentionFound", attention)
        .add("Keys", match.extents[match.getKeyDim()])
        .add("FLOPs", getFlops(attention));
  };
  if (!match.probabilityGradient) {
    replaceOutput();
    return true;
  }

  b.setInsertionPoint(first);
  LabelledTensor dy = getRead(match, match.dy), dbias;
  SmallVector<LabelledTensor> tensors{q,  k,        v,        y,
                                      dy, match.dq, match.dk, match.dv};
  RankedTensorType biasType;
  if (match.biasGradient) {
    SmallVector<int64_t> shape;
    for (int64_t label : match.dbias.labels)
      if (label >= 0) {
        dbias.labels.push_back(label);
        shape.push_back(match.extents[label]);
      }
    tensors.push_back(dbias);
    biasType = RankedTensorType::get(shape, match.getSumType());
  }
  auto gradient = AttentionGradOp::create(
      b, match.probabilityGradient.getLoc(), match.dq.tensor.getType(),
      match.dk.tensor.getType(), match.dv.tensor.getType(), biasType, q.tensor,
      k.tensor, v.tensor, y.tensor, attention.getLse(), dy.tensor, bias.tensor,
      mask.tensor, factor.tensor, pattern, scale, fill, zeroEmpty,
      getMaps(tensors));
  if (hasLanes)
    attrs::lanes.set(gradient, b.getUnitAttr());
  if (!hasKernels(gradient))
    return false;
  replaceOutput();
  match.dq.tensor.replaceAllUsesWith(gradient.getDq());
  match.dk.tensor.replaceAllUsesWith(gradient.getDk());
  match.dv.tensor.replaceAllUsesWith(gradient.getDv());
  if (match.biasGradient)
    match.dbias.tensor.replaceAllUsesWith(
        addUnits(b, gradient.getDbias(), match.dbias.labels,
                 cast<RankedTensorType>(match.dbias.tensor.getType())));
  ++numGradients;
  return true;
}
