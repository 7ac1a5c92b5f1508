// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets the updates of new blocks rise to what the optimizer makes.

#include "BlockCounts.h"
#include "bsr/Analysis/ElementWise.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRRAMPBLOCKS
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// An element-wise operation on `inputs`, whose result has `type`.
static linalg::GenericOp
createElementWise(OpBuilder &b, Location loc, RankedTensorType type,
                  ValueRange inputs,
                  function_ref<Value(OpBuilder &, ValueRange)> body) {
  SmallVector<AffineMap> maps;
  for (Value input : inputs)
    maps.push_back(getBroadcastMap(b, input, type.getShape()));
  maps.push_back(b.getMultiDimIdentityMap(type.getRank()));
  Value empty = tensor::EmptyOp::create(b, loc, type, ValueRange());
  return linalg::GenericOp::create(
      b, loc, type, inputs, empty, maps,
      SmallVector<utils::IteratorType>(type.getRank(),
                                       utils::IteratorType::parallel),
      [&](OpBuilder &inner, Location, ValueRange entries) {
        linalg::YieldOp::create(inner, loc, body(inner, entries));
      });
}

/// Whether the number `value` is not zero.
static Value isNotZero(OpBuilder &b, Location loc, Value value) {
  Type type = value.getType();
  if (type.isInteger(1))
    return value;
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
  if (isa<FloatType>(type))
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, value,
                                 zero);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, value, zero);
}

namespace {
struct RampBlocks : bsr::impl::BSRRampBlocksBase<RampBlocks> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (steps < 2 || steps > maxSteps) {
      step.emitError("expected a ramp of 2 to ")
          << maxSteps << " steps, but got " << int64_t(steps);
      return signalPassFailure();
    }
    if (!isStep(step))
      return;
    if (failed(getReturn(step)))
      return signalPassFailure();
    llvm::MapVector<Value, BlockArgument> ofNext;
    for (BlockArgument weight : getDynamicWeights(step)) {
      Value next = getNextValue(step, weight);
      if (next == weight)
        continue;
      if (!ofNext.insert({next, weight}).second) {
        step.emitError("expected the next value of weight ")
            << attrs::name.ofArg(step, weight.getArgNumber())
            << " to be its own, for a ramp of its new blocks, but got that of "
               "another weight";
        return signalPassFailure();
      }
    }
    for (auto [next, weight] : ofNext)
      ramp(step, weight, next);
    numRamped += ofNext.size();
  }

  void ramp(func::FuncOp step, BlockArgument weight, Value next);

  /// f32 has each whole number until here.
  static constexpr int64_t maxSteps = 1 << 24;
};
} // namespace

void RampBlocks::ramp(func::FuncOp step, BlockArgument weight, Value next) {
  OpBuilder b(step.getContext());
  b.setInsertionPointAfterValue(next);
  Location loc = weight.getLoc();
  double length = double(steps);
  // Blocks of the first pattern are old.
  BlockArgument age = addCount(step, weight, "block ramp",
                               "constant(" + std::to_string(steps) + ")");
  SmallVector<Value> inputs = {age};
  // Runs that only add up gradients make no step.
  for (BlockArgument argument : step.getArguments())
    if (StringAttr role = attrs::role.ofArg(step, argument.getArgNumber());
        role && role == "apply")
      inputs.push_back(argument);
  auto getConstant = [loc](OpBuilder &inner, Type type, double value) {
    return arith::ConstantOp::create(inner, loc,
                                     inner.getFloatAttr(type, value));
  };
  auto aged = createElementWise(
      b, loc, cast<RankedTensorType>(age.getType()), inputs,
      [&](OpBuilder &inner, ValueRange entries) -> Value {
        Type type = inner.getF32Type();
        Value more = arith::AddFOp::create(inner, loc, entries[0],
                                           getConstant(inner, type, 1));
        more = arith::MinimumFOp::create(inner, loc, more,
                                         getConstant(inner, type, length));
        if (inputs.size() == 1)
          return more;
        return arith::SelectOp::create(
            inner, loc, isNotZero(inner, loc, entries[1]), more, entries[0]);
      });
  auto type = cast<RankedTensorType>(next.getType());
  Type element = type.getElementType();
  Type wide = element.isF64() ? element : b.getF32Type();
  auto resize = [loc](OpBuilder &inner, Value value, Type to) {
    return convertScalarToDtype(inner, loc, value, to,
                                /*isUnsignedCast=*/false);
  };
  auto ramped = createElementWise(
      b, loc, type, {weight, next, aged.getResult(0)},
      [&](OpBuilder &inner, ValueRange entries) -> Value {
        Value before = resize(inner, entries[0], wide),
              after = resize(inner, entries[1], wide),
              share = arith::DivFOp::create(inner, loc,
                                            resize(inner, entries[2], wide),
                                            getConstant(inner, wide, length));
        Value part = arith::MulFOp::create(
            inner, loc, share,
            arith::SubFOp::create(inner, loc, after, before));
        Value between = resize(
            inner, arith::AddFOp::create(inner, loc, before, part), element);
        // What is old has the very bits of the optimizer.
        Value isOld = arith::CmpFOp::create(
            inner, loc, arith::CmpFPredicate::OGE, entries[2],
            getConstant(inner, inner.getF32Type(), length));
        return arith::SelectOp::create(inner, loc, isOld, entries[1], between);
      });
  Value result = ramped.getResult(0);
  next.replaceAllUsesExcept(result, ramped);
  carryCount(step, age, aged.getResult(0));
}
