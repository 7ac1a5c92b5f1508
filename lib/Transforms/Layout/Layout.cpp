// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lays activations out feature-major, so that vectors run along tokens.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Lanes.h"
#include "bsr/Analysis/PassOrder.h"
#include "bsr/Dialect/Attention.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Layout/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLAYOUT
#include "bsr/Transforms/Layout/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

static ArrayRef<int64_t> getShape(Value value) {
  return cast<RankedTensorType>(value.getType()).getShape();
}

static RankedTensorType permute(RankedTensorType type,
                                ArrayRef<int64_t> order) {
  return RankedTensorType::get(applyPermutation(type.getShape(), order),
                               type.getElementType());
}

static bool isIdentity(ArrayRef<int64_t> order) {
  return isIdentityPermutation(order);
}

/// True if all elements of what `op` makes are one scalar.
static bool isFilled(Operation *op) {
  auto generic = dyn_cast<linalg::GenericOp>(op);
  OpOperand *source = generic ? getYieldedInput(generic) : nullptr;
  return source && !isa<ShapedType>(source->get().getType());
}

/// A copy of `value` as `type`, whose element at a point is that of `value`
/// where `source` leads.
static linalg::GenericOp createCopy(OpBuilder &b, Value value,
                                    RankedTensorType type, AffineMap source) {
  Location loc = value.getLoc();
  Value empty =
      tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  int64_t rank = type.getRank();
  SmallVector<AffineMap> maps{source, b.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> kinds(rank, utils::IteratorType::parallel);
  return linalg::GenericOp::create(
      b, loc, type, value, empty, maps, kinds,
      [](OpBuilder &nested, Location loc, ValueRange args) {
        linalg::YieldOp::create(nested, loc, args.front());
      });
}

namespace {
struct Layout : bsr::impl::BSRLayoutBase<Layout> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !func.getBody().hasOneBlock())
      return;
    // A product that is no generic operation would keep its layout.
    if (failed(requireBefore<linalg::ContractionOpInterface>(
            "linalg-generalize-named-ops", getArgument(), func)))
      return signalPassFailure();
    if (!getTarget(func).wantsTokensLast())
      return;
    Block &block = func.getBody().front();
    separateInits(block);
    separateRegions(block);
    Lanes found(block);
    // The old types, by value: results change as we go.
    for (Operation &op : block)
      for (Value result : op.getResults())
        if (found.get(result))
          orders[result] = found.getOrder(result);
    for (Operation &op : llvm::make_early_inc_range(block))
      rewrite(&op);
    markLanes(block);
    eraseDead(block);
    orders.clear();
    copies.clear();
  }

  static void markLanes(Operation *op) {
    attrs::lanes.set(op, UnitAttr::get(op->getContext()));
  }

  /// Marks the operations of the graph whose results have lanes, for
  /// `bsr-panel`.
  void markLanes(Block &block) {
    for (Operation &op : block) {
      auto onActivations = dyn_cast<ActivationsOpInterface>(op);
      bool isComputed = onActivations
                            ? onActivations.getMadeActivations() != nullptr
                            : isa<linalg::GenericOp, tensor::ConcatOp,
                                  AttentionOp, AttentionGradOp>(op);
      auto results = op.getResults();
      // Statistics of rows have none.
      if (isa<AttentionOp>(op))
        results = results.take_front();
      if (isComputed && llvm::all_of(results, [&](Value result) {
            return getLane(result) && getShape(result).size() > 1;
          }))
        markLanes(&op);
    }
  }

  /// Gives every user of an empty, constant or filled tensor one of its own:
  /// two users may want two layouts. From the bottom up, for a filled tensor is
  /// a user of an empty one.
  void separateInits(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
      if (!isa<tensor::EmptyOp>(op) && !isFilled(&op) &&
          !(isa<arith::ConstantOp>(op) && hasFreeLayout(&op) &&
            isa<RankedTensorType>(op.getResult(0).getType())))
        continue;
      for (OpOperand &use : llvm::make_early_inc_range(op.getUses())) {
        if (op.hasOneUse() || use.getOwner()->getBlock() != &block)
          continue;
        OpBuilder b(use.getOwner());
        use.set(b.clone(op)->getResult(0));
      }
    }
  }

  /// Gives regions copies, in front of their operations, of what they read:
  /// these keep their layout, and what else reads the same value does not have
  /// to. A copy of what stays as it is goes when the step is canonicalized.
  void separateRegions(Block &block) {
    // The copies are not among them.
    for (Operation *op : llvm::to_vector(llvm::make_pointer_range(block))) {
      if (!hasFreeLayout(op) || isFilled(op) ||
          isa<tensor::EmptyOp, arith::ConstantOp>(op))
        continue;
      DenseMap<std::pair<Value, Operation *>, Value> kept;
      for (OpOperand &use : llvm::make_early_inc_range(op->getUses())) {
        Operation *around = block.findAncestorOpInBlock(*use.getOwner());
        auto type = dyn_cast<RankedTensorType>(use.get().getType());
        // What bodies read is rewritten with their operations.
        if (!type || around == use.getOwner() || isa<linalg::LinalgOp>(around))
          continue;
        Value &copy = kept[{use.get(), around}];
        if (!copy) {
          OpBuilder b(around);
          copy = createCopy(b, use.get(), type,
                            b.getMultiDimIdentityMap(type.getRank()))
                     .getResult(0);
        }
        use.set(copy);
      }
    }
  }

  ArrayRef<int64_t> getOrder(Value value) const {
    auto found = orders.find(value);
    return found == orders.end() ? ArrayRef<int64_t>() : found->second;
  }
  std::optional<unsigned> getLane(Value value) const {
    ArrayRef<int64_t> order = getOrder(value);
    return order.empty() ? std::nullopt : std::optional<unsigned>(order.back());
  }
  bool isMoved(Value value) const {
    ArrayRef<int64_t> order = getOrder(value);
    return !order.empty() && !isIdentity(order);
  }

  /// `value` with its dimensions in order `to` (empty: as written), by a copy
  /// if it is laid out otherwise.
  Value convert(OpBuilder &b, Value value, ArrayRef<int64_t> to) {
    SmallVector<int64_t> from(getOrder(value));
    int64_t rank = getShape(value).size();
    auto identity = llvm::to_vector(llvm::seq<int64_t>(rank));
    if (from.empty())
      from = identity;
    SmallVector<int64_t> target(to.empty() ? ArrayRef<int64_t>(identity) : to);
    if (from == target)
      return value;
    // Dimension i of the result is dimension target[i] as written, which is
    // where from holds it.
    SmallVector<int64_t> order;
    for (int64_t dim : target)
      order.push_back(llvm::find(from, dim) - from.begin());
    auto type = permute(cast<RankedTensorType>(value.getType()), order);
    if (value.getDefiningOp<tensor::EmptyOp>())
      return tensor::EmptyOp::create(b, value.getLoc(), type.getShape(),
                                     type.getElementType());
    SmallVector<AffineExpr> exprs(rank);
    for (auto [position, dim] : llvm::enumerate(order))
      exprs[dim] = b.getAffineDimExpr(position);
    auto source = AffineMap::get(rank, 0, exprs, b.getContext());
    // Operations are rewritten from top to bottom: the first copy serves
    // all that follow.
    linalg::GenericOp &copy = copies[{value, source}];
    if (!copy) {
      ++numConversions;
      remark(value, order);
      copy = createCopy(b, value, type, source);
    }
    if (!to.empty())
      markLanes(copy);
    return copy.getResult(0);
  }

  /// Says that `value` is copied, its dimensions in `order`.
  void remark(Value value, ArrayRef<int64_t> order) {
    PassRemark remark = PassRemark::missed("bsr-layout", "LayoutCopied",
                                           {value.getLoc(), getOperation()},
                                           PassRemark::remarkIf(report));
    if (!remark)
      return;
    std::string shape;
    llvm::raw_string_ostream(shape) << value.getType();
    remark.add("Type", shape);
    remark << "expected one layout for whatever reads " << value.getType()
           << " of ";
    if (Operation *producer = value.getDefiningOp())
      remark.add("Operation", producer->getName())
          << "'" << producer->getName() << "'";
    else if (Attribute name = attrs::name.ofArg(
                 getOperation(), cast<BlockArgument>(value).getArgNumber()))
      remark << "argument " << name;
    else
      remark << "an argument";
    remark << ", but got a copy with dimensions in order ";
    llvm::interleaveComma(order, remark);
  }

  /// Converts operand `operand` to order `to` where it is not in it.
  void convertOperand(OpOperand &operand, ArrayRef<int64_t> to) {
    OpBuilder b(operand.getOwner());
    operand.set(convert(b, operand.get(), to));
  }

  void setLayout(Value result) {
    if (isMoved(result)) {
      result.setType(
          permute(cast<RankedTensorType>(result.getType()), getOrder(result)));
      ++numLaidOut;
    }
  }

  void rewrite(Operation *op) {
    TypeSwitch<Operation *>(op)
        .Case([&](linalg::GenericOp op) { rewriteGeneric(op); })
        .Case<AttentionOp, AttentionGradOp>(
            [&](auto op) { rewriteAttention(op); })
        .Case([&](ActivationsOpInterface op) {
          if (!hasFreeLayout(op))
            return;
          op.keepsTokenOrder() ? moveFeatures(op) : permuteTokens(op);
        })
        .Case<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
            [&](auto op) { rewriteReshape(op); })
        .Case([&](tensor::ConcatOp op) { rewriteConcat(op); })
        .Case([&](tensor::ExtractSliceOp op) { rewriteSlice(op); })
        .Case([&](tensor::EmptyOp op) { setLayout(op.getResult()); })
        .Case([&](arith::ConstantOp op) {
          setLayout(op.getResult());
          if (isMoved(op.getResult()))
            op.setValueAttr(cast<SplatElementsAttr>(op.getValue())
                                .resizeSplat(cast<ShapedType>(op.getType())));
        });
  }

  static void permuteMap(AffineMap &map, ArrayRef<int64_t> order) {
    if (!order.empty())
      map = AffineMap::get(map.getNumDims(), 0,
                           applyPermutation(map.getResults(), order),
                           map.getContext());
  }

  /// Attention reads and makes its tensors as they lie.
  void rewriteAttention(Operation *op) {
    SmallVector<AffineMap> maps = getTensorMaps(op);
    for (auto [map, tensor] : llvm::zip_equal(maps, getMappedTensors(op)))
      permuteMap(map, getOrder(tensor));
    llvm::for_each(op->getResults(), [&](Value result) { setLayout(result); });
    setTensorMaps(op, maps);
  }

  void rewriteGeneric(linalg::GenericOp op) {
    SmallVector<AffineMap> maps = op.getIndexingMapsArray();
    for (OpOperand *input : op.getDpsInputOperands())
      permuteMap(maps[input->getOperandNumber()], getOrder(input->get()));
    for (auto [number, result] : llvm::enumerate(op->getResults())) {
      OpOperand &init = *op.getDpsInitOperand(number);
      convertOperand(init, getOrder(result));
      permuteMap(maps[init.getOperandNumber()], getOrder(result));
      setLayout(result);
    }
    op.setIndexingMapsAttr(OpBuilder(op).getAffineMapArrayAttr(maps));
    op.walk([&](tensor::ExtractOp extract) {
      ArrayRef<int64_t> order = getOrder(extract.getTensor());
      if (order.empty())
        return;
      SmallVector<Value> indices(extract.getIndices());
      extract.getIndicesMutable().assign(applyPermutation(indices, order));
    });
  }

  /// The order that puts the last token dimension of `x` last.
  static SmallVector<int64_t> getLaneOrder(Value x, int64_t featureDim) {
    SmallVector<int64_t> order;
    int64_t rank = getShape(x).size();
    if (rank == 1) // One token: no lanes.
      return {0};
    int64_t lane = getTokenDim(x, featureDim).value_or(featureDim ? 0 : 1);
    for (int64_t dim = 0; dim != rank; ++dim)
      if (dim != lane)
        order.push_back(dim);
    order.push_back(lane);
    return order;
  }

  /// The order of the first of `values` whose lanes are tokens; else the last
  /// token dimension is last.
  SmallVector<int64_t> getProductOrder(ArrayRef<Value> values,
                                       int64_t featureDim) const {
    for (Value value : values)
      if (ArrayRef<int64_t> order = getOrder(value);
          !order.empty() && order.back() != featureDim)
        return SmallVector<int64_t>(order);
    return getLaneOrder(values.back(), featureDim);
  }

  static void moveFeatureDim(ActivationsOpInterface op,
                             ArrayRef<int64_t> order) {
    int64_t dim = op.getFeatureDim();
    op.setFeatureDim(llvm::find(order, dim) - order.begin());
  }

  /// Gives all activations of `op` the lanes of the result, or of an operand,
  /// or the last token dimension.
  void permuteTokens(ActivationsOpInterface op) {
    SmallVector<OpOperand *, 2> reads = op.getReadActivations();
    Value made = op.getMadeActivations();
    SmallVector<Value> values;
    if (made)
      values.push_back(made);
    for (OpOperand *read : reads)
      values.push_back(read->get());
    SmallVector<int64_t> order = getProductOrder(values, op.getFeatureDim());
    for (OpOperand *read : reads)
      convertOperand(*read, order);
    moveFeatureDim(op, order);
    if (!made)
      return;
    SmallVector<int64_t> wanted(getOrder(made));
    made.setType(permute(cast<RankedTensorType>(made.getType()), order));
    if (wanted == order)
      return;
    orders[made] = order;
    convertUses(made, wanted);
  }

  /// Gives the users of `made` a copy of it in the order that they want.
  void convertUses(Value made, ArrayRef<int64_t> wanted) {
    OpBuilder b(made.getContext());
    b.setInsertionPointAfterValue(made);
    Value converted = convert(b, made, wanted);
    if (!wanted.empty())
      orders[converted] = SmallVector<int64_t>(wanted);
    made.replaceAllUsesExcept(converted, converted.getDefiningOp());
  }

  /// Makes the result of `op` as it is wanted, or takes its one operand as it
  /// lies, if its tokens are in their order then.
  void moveFeatures(ActivationsOpInterface op) {
    if (Value made = op.getMadeActivations())
      return moveMadeFeatures(op, made);
    OpOperand &read = *op.getReadActivations().front();
    ArrayRef<int64_t> order = getOrder(read.get());
    if (!areTokensSorted(order, op.getFeatureDim()))
      return convertOperand(read, {});
    if (!order.empty())
      moveFeatureDim(op, order);
  }

  static bool areTokensSorted(ArrayRef<int64_t> order, int64_t featureDim) {
    SmallVector<int64_t> tokens = llvm::filter_to_vector(
        order, [&](int64_t dim) { return dim != featureDim; });
    return llvm::is_sorted(tokens);
  }

  void moveMadeFeatures(ActivationsOpInterface op, Value made) {
    SmallVector<int64_t> wanted(getOrder(made));
    if (wanted.empty())
      return;
    if (areTokensSorted(wanted, op.getFeatureDim())) {
      moveFeatureDim(op, wanted);
      return setLayout(made);
    }
    orders.erase(made);
    convertUses(made, wanted);
  }

  template <typename OpTy>
  void rewriteReshape(OpTy op) {
    Value source = op.getSrc(), result = op.getResult();
    if (!isMoved(source) && !isMoved(result))
      return;
    auto type = cast<RankedTensorType>(result.getType());
    SmallVector<int64_t> order(getOrder(result));
    std::optional<unsigned> laneOfSource = getLane(source);
    std::optional<unsigned> laneOfResult = getLane(result);
    bool expands = isa<tensor::ExpandShapeOp>(op);
    ArrayRef<int64_t> longer = expands ? type.getShape() : ArrayRef<int64_t>();
    SmallVector<int64_t> written;
    if (!expands) {
      // The source may have moved: its shape as written.
      written.resize(getShape(source).size());
      ArrayRef<int64_t> from = getOrder(source);
      for (auto [position, extent] : llvm::enumerate(getShape(source)))
        written[from.empty() ? position : from[position]] = extent;
      longer = written;
    }
    OpBuilder b(op);
    Value moved;
    if (laneOfSource && laneOfResult &&
        mapThroughReshape(op.getReassociationIndices(), longer,
                          /*fromLonger=*/!expands,
                          *laneOfSource) == laneOfResult) {
      RankedTensorType to = order.empty() ? type : permute(type, order);
      auto groups = getReassociationIndicesForReshape(
          cast<ShapedType>(source.getType()), to);
      if (groups)
        moved = OpTy::create(b, op.getLoc(), to, source, *groups);
    }
    if (!moved) {
      // As written, between conversions.
      Value plain = convert(b, source, {});
      moved = OpTy::create(b, op.getLoc(), type, plain,
                           op.getReassociationIndices());
      moved = convert(b, moved, order);
    }
    result.replaceAllUsesWith(moved);
    // The old operation stays until the end, so that no new value takes its
    // place in the map of orders.
    orders[moved] = order;
  }

  void rewriteConcat(tensor::ConcatOp op) {
    Value result = op.getResult();
    for (OpOperand &input : op->getOpOperands())
      convertOperand(input, getOrder(result));
    if (!isMoved(result))
      return;
    op.setDim(llvm::find(getOrder(result), static_cast<int64_t>(op.getDim())) -
              getOrder(result).begin());
    setLayout(result);
  }

  void rewriteSlice(tensor::ExtractSliceOp op) {
    Value result = op.getResult();
    convertOperand(op.getSourceMutable(), getOrder(result));
    if (!isMoved(result))
      return;
    ArrayRef<int64_t> order = getOrder(result);
    op.setStaticOffsets(applyPermutation(op.getStaticOffsets(), order));
    op.setStaticSizes(applyPermutation(op.getStaticSizes(), order));
    op.setStaticStrides(applyPermutation(op.getStaticStrides(), order));
    setLayout(result);
  }

  /// The dimensions of values in their new order, for those that have lanes.
  DenseMap<Value, SmallVector<int64_t>> orders;
  /// The copies of values to other layouts, by the map that reads the value.
  DenseMap<std::pair<Value, AffineMap>, linalg::GenericOp> copies;
};
} // namespace
