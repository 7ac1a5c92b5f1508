// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifies a module where a pass manager verifies after no pass.

#include "bsr/Transforms/Library/Passes.h"
#include "mlir/IR/Verifier.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRVERIFYMODULE
#include "bsr/Transforms/Library/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

namespace {
struct VerifyModule : bsr::impl::BSRVerifyModuleBase<VerifyModule> {
  using Base::Base;

  void runOnOperation() override {
    if (succeeded(verify(getOperation())))
      return;
    getOperation()->emitError("expected the passes of stage '" + stage +
                              "' to leave a valid module, but got the errors "
                              "above: report this as a bug");
    signalPassFailure();
  }
};
} // namespace
