// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fails if an operation or a type of the bsr dialect is left, or memory is
// allocated.

#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Library/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRVERIFYLOWERED
#include "bsr/Transforms/Library/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The functions that allocations are lowered to.
static constexpr StringLiteral allocators[] = {"malloc", "calloc", "realloc",
                                               "aligned_alloc"};

static LogicalResult verify(Operation *op) {
  auto isPattern = [](Type type) { return isa<PatternType>(type); };
  if (isa<BSRDialect>(op->getDialect()) ||
      llvm::any_of(op->getResultTypes(), isPattern) ||
      llvm::any_of(op->getOperandTypes(), isPattern))
    return op->emitError("expected no operation of the bsr dialect after "
                         "lowering, but got '")
           << op->getName() << "'";
  auto call = dyn_cast<LLVM::CallOp>(op);
  if (call && call.getCallee() &&
      llvm::is_contained(allocators, *call.getCallee()))
    return op->emitError(
               "expected no allocation after lowering, but got a call of '")
           << *call.getCallee() << "'";
  return success();
}

namespace {
struct VerifyLowered : bsr::impl::BSRVerifyLoweredBase<VerifyLowered> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([&](Operation *op) {
      if (failed(verify(op)))
        signalPassFailure();
    });
  }
};
} // namespace
