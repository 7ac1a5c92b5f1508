// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Upstream's IntegerRangeAnalysis knows nothing of the entries of tensors,
// which indices of look-ups are, nor of the loops of linalg operations; what it
// knows of arithmetic is asked of the operations here as well.

#include "bsr/Analysis/IntegerRanges.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Index/IR/IndexOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;

static bool isInteger(Value value) {
  return getElementTypeOrSelf(value.getType()).isIntOrIndex();
}

static ConstantIntRanges getAny(Value value) {
  return ConstantIntRanges::maxRange(
      ConstantIntRanges::getStorageBitwidth(value.getType()));
}

/// The indices from `low` to `high`; all if there are none.
static ConstantIntRanges getIndices(Value value, int64_t low, int64_t high) {
  unsigned width = ConstantIntRanges::getStorageBitwidth(value.getType());
  if (high < low || width != 64)
    return getAny(value);
  return ConstantIntRanges::fromSigned(APInt(width, low, /*isSigned=*/true),
                                       APInt(width, high, /*isSigned=*/true));
}

/// Whether entries of the result of `op` are entries of its operands.
static bool rearranges(Operation *op) {
  return isa<tensor::CastOp, tensor::CollapseShapeOp, tensor::ConcatOp,
             tensor::ExpandShapeOp, tensor::FromElementsOp, tensor::ReshapeOp,
             tensor::SplatOp, tensor::ExtractOp, tensor::ExtractSliceOp,
             tensor::InsertOp, tensor::InsertSliceOp>(op);
}

/// The operands of `op`, which `rearranges`, that hold entries.
static SmallVector<Value> getEntries(Operation *op) {
  if (isa<tensor::ConcatOp, tensor::FromElementsOp>(op))
    return SmallVector<Value>(op->getOperands());
  if (isa<tensor::InsertOp, tensor::InsertSliceOp>(op))
    return {op->getOperand(0), op->getOperand(1)};
  return {op->getOperand(0)};
}

/// The values that the range of `argument` depends on.
static SmallVector<Value> getSources(BlockArgument argument) {
  Operation *parent = argument.getOwner()->getParentOp();
  if (auto loop = dyn_cast_or_null<scf::ForOp>(parent);
      loop && argument == loop.getInductionVar())
    return {loop.getLowerBound(), loop.getUpperBound()};
  auto op = dyn_cast_or_null<linalg::LinalgOp>(parent);
  if (op && argument.getArgNumber() < unsigned(op.getNumDpsInputs()))
    return {op.getDpsInputs()[argument.getArgNumber()]};
  return {};
}

/// The values that the range of `value` depends on.
static SmallVector<Value> getSources(Value value) {
  SmallVector<Value> sources;
  if (auto argument = dyn_cast<BlockArgument>(value))
    sources = getSources(argument);
  else if (Operation *op = value.getDefiningOp(); rearranges(op))
    sources = getEntries(op);
  else if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
    sources = {linalgOp
                   .getMatchingYieldValue(linalgOp.getDpsInitOperand(
                       cast<OpResult>(value).getResultNumber()))
                   ->get()};
  else if (isa<InferIntRangeInterface>(op) && op->getNumRegions() == 0)
    sources = llvm::to_vector(op->getOperands());
  if (!llvm::all_of(sources, isInteger))
    return {};
  return sources;
}

ConstantIntRanges IntegerRanges::getKnown(Value value) const {
  auto found = known.find(value);
  return found == known.end() ? getAny(value) : found->second;
}

ConstantIntRanges IntegerRanges::get(Value value) {
  // Sources first, without recursion: chains are as long as programs.
  SmallVector<Value> worklist = {value};
  while (!worklist.empty()) {
    Value next = worklist.back();
    size_t size = worklist.size();
    if (!isKnown(next))
      llvm::copy_if(getSources(next), std::back_inserter(worklist),
                    [&](Value source) { return !isKnown(source); });
    if (worklist.size() != size)
      continue;
    worklist.pop_back();
    if (!isKnown(next))
      compute(next);
  }
  return getKnown(value);
}

/// The range of `argument`, whose sources are known.
ConstantIntRanges IntegerRanges::computeArgument(BlockArgument argument) const {
  Operation *parent = argument.getOwner()->getParentOp();
  SmallVector<Value> sources = getSources(argument);
  if (isa_and_nonnull<scf::ForOp>(parent) && !sources.empty()) {
    ConstantIntRanges low = getKnown(sources[0]), high = getKnown(sources[1]);
    if (high.smax().isMinSignedValue() || low.smin().sge(high.smax()))
      return getAny(argument);
    return ConstantIntRanges::fromSigned(low.smin(), high.smax() - 1);
  }
  auto loop = dyn_cast_or_null<scf::ForallOp>(parent);
  unsigned number = argument.getArgNumber();
  if (loop && number < loop.getRank()) {
    auto low = getConstantIntValue(loop.getMixedLowerBound()[number]);
    auto high = getConstantIntValue(loop.getMixedUpperBound()[number]);
    if (low && high && *low < *high)
      return getIndices(argument, *low, *high - 1);
  }
  return sources.size() == 1 ? getKnown(sources[0]) : getAny(argument);
}

/// Computes the range of `value`, whose sources are known.
void IntegerRanges::compute(Value value) {
  known.try_emplace(value, getAny(value));
  if (!isInteger(value))
    return;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    known.find(value)->second = computeArgument(argument);
    return;
  }
  Operation *op = value.getDefiningOp();
  SmallVector<Value> sources = getSources(value);
  if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    auto loops = cast<linalg::LinalgOp>(op->getParentOp());
    int64_t extent = loops.getStaticLoopRanges()[index.getDim()];
    if (!ShapedType::isDynamic(extent))
      known.find(value)->second = getIndices(value, 0, extent - 1);
  } else if (isa<InferIntRangeInterface>(op) &&
             sources.size() == op->getNumOperands()) {
    computeResults(op);
  } else if (!sources.empty()) {
    ConstantIntRanges range = getKnown(sources.front());
    for (Value source : ArrayRef(sources).drop_front())
      range = range.rangeUnion(getKnown(source));
    known.find(value)->second = range;
  }
}

/// Whether what `op` says of its result holds for operands of these ranges: not
/// for a division by zero or a shift by too much, whose results upstream leaves
/// open and `bsr-define-integers` does not.
static bool isDefined(Operation *op, ArrayRef<ConstantIntRanges> operands) {
  if (isa<arith::DivSIOp, arith::DivUIOp, arith::CeilDivSIOp,
          arith::CeilDivUIOp, arith::FloorDivSIOp, arith::RemSIOp,
          arith::RemUIOp, index::DivSOp, index::DivUOp, index::CeilDivSOp,
          index::CeilDivUOp, index::FloorDivSOp, index::RemSOp, index::RemUOp>(
          op))
    return operands[1].smin().isStrictlyPositive();
  if (isa<arith::ShLIOp, arith::ShRSIOp, arith::ShRUIOp, index::ShlOp,
          index::ShrSOp, index::ShrUOp>(op))
    return operands[1].umax().ult(operands[1].umax().getBitWidth());
  return true;
}

/// Computes the ranges of the results of `op` as it says itself.
void IntegerRanges::computeResults(Operation *op) {
  auto ranges = llvm::map_to_vector(
      op->getOperands(), [&](Value operand) { return getKnown(operand); });
  if (!isDefined(op, ranges))
    return;
  cast<InferIntRangeInterface>(op).inferResultRanges(
      ranges, [&](Value result, const ConstantIntRanges &range) {
        known.insert_or_assign(result, range);
      });
}
