// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes numbers that a step computes of tensors tensors themselves, and
// branches that it takes by them selections.

#include "bsr/Analysis/Dependents.h"
#include "bsr/Codegen/GPU/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLIFTNUMBERS
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Replaces `branch` by what both of its sides compute, and selections; false
/// if a side does more than that, or has a loop, which might not end.
/// (Divisions by zero are no matter: bsr-define-integers says what they are.)
static bool selectSide(scf::IfOp branch) {
  if (branch->getNumResults() == 0 || !isMemoryEffectFree(branch) ||
      branch->walk([](LoopLikeOpInterface) { return WalkResult::interrupt(); })
          .wasInterrupted())
    return false;
  OpBuilder b(branch);
  SmallVector<SmallVector<Value>> sides;
  for (Block *block : {branch.thenBlock(), branch.elseBlock()}) {
    for (Operation &op :
         llvm::make_early_inc_range(block->without_terminator()))
      op.moveBefore(branch);
    sides.push_back(llvm::to_vector(block->getTerminator()->getOperands()));
  }
  for (auto [result, yes, no] :
       llvm::zip_equal(branch.getResults(), sides[0], sides[1]))
    result.replaceAllUsesWith(arith::SelectOp::create(
        b, branch.getLoc(), branch.getCondition(), yes, no));
  branch.erase();
  return true;
}

/// Element by element what `body` computes of `inputs`; those of rank 0 have
/// one element for all.
static Value
createGeneric(OpBuilder &b, Location loc, ValueRange inputs,
              RankedTensorType type,
              llvm::function_ref<Value(OpBuilder &, ValueRange)> body) {
  int64_t rank = type.getRank();
  AffineMap same = b.getMultiDimIdentityMap(rank);
  SmallVector<AffineMap> maps = llvm::map_to_vector(inputs, [&](Value input) {
    bool isNumber = cast<RankedTensorType>(input.getType()).getRank() == 0;
    return isNumber ? AffineMap::get(rank, 0, b.getContext()) : same;
  });
  maps.push_back(same);
  SmallVector<utils::IteratorType> kinds(rank, utils::IteratorType::parallel);
  Value init =
      tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
  return linalg::GenericOp::create(
             b, loc, type, inputs, init, maps, kinds,
             [&](OpBuilder &nested, Location at, ValueRange arguments) {
               linalg::YieldOp::create(nested, at,
                                       body(nested, arguments.drop_back()));
             })
      .getResult(0);
}

namespace {
/// Numbers as tensors of rank 0.
class Lifter {
public:
  /// The tensor that has `number`; null if `number` is the host's, such as an
  /// argument of the step.
  Value lift(Value number);
  /// The same, of a number that no kernel computes where it is used.
  Value liftComputed(Value number);

private:
  Value liftUncached(Value number);
  Value liftEntry(tensor::ExtractOp extract);

  DenseMap<Value, Value> known;
};
} // namespace

Value Lifter::lift(Value number) {
  auto [found, isNew] = known.try_emplace(number);
  if (!isNew)
    return found->second;
  return known[number] = liftUncached(number);
}

Value Lifter::liftComputed(Value number) {
  auto extract = number.getDefiningOp<tensor::ExtractOp>();
  if (number.getDefiningOp<arith::ConstantOp>() ||
      (extract && extract.getIndices().empty()))
    return nullptr;
  return lift(number);
}

Value Lifter::liftEntry(tensor::ExtractOp extract) {
  auto type = extract.getTensor().getType();
  SmallVector<OpFoldResult> offsets = getAsOpFoldResult(extract.getIndices());
  if (type.getRank() == 0)
    return extract.getTensor();
  if (!llvm::all_of(offsets, [](OpFoldResult offset) {
        return getConstantIntValue(offset).has_value();
      }))
    return nullptr;
  OpBuilder b(extract);
  SmallVector<OpFoldResult> ones(type.getRank(), b.getIndexAttr(1));
  Value entry = tensor::ExtractSliceOp::create(
      b, extract.getLoc(), extract.getTensor(), offsets, ones, ones);
  return tensor::CollapseShapeOp::create(b, extract.getLoc(), entry,
                                         ArrayRef<ReassociationIndices>());
}

Value Lifter::liftUncached(Value number) {
  Operation *op = number.getDefiningOp();
  if (!op || op->getNumResults() != 1)
    return nullptr;
  OpBuilder b(op->getContext());
  b.setInsertionPointAfter(op);
  auto type = RankedTensorType::get({}, number.getType());
  if (auto extract = dyn_cast<tensor::ExtractOp>(op))
    return liftEntry(extract);
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return arith::ConstantOp::create(
        b, op->getLoc(),
        DenseElementsAttr::get(type, Attribute(constant.getValue())));
  if (!OpTrait::hasElementwiseMappableTraits(op) || !isMemoryEffectFree(op))
    return nullptr;
  SmallVector<Value> inputs;
  for (Value operand : op->getOperands()) {
    inputs.push_back(lift(operand));
    if (!inputs.back())
      return nullptr;
  }
  return createGeneric(b, op->getLoc(), inputs, type,
                       [&](OpBuilder &nested, ValueRange operands) {
                         Operation *copy = nested.clone(*op);
                         copy->setOperands(operands);
                         return copy->getResult(0);
                       });
}

/// Selects of two tensors by a tensor of rank 0.
static bool liftCondition(Lifter &lifter, arith::SelectOp select) {
  auto type = dyn_cast<RankedTensorType>(select.getType());
  if (!type || isa<ShapedType>(select.getCondition().getType()))
    return false;
  Value condition = lifter.lift(select.getCondition());
  if (!condition)
    return false;
  OpBuilder b(select);
  SmallVector<Value> inputs{condition, select.getTrueValue(),
                            select.getFalseValue()};
  select.replaceAllUsesWith(createGeneric(
      b, select.getLoc(), inputs, type,
      [&](OpBuilder &nested, ValueRange arguments) -> Value {
        return arith::SelectOp::create(nested, select.getLoc(), arguments[0],
                                       arguments[1], arguments[2]);
      }));
  select.erase();
  return true;
}

/// Makes the number that `op` is everywhere a tensor.
static bool liftSplat(Lifter &lifter, Operation *op) {
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  Value number = type ? lifter.liftComputed(op->getOperand(0)) : Value();
  if (!number)
    return false;
  OpBuilder b(op);
  Value splat = createGeneric(
      b, op->getLoc(), number, type,
      [](OpBuilder &, ValueRange arguments) { return arguments.front(); });
  op->getResult(0).replaceAllUsesWith(splat);
  op->erase();
  return true;
}

/// Makes the numbers that the body of `op` takes from outside inputs.
static bool liftCaptured(Lifter &lifter, linalg::GenericOp op) {
  llvm::SetVector<Value> captured;
  getUsedValuesDefinedAbove(op.getRegion(), captured);
  for (Value input : op.getDpsInputs())
    if (!isa<ShapedType>(input.getType()))
      captured.insert(input);
  bool hasChanged = false;
  SmallVector<Value> inputs(op.getDpsInputs());
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (Value number : captured) {
    Value tensor = isa<ShapedType>(number.getType())
                       ? Value()
                       : lifter.liftComputed(number);
    if (!tensor)
      continue;
    hasChanged = true;
    llvm::replace(inputs, number, tensor);
    if (llvm::none_of(number.getUsers(), [&](Operation *user) {
          return op->isProperAncestor(user);
        }))
      continue;
    maps.insert(maps.begin() + inputs.size(),
                AffineMap::get(op.getNumLoops(), 0, op.getContext()));
    Value argument = op.getBody()->insertArgument(
        inputs.size(), number.getType(), number.getLoc());
    inputs.push_back(tensor);
    number.replaceUsesWithIf(argument, [&](OpOperand &use) {
      return op->isProperAncestor(use.getOwner());
    });
  }
  if (!hasChanged)
    return false;
  op.getInputsMutable().assign(inputs);
  op.setIndexingMapsAttr(OpBuilder(op).getAffineMapArrayAttr(maps));
  return true;
}

namespace {
struct LiftNumbers : bsr::impl::BSRLiftNumbersBase<LiftNumbers> {
  using Base::Base;

  void runOnOperation() override {
    SmallVector<scf::IfOp> branches;
    getOperation()->walk([&](scf::IfOp branch) { branches.push_back(branch); });
    for (scf::IfOp branch : branches)
      numBranches += selectSide(branch);
    Lifter lifter;
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) {
      if (isa<arith::SelectOp, linalg::FillOp, tensor::FromElementsOp,
              tensor::SplatOp, linalg::GenericOp>(op) &&
          isa<func::FuncOp>(op->getParentOp()))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      if (auto select = dyn_cast<arith::SelectOp>(op))
        numLifted += liftCondition(lifter, select);
      else if (auto generic = dyn_cast<linalg::GenericOp>(op))
        numLifted += liftCaptured(lifter, generic);
      else if (op->getNumOperands() && op->getNumResults() == 1 &&
               !isa<ShapedType>(op->getOperand(0).getType()) &&
               (!isa<tensor::FromElementsOp>(op) || op->getNumOperands() == 1))
        numLifted += liftSplat(lifter, op);
    }
    // Numbers that nothing takes any more.
    llvm::for_each(getOperation().getBody(), eraseDead);
  }
};
} // namespace
