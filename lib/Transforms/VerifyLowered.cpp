// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fails if an operation or a type of the bsr dialect is left.

#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Passes.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRVERIFYLOWERED
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct VerifyLowered : bsr::impl::BSRVerifyLoweredBase<VerifyLowered> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([&](Operation *op) {
      auto isPattern = [](Type type) { return isa<PatternType>(type); };
      if (!isa<BSRDialect>(op->getDialect()) &&
          llvm::none_of(op->getResultTypes(), isPattern) &&
          llvm::none_of(op->getOperandTypes(), isPattern))
        return;
      op->emitError("expected no operation of the bsr dialect after "
                    "lowering, but got '")
          << op->getName() << "'";
      signalPassFailure();
    });
  }
};
} // namespace
