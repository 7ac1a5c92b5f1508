// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rounds what is computed of 16-bit floats as often as the program does.

#include "bsr/Codegen/Common/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRKEEPROUNDINGS
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

namespace {
struct KeepRoundings : bsr::impl::BSRKeepRoundingsBase<KeepRoundings> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([](Operation *op) {
      if (!isa<arith::ExtFOp, arith::TruncFOp>(op))
        return;
      auto flags = cast<arith::ArithFastMathInterface>(op);
      op->removeAttr(flags.getFastMathAttrName());
    });
  }
};
} // namespace
