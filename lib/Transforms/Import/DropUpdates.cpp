// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Leaves of a step what it returns beside its state.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Import/Passes.h"
#include "mlir/Transforms/RegionUtils.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRDROPUPDATES
#include "bsr/Transforms/Import/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct DropUpdates : bsr::impl::BSRDropUpdatesBase<DropUpdates> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    FailureOr<func::ReturnOp> end = getReturn(step);
    if (failed(end))
      return signalPassFailure();

    BitVector updates(step.getNumResults());
    for (auto [index, carrier] : llvm::enumerate(getCarriers(step)))
      if (carrier)
        updates.set(index);
    numDropped += updates.count();
    for (unsigned index = updates.size(); index-- > 0;)
      if (updates[index])
        (*end)->eraseOperand(index);
    (void)step.eraseResults(updates);
    IRRewriter rewriter(&getContext());
    (void)runRegionDCE(rewriter, step->getRegions());

    BitVector unused(step.getNumArguments());
    for (BlockArgument argument : step.getArguments()) {
      unsigned index = argument.getArgNumber();
      step.removeArgAttr(index, attrs::result);
      StringAttr role = attrs::role.ofArg(step, index);
      bool isKept = !role || role == "param" || role == "buffer" ||
                    role == "batch" || attrs::mask.ofArg(step, index);
      if (!isKept && argument.use_empty())
        unused.set(index);
    }
    (void)step.eraseArguments(unused);
  }
};
} // namespace
