// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers that a step carries of each block of a weight.

#include "BlockCounts.h"
#include "bsr/Dialect/Attributes.h"

using namespace mlir;
using namespace mlir::bsr;

SmallVector<BlockArgument> bsr::getDynamicWeights(func::FuncOp step) {
  SmallVector<BlockArgument> weights;
  for (BlockArgument argument : step.getArguments()) {
    unsigned index = argument.getArgNumber();
    auto pattern = attrs::pattern.ofArg(step, index);
    StringAttr role = attrs::role.ofArg(step, index);
    if (pattern && (!role || role == "param") &&
        attrs::name.ofArg(step, index) ==
            attrs::name.ofArg(step, pattern.getInt()) &&
        attrs::result.ofArg(step, index))
      weights.push_back(argument);
  }
  return weights;
}

Value bsr::getNextValue(func::FuncOp step, BlockArgument state) {
  auto result = attrs::result.ofArg(step, state.getArgNumber());
  return step.getBody().front().getTerminator()->getOperand(result.getInt());
}

RankedTensorType bsr::getCountType(BlockArgument weight, Type element) {
  int64_t slots = cast<RankedTensorType>(weight.getType()).getDimSize(0);
  return RankedTensorType::get({slots, 1, 1}, element);
}

BlockArgument bsr::addCount(func::FuncOp step, BlockArgument weight,
                            const Twine &name, StringRef init) {
  Builder b(step.getContext());
  StringAttr ofWeight = attrs::name.ofArg(step, weight.getArgNumber());
  DictionaryAttr list = b.getDictionaryAttr(
      {attrs::init.with(b.getStringAttr(init)),
       attrs::name.with(b.getStringAttr(name + " of " + ofWeight.getValue())),
       attrs::pattern.with(attrs::pattern.ofArg(step, weight.getArgNumber())),
       attrs::role.with(b.getStringAttr("count"))});
  unsigned index = step.getNumArguments();
  (void)step.insertArgument(index, getCountType(weight, b.getF32Type()), list,
                            weight.getLoc());
  return step.getArgument(index);
}

void bsr::carryCount(func::FuncOp step, BlockArgument count, Value next) {
  Operation *terminator = step.getBody().front().getTerminator();
  terminator->insertOperands(terminator->getNumOperands(), next);
  unsigned index = step.getNumResults();
  (void)step.insertResult(index, next.getType(), DictionaryAttr());
  attrs::result.setOfArg(step, count.getArgNumber(),
                         Builder(step.getContext()).getI64IntegerAttr(index));
}
