// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a step compute scores only when asked to.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRGUARDSCORES
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// True if `call` writes scores.
static bool computesScores(func::CallOp call) {
  return llvm::any_of(call.getOperands(), [](Value operand) {
    auto alloc = operand.getDefiningOp<memref::AllocOp>();
    return alloc && attrs::scores.isOn(alloc);
  });
}

namespace {
struct GuardScores : bsr::impl::BSRGuardScoresBase<GuardScores> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    SmallVector<func::CallOp> calls;
    step.walk([&](func::CallOp call) {
      if (computesScores(call))
        calls.push_back(call);
    });
    if (calls.empty())
      return;
    OpBuilder b(&getContext());
    if (failed(step.insertArgument(
            step.getNumArguments(), b.getI1Type(),
            b.getDictionaryAttr({attrs::kind.with(b.getStringAttr("flag")),
                                 attrs::name.with(b.getStringAttr("scores"))}),
            step.getLoc())))
      return signalPassFailure();
    for (func::CallOp call : calls) {
      b.setInsertionPoint(call);
      auto guard =
          scf::IfOp::create(b, call.getLoc(), step.getArguments().back());
      call->moveBefore(guard.thenBlock()->getTerminator());
      ++numGuarded;
    }
  }
};
} // namespace
