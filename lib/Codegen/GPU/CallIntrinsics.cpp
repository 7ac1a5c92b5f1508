// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns mathematical functions into calls of the intrinsics that a GPU has.

#include "bsr/Codegen/GPU/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRCALLINTRINSICS
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The intrinsic of LLVM that computes `op` on a GPU as IEEE 754 says, or none.
static StringRef getIntrinsic(Operation *op) {
  return TypeSwitch<Operation *, StringRef>(op)
      .Case([](math::AbsFOp) { return "llvm.fabs"; })
      .Case([](math::CeilOp) { return "llvm.ceil"; })
      .Case([](math::CopySignOp) { return "llvm.copysign"; })
      .Case([](math::CtPopOp) { return "llvm.ctpop"; })
      .Case([](math::FloorOp) { return "llvm.floor"; })
      .Case([](math::FmaOp) { return "llvm.fma"; })
      .Case([](math::RoundEvenOp) { return "llvm.roundeven"; })
      .Case([](math::SqrtOp) { return "llvm.sqrt"; })
      .Case([](math::TruncOp) { return "llvm.trunc"; })
      .Default(StringRef());
}

namespace {
struct CallIntrinsics : bsr::impl::BSRCallIntrinsicsBase<CallIntrinsics> {
  using Base::Base;

  void runOnOperation() override {
    StringRef math = math::MathDialect::getDialectNamespace();
    WalkResult result = getOperation().walk([&](Operation *op) {
      if (op->getName().getDialectNamespace() != math)
        return WalkResult::advance();
      StringRef name = getIntrinsic(op);
      Type type = op->getResult(0).getType();
      auto vector = dyn_cast<VectorType>(type);
      if (name.empty() || (vector && vector.getRank() != 1)) {
        op->emitError("expected a function that a GPU computes, of a number or "
                      "a vector, but got '")
            << op->getName() << "' of " << type;
        return WalkResult::interrupt();
      }
      OpBuilder b(op);
      std::string suffixed;
      llvm::raw_string_ostream stream(suffixed);
      stream << name << ".";
      if (vector)
        stream << "v" << vector.getNumElements();
      stream << getElementTypeOrSelf(type);
      auto call = LLVM::CallIntrinsicOp::create(
          b, op->getLoc(), type, b.getStringAttr(suffixed), op->getOperands());
      op->getResult(0).replaceAllUsesWith(call.getResults());
      op->erase();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
