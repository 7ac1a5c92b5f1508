// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one place that says what the compiler may do with floating-point numbers.

#include "bsr/Codegen/Common/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRFASTMATH
#include "bsr/Codegen/Common/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// What may be done with `op`; its Passes.td says why.
static arith::FastMathFlags getFlags(Operation *op) {
  using arith::FastMathFlags;
  if (isa<vector::ReductionOp>(op))
    return FastMathFlags::reassoc | FastMathFlags::contract;
  if (isa<arith::MaximumFOp, arith::MinimumFOp>(op))
    return FastMathFlags::nsz;
  if (isa<arith::SubFOp>(op))
    return FastMathFlags::none;
  return FastMathFlags::contract;
}

namespace {
struct FastMath : bsr::impl::BSRFastMathBase<FastMath> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([](arith::ArithFastMathInterface op) {
      // Contracted, a rounding to a smaller type and back folds away.
      if (isa<arith::ExtFOp, arith::TruncFOp>(op))
        return;
      // Some operations (fpowi) may have no flags at all.
      arith::FastMathFlagsAttr flags = op.getFastMathFlagsAttr();
      op->setAttr(op.getFastMathAttrName(),
                  arith::FastMathFlagsAttr::get(
                      op->getContext(),
                      getFlags(op) | (flags ? flags.getValue()
                                            : arith::FastMathFlags::none)));
    });
  }
};
} // namespace
