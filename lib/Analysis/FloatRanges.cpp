// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// FloatRange arithmetic on the bodies of element-wise operations. Upstream has
// ranges of integers only (IntegerRangeAnalysis).

#include "bsr/Analysis/FloatRanges.h"
#include "bsr/Analysis/ElementWise.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;

static constexpr double infinity = std::numeric_limits<double>::infinity();

bool FloatRange::isFinite() const {
  return !mayBeNaN && std::isfinite(low) && std::isfinite(high);
}

static bool contains(const FloatRange &interval, double value) {
  return interval.low <= value && value <= interval.high;
}

static bool hasInfinity(const FloatRange &interval) {
  return std::isinf(interval.low) || std::isinf(interval.high);
}

static FloatRange unite(const FloatRange &a, const FloatRange &b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high),
          a.mayBeNaN || b.mayBeNaN};
}

/// `interval` with room for rounding to `type`, whose largest numbers may
/// become infinite and whose smallest may become 0.
static FloatRange widen(FloatRange interval, FloatType type) {
  const llvm::fltSemantics &semantics = type.getFloatSemantics();
  double largest = llvm::APFloat::getLargest(semantics).convertToDouble();
  double smallest =
      llvm::APFloat::getSmallestNormalized(semantics).convertToDouble();
  constexpr double slack = 1.0 / 64;
  interval.low -= slack * std::abs(interval.low);
  interval.high += slack * std::abs(interval.high);
  if (interval.low < -largest / 2)
    interval.low = -infinity;
  if (interval.high > largest / 2)
    interval.high = infinity;
  if (interval.low > 0 && interval.low < 2 * smallest)
    interval.low = 0;
  if (interval.high < 0 && interval.high > -2 * smallest)
    interval.high = 0;
  return interval;
}

/// The least interval with all of `bounds`, where 0 times infinity is 0.
static FloatRange enclose(std::initializer_list<double> bounds, bool mayBeNaN) {
  FloatRange interval{infinity, -infinity, mayBeNaN};
  for (double bound : bounds) {
    double value = std::isnan(bound) ? 0 : bound;
    interval.low = std::min(interval.low, value);
    interval.high = std::max(interval.high, value);
  }
  return interval;
}

static FloatRange multiply(const FloatRange &a, const FloatRange &b) {
  bool mayBeNaN = a.mayBeNaN || b.mayBeNaN ||
                  (contains(a, 0) && hasInfinity(b)) ||
                  (contains(b, 0) && hasInfinity(a));
  return enclose(
      {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high},
      mayBeNaN);
}

static FloatRange divide(const FloatRange &a, const FloatRange &b) {
  if (a.isZeroOrNaN())
    return {0, 0, a.mayBeNaN || b.mayBeNaN || contains(b, 0)};
  if (contains(b, 0) || (hasInfinity(a) && hasInfinity(b)))
    return {};
  return enclose(
      {a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high},
      a.mayBeNaN || b.mayBeNaN);
}

static FloatRange add(const FloatRange &a, const FloatRange &b) {
  bool mayBeNaN =
      a.mayBeNaN || b.mayBeNaN || (hasInfinity(a) && hasInfinity(b));
  double low = a.low + b.low, high = a.high + b.high;
  if (std::isnan(low) || std::isnan(high))
    return {};
  return {low, high, mayBeNaN};
}

static FloatRange squareRoot(const FloatRange &x) {
  return {std::sqrt(std::max(x.low, 0.0)), std::sqrt(std::max(x.high, 0.0)),
          x.mayBeNaN || x.low < 0};
}

/// select(x < y, a, x), as clamps are written: where x is taken it is not below
/// y, and no NaN if that compares as less.
static FloatRange getNotTaken(arith::CmpFOp compare, FloatRange x,
                              const FloatRange &y) {
  using arith::CmpFPredicate;
  CmpFPredicate predicate = compare.getPredicate();
  bool unordered = llvm::is_contained({CmpFPredicate::ULT, CmpFPredicate::ULE,
                                       CmpFPredicate::UGT, CmpFPredicate::UGE},
                                      predicate);
  if (unordered)
    x.mayBeNaN = false;
  else if (y.mayBeNaN)
    return x;
  if (llvm::is_contained({CmpFPredicate::OLT, CmpFPredicate::OLE,
                          CmpFPredicate::ULT, CmpFPredicate::ULE},
                         predicate))
    x.low = std::max(x.low, y.low);
  if (llvm::is_contained({CmpFPredicate::OGT, CmpFPredicate::OGE,
                          CmpFPredicate::UGT, CmpFPredicate::UGE},
                         predicate))
    x.high = std::min(x.high, y.high);
  return x;
}

/// The values that the interval of the results of `op` depends on.
static SmallVector<Value> getSources(Operation *op) {
  auto linalgOp = dyn_cast<linalg::LinalgOp>(op);
  if (!linalgOp) {
    bool isNumber = op->getNumResults() == 1 && op->getNumRegions() == 0 &&
                    !isa<ShapedType>(op->getResult(0).getType());
    if (isNumber || isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                        tensor::SplatOp, tensor::FromElementsOp>(op))
      return SmallVector<Value>(op->getOperands());
    return {};
  }
  if (!isElementWise(linalgOp))
    return {};
  SmallVector<Value> sources(linalgOp.getDpsInputs());
  for (Operation &inner : *linalgOp.getBlock())
    for (Value operand : inner.getOperands())
      if (operand.getParentBlock() != linalgOp.getBlock())
        sources.push_back(operand);
  return sources;
}

/// The interval of the result, of type `type`, of `op`, which computes numbers
/// from numbers of intervals `get`.
static FloatRange computeNumber(Operation *op, FloatType type,
                                function_ref<FloatRange(Value)> get) {
  auto operand = [&](unsigned number) { return get(op->getOperand(number)); };
  FloatRange interval =
      TypeSwitch<Operation *, FloatRange>(op)
          .Case([&](arith::MulFOp) { return multiply(operand(0), operand(1)); })
          .Case([&](arith::DivFOp) { return divide(operand(0), operand(1)); })
          .Case([&](arith::AddFOp) { return add(operand(0), operand(1)); })
          .Case([&](arith::MaximumFOp) -> FloatRange {
            FloatRange a = operand(0), b = operand(1);
            return {std::max(a.low, b.low), std::max(a.high, b.high),
                    a.mayBeNaN || b.mayBeNaN};
          })
          .Case([&](arith::MinimumFOp) -> FloatRange {
            FloatRange a = operand(0), b = operand(1);
            return {std::min(a.low, b.low), std::min(a.high, b.high),
                    a.mayBeNaN || b.mayBeNaN};
          })
          .Case([&](arith::NegFOp) -> FloatRange {
            FloatRange x = operand(0);
            return {-x.high, -x.low, x.mayBeNaN};
          })
          .Case([&](arith::SelectOp select) {
            FloatRange taken = get(select.getTrueValue());
            FloatRange other = get(select.getFalseValue());
            auto compare = select.getCondition().getDefiningOp<arith::CmpFOp>();
            if (compare && compare.getLhs() == select.getFalseValue())
              other = getNotTaken(compare, other, get(compare.getRhs()));
            return unite(taken, other);
          })
          .Case([&](math::SqrtOp) { return squareRoot(operand(0)); })
          .Case([&](math::RsqrtOp) {
            FloatRange root = squareRoot(operand(0));
            return root.low > 0 ? divide(FloatRange::constant(1), root)
                                : FloatRange();
          })
          .Case<arith::ExtFOp, arith::TruncFOp>(
              [&](Operation *) { return operand(0); })
          .Default([](Operation *) { return FloatRange(); });
  if (isa<arith::SelectOp, arith::MaximumFOp, arith::MinimumFOp, arith::NegFOp,
          arith::ExtFOp>(op))
    return interval; // exact
  return widen(interval, type);
}

/// The interval of the constant `attribute`: infinite if it is none.
static FloatRange getConstant(Attribute attribute) {
  if (auto elements = dyn_cast<SplatElementsAttr>(attribute))
    attribute = elements.getSplatValue<Attribute>();
  auto number = dyn_cast<FloatAttr>(attribute);
  if (!number || !number.getValue().isFinite())
    return {};
  return FloatRange::constant(number.getValueAsDouble());
}

bool FloatRanges::isKnown(Value value) const {
  return !value.getDefiningOp() || known.contains(value);
}

FloatRange FloatRanges::get(Value value) {
  // Sources first, without recursion: chains are as long as programs.
  SmallVector<Value> worklist = {value};
  while (!worklist.empty()) {
    Value next = worklist.back();
    if (isKnown(next)) {
      worklist.pop_back();
      continue;
    }
    size_t size = worklist.size();
    llvm::copy_if(getSources(next.getDefiningOp()),
                  std::back_inserter(worklist),
                  [&](Value source) { return !isKnown(source); });
    if (worklist.size() == size)
      compute(next.getDefiningOp());
  }
  return getKnown(value);
}

void FloatRanges::erase(Operation *op) {
  for (Value result : op->getResults())
    known.erase(result);
}

/// Computes the intervals of the results of `op`, whose sources are known.
void FloatRanges::compute(Operation *op) {
  for (Value result : op->getResults())
    known[result] = {};
  Attribute constant;
  if (matchPattern(op, m_Constant(&constant))) {
    known[op->getResult(0)] = getConstant(constant);
    return;
  }
  if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op)) {
    if (isElementWise(linalgOp))
      computeResults(linalgOp);
    return;
  }
  if (op->getNumResults() != 1)
    return;
  FloatRange &interval = known[op->getResult(0)];
  bool repeats =
      isa<tensor::ExpandShapeOp, tensor::CollapseShapeOp, tensor::SplatOp,
          tensor::ExtractOp, tensor::FromElementsOp>(op);
  if (repeats && op->getNumOperands() == 1)
    interval = getKnown(op->getOperand(0));
  else if (auto type = dyn_cast<FloatType>(op->getResult(0).getType()))
    interval = computeNumber(op, type,
                             [&](Value operand) { return getKnown(operand); });
}

/// Computes the intervals of the results of element-wise `op`.
void FloatRanges::computeResults(linalg::LinalgOp op) {
  DenseMap<Value, FloatRange> inner;
  auto get = [&](Value value) {
    auto found = inner.find(value);
    return found != inner.end() ? found->second : getKnown(value);
  };
  for (OpOperand *input : op.getDpsInputOperands())
    inner[op.getMatchingBlockArgument(input)] = getKnown(input->get());
  for (Operation &number : op.getBlock()->without_terminator()) {
    Attribute constant;
    if (number.getNumResults() != 1)
      continue;
    Value result = number.getResult(0);
    if (matchPattern(&number, m_Constant(&constant)))
      inner[result] = getConstant(constant);
    else if (auto type = dyn_cast<FloatType>(result.getType()))
      inner[result] = computeNumber(&number, type, get);
  }
  for (auto [result, yielded] : llvm::zip_equal(
           op->getResults(), op.getBlock()->getTerminator()->getOperands()))
    known[result] = get(yielded);
}
