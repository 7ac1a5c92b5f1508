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

/// True if `op`, a call or a reduction over processes, writes scores.
static bool computesScores(Operation *op) {
  return llvm::any_of(op->getOperands(), [](Value operand) {
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
    SmallVector<Operation *> calls;
    step.walk([&](Operation *op) {
      if (isa<func::CallOp, AllReduceOp>(op) && computesScores(op))
        calls.push_back(op);
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
    for (Operation *call : calls) {
      b.setInsertionPoint(call);
      auto guard =
          scf::IfOp::create(b, call->getLoc(), step.getArguments().back());
      call->moveBefore(guard.thenBlock()->getTerminator());
      ++numGuarded;
    }
  }
};
} // namespace
