// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes attention, and its gradient, of calls of functions that a front end
// says compute it.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Analysis/Work.h"
#include "bsr/Dialect/Attention.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Attention/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRIMPORTATTENTION
#include "bsr/Transforms/Attention/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// A call of a function that computes attention, or a gradient.
struct Call {
  Operation *op;
  AttentionFunction function;

  Value get(StringRef name) const {
    auto found = llvm::find(function.operands, name);
    return found == function.operands.end()
               ? Value()
               : op->getOperand(found - function.operands.begin());
  }
  RankedTensorType getType(StringRef name) const {
    Value value = get(name);
    return value ? dyn_cast<RankedTensorType>(value.getType())
                 : RankedTensorType();
  }
  unsigned getNumBatchDims() const { return getType("q").getRank() - 2; }
  /// Whether it is of the same attention as `other`: all but dy is.
  bool isLike(const Call &other) const {
    return function.scale == other.function.scale &&
           function.keptFactor == other.function.keptFactor &&
           llvm::all_of(
               ArrayRef<StringRef>{"q", "k", "v", "bias", "mask", "kept"},
               [&](StringRef name) { return get(name) == other.get(name); });
  }
  bool fits() const;
};
} // namespace

/// The map of a tensor with all batch dimensions and those of `dims` behind.
static AffineMap getMap(MLIRContext *context, unsigned numBatchDims,
                        ArrayRef<unsigned> dims) {
  auto results = llvm::to_vector(llvm::seq(numBatchDims));
  for (unsigned dim : dims)
    results.push_back(numBatchDims + dim);
  return AffineMap::getMultiDimMapWithTargets(numBatchDims + 4, results,
                                              context);
}

/// The map of a tensor that is broadcast to the shape of the scores.
static AffineMap getBroadcastMap(RankedTensorType type, unsigned numBatchDims) {
  SmallVector<AffineExpr> results;
  unsigned first = numBatchDims + 2 - type.getRank();
  for (auto [dim, extent] : llvm::enumerate(type.getShape()))
    results.push_back(extent == 1
                          ? getAffineConstantExpr(0, type.getContext())
                          : getAffineDimExpr(first + dim, type.getContext()));
  return AffineMap::get(numBatchDims + 4, 0, results, type.getContext());
}

/// Whether operands and results have the shapes that the function says. Else
/// the call stays one: its body says what it computes.
bool Call::fits() const {
  if (function.operands.size() != op->getNumOperands() ||
      op->getNumResults() != (function.isGradient() ? 3 : 1))
    return false;
  SmallVector<Type> types(op->getOperandTypes());
  llvm::append_range(types, op->getResultTypes());
  for (Type type : types) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!tensor || !tensor.hasStaticShape() || tensor.getNumElements() == 0)
      return false;
  }
  RankedTensorType q = getType("q"), k = getType("k"), v = getType("v");
  int64_t rank = q.getRank();
  if (rank < 2 || k.getRank() != rank || v.getRank() != rank ||
      q.getDimSize(rank - 1) != k.getDimSize(rank - 1) ||
      k.getDimSize(rank - 2) != v.getDimSize(rank - 2))
    return false;
  ArrayRef<int64_t> batch = q.getShape().drop_back(2);
  if (k.getShape().drop_back(2) != batch || v.getShape().drop_back(2) != batch)
    return false;
  SmallVector<int64_t> scores(q.getShape().drop_back()), y(scores);
  scores.push_back(k.getDimSize(rank - 2));
  y.push_back(v.getDimSize(rank - 1));
  for (StringRef name : {"bias", "mask", "kept"})
    if (RankedTensorType type = getType(name)) {
      if (type.getRank() > rank ||
          isa<FloatType>(type.getElementType()) != (name == "bias") ||
          (name != "bias" && !type.getElementType().isInteger(1)))
        return false;
      for (auto [extent, whole] :
           llvm::zip(llvm::reverse(type.getShape()), llvm::reverse(scores)))
        if (extent != 1 && extent != whole)
          return false;
    }
  SmallVector<ArrayRef<int64_t>> expected{y};
  if (function.isGradient()) {
    if (getType("dy").getShape() != ArrayRef(y))
      return false;
    expected = {q.getShape(), k.getShape(), v.getShape()};
  }
  return llvm::all_of(llvm::zip_equal(op->getResultTypes(), expected),
                      [](auto pair) {
                        auto type = cast<RankedTensorType>(std::get<0>(pair));
                        return type.getShape() == std::get<1>(pair) &&
                               isa<FloatType>(type.getElementType());
                      });
}

namespace {
/// Makes the operations of one attention.
class AttentionBuilder {
public:
  explicit AttentionBuilder(const Call &call)
      : b(call.op), loc(call.op->getLoc()), call(call),
        numBatchDims(call.getNumBatchDims()) {}

  AttentionOp createForward(Type y);
  AttentionGradOp createGradient(const Call &gradient, AttentionOp forward);

private:
  Type getSumType() const;
  Value createFactor();
  ArrayAttr getMaps(ArrayRef<ArrayRef<unsigned>> maps) const;

  OpBuilder b;
  Location loc;
  const Call &call;
  unsigned numBatchDims;
  Value factor;
};
} // namespace

Type AttentionBuilder::getSumType() const {
  bool isDouble = false;
  for (StringRef name : {"q", "k", "v", "bias"})
    if (RankedTensorType type = call.getType(name))
      isDouble |= type.getElementType().isF64();
  return isDouble ? Type(Float64Type::get(b.getContext()))
                  : Float32Type::get(b.getContext());
}

/// What probabilities are multiplied with where something is dropped out.
Value AttentionBuilder::createFactor() {
  RankedTensorType kept = call.getType("kept");
  if (!kept)
    return {};
  auto type = kept.clone(getSumType());
  Value init = tensor::EmptyOp::create(b, loc, type, ValueRange());
  auto constant = [&](OpBuilder &b, double number) -> Value {
    return arith::ConstantOp::create(
        b, loc, b.getFloatAttr(type.getElementType(), number));
  };
  AffineMap map = b.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> kinds(type.getRank(),
                                         utils::IteratorType::parallel);
  return linalg::GenericOp::create(
             b, loc, type, call.get("kept"), init, ArrayRef{map, map}, kinds,
             [&](OpBuilder &b, Location loc, ValueRange arguments) {
               Value number = arith::SelectOp::create(
                   b, loc, arguments[0], constant(b, call.function.keptFactor),
                   constant(b, 0));
               linalg::YieldOp::create(b, loc, number);
             })
      .getResult(0);
}

ArrayAttr AttentionBuilder::getMaps(ArrayRef<ArrayRef<unsigned>> maps) const {
  MLIRContext *context = b.getContext();
  SmallVector<AffineMap> all;
  for (ArrayRef<unsigned> dims : maps)
    all.push_back(getMap(context, numBatchDims, dims));
  for (StringRef name : {"bias", "mask", "kept"})
    if (RankedTensorType type = call.getType(name))
      all.push_back(getBroadcastMap(type, numBatchDims));
  return OpBuilder(context).getAffineMapArrayAttr(all);
}

// The dimensions behind those of the batch: query, key, feature, feature of
// values.
static constexpr unsigned ofQuery[] = {0, 2}, ofKey[] = {1, 2},
                          ofValue[] = {1, 3}, ofOutput[] = {0, 3};

AttentionOp AttentionBuilder::createForward(Type y) {
  factor = createFactor();
  SmallVector<int64_t> parts{2};
  llvm::append_range(parts, call.getType("q").getShape().drop_back());
  bool isMasked = call.get("bias") || call.get("mask");
  return AttentionOp::create(
      b, loc, y, RankedTensorType::get(parts, getSumType()), call.get("q"),
      call.get("k"), call.get("v"), call.get("bias"), call.get("mask"), factor,
      /*pattern=*/Value(), b.getF64FloatAttr(call.function.scale),
      /*fill=*/FloatAttr(), isMasked ? b.getUnitAttr() : UnitAttr(),
      getMaps({ofQuery, ofKey, ofValue, ofOutput}));
}

AttentionGradOp AttentionBuilder::createGradient(const Call &gradient,
                                                 AttentionOp forward) {
  b.setInsertionPoint(gradient.op);
  return AttentionGradOp::create(
      b, gradient.op->getLoc(), gradient.op->getResult(0).getType(),
      gradient.op->getResult(1).getType(), gradient.op->getResult(2).getType(),
      /*dbias=*/Type(), call.get("q"), call.get("k"), call.get("v"),
      forward.getY(), forward.getLse(), gradient.get("dy"), call.get("bias"),
      call.get("mask"), factor, /*pattern=*/Value(), forward.getScaleAttr(),
      /*fill=*/FloatAttr(), forward.getZeroEmptyAttr(),
      getMaps({ofQuery, ofKey, ofValue, ofOutput, ofOutput, ofQuery, ofKey,
               ofValue}));
}

namespace {
struct ImportAttention : bsr::impl::BSRImportAttentionBase<ImportAttention> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<func::FuncOp> step = getStep(module);
    if (failed(step))
      return signalPassFailure();
    if (!step->getBody().hasOneBlock())
      return;
    SymbolTable symbols(module);
    // Calls of one attention, in the order of the step.
    SmallVector<SmallVector<Call, 2>> attentions;
    for (auto op : step->getBody().front().getOps<func::CallOp>()) {
      auto callee = symbols.lookup<func::FuncOp>(op.getCallee());
      DictionaryAttr attr =
          callee ? attrs::attention.get(callee) : DictionaryAttr();
      if (!attr)
        continue;
      Call call{op, AttentionFunction(attr)};
      if (!call.fits())
        continue;
      auto *known = llvm::find_if(attentions, [&](ArrayRef<Call> calls) {
        return calls.front().isLike(call);
      });
      if (known == attentions.end())
        attentions.push_back({call});
      else
        known->push_back(call);
    }
    for (ArrayRef<Call> calls : attentions)
      make(calls);
  }

  void make(ArrayRef<Call> calls);
};
} // namespace

/// Makes attention of `calls`, unless it has few keys, or the target has no
/// kernels for some of it.
void ImportAttention::make(ArrayRef<Call> calls) {
  RankedTensorType k = calls.front().getType("k");
  int64_t keys = k.getDimSize(k.getRank() - 2);
  if (keys < minKeys || !decide("bsr-import-attention", calls.front().op))
    return;
  // Without a call of the forward pass, the gradient needs statistics of rows
  // and an output, which is like dy.
  Type y = calls.front().getType("dy");
  for (const Call &call : calls)
    if (!call.function.isGradient())
      y = call.op->getResult(0).getType();
  AttentionBuilder builder(calls.front());
  AttentionOp forward = builder.createForward(y);
  SmallVector<Operation *> made{forward};
  SmallVector<ValueRange> results;
  for (const Call &call : calls) {
    if (!call.function.isGradient()) {
      results.push_back(forward->getResults().take_front());
      continue;
    }
    made.push_back(builder.createGradient(call, forward));
    results.push_back(made.back()->getResults());
  }
  if (!llvm::all_of(
          made, [](Operation *op) { return getTarget(op).hasAttention(op); })) {
    for (Operation *op : llvm::reverse(made))
      op->erase();
    return;
  }
  ++numImported;
  numGradients += made.size() - 1;
  PassRemark::passed("bsr-import-attention", "AttentionImported", forward)
      .add("Keys", keys)
      .add("FLOPs", getFlops(forward));
  for (auto [call, values] : llvm::zip_equal(calls, results)) {
    call.op->replaceAllUsesWith(values);
    call.op->erase();
  }
}
