// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives a step's plans of patterns a function of their own: patterns stay as
// they are for many steps.

#include "bsr/Analysis/Plans.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSPLITPLANS
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Copies `op` to where `b` is, with what its operands are computed by that
/// `mapping` does not know yet.
static LogicalResult copy(OpBuilder &b, Operation *op, IRMapping &mapping) {
  for (Value operand : op->getOperands()) {
    if (mapping.contains(operand))
      continue;
    Operation *source = operand.getDefiningOp();
    if (!isMemoryEffectFree(source))
      return source->emitError("expected plans to be made of patterns alone, "
                               "but got '")
             << source->getName() << "'";
    if (failed(copy(b, source, mapping)))
      return failure();
  }
  b.clone(*op, mapping);
  return success();
}

namespace {
struct SplitPlans : bsr::impl::BSRSplitPlansBase<SplitPlans> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    SmallVector<func::FuncOp> steps;
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (isStep(func))
        steps.push_back(func);
    for (func::FuncOp step : steps)
      if (failed(split(step, symbols)))
        return signalPassFailure();
  }

  LogicalResult split(func::FuncOp step, SymbolTable &symbols) {
    SmallVector<func::CallOp> calls;
    for (auto call : step.getOps<func::CallOp>())
      if (makesPlan(call))
        calls.push_back(call);
    if (calls.empty())
      return success();
    std::string name = getPlansName(step);
    if (symbols.lookup(name))
      return step.emitError("expected no function of the name that the one of "
                            "its plans has, but got @")
             << name;
    auto plans =
        func::FuncOp::create(step.getLoc(), name, step.getFunctionType());
    symbols.insert(plans, std::next(step->getIterator()));
    Block *body = plans.addEntryBlock();
    OpBuilder b = OpBuilder::atBlockBegin(body);
    IRMapping mapping;
    mapping.map(step.getArguments(), body->getArguments());
    for (func::CallOp call : calls) {
      if (failed(copy(b, call, mapping)))
        return failure();
      call.erase();
    }
    func::ReturnOp::create(b, step.getLoc());
    numPlans += calls.size();
    return success();
  }
};
} // namespace
