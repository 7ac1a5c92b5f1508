// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Leaves of a step for a GPU what its library has: the manifest and the
// kernels.

#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Library/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREXPORTLAUNCHES
#include "bsr/Transforms/Library/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct ExportLaunches : bsr::impl::BSRExportLaunchesBase<ExportLaunches> {
  using Base::Base;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!module.lookupSymbol("bsr_step_manifest")) {
      module.emitError("expected a step with its manifest, but got none: run "
                       "bsr-embed-manifest first");
      return signalPassFailure();
    }
    int64_t numTimers = 0;
    for (auto function : module.getOps<func::FuncOp>())
      if (ArrayAttr timers = attrs::timers.get(function))
        numTimers = int64_t(timers.size());
    std::string text;
    for (Operation &op : llvm::make_early_inc_range(*module.getBody())) {
      if (auto binary = dyn_cast<gpu::BinaryOp>(op))
        text += cast<gpu::ObjectAttr>(binary.getObjects()[0])
                    .getObject()
                    .getValue();
      if (!isa<LLVM::GlobalOp>(op))
        op.erase();
    }
    text.push_back('\0');
    module->removeAttr(gpu::GPUDialect::getContainerModuleAttrName());
    attrs::target.remove(module);
    OpBuilder b = OpBuilder::atBlockEnd(module.getBody());
    LLVM::GlobalOp::create(b, module.getLoc(),
                           LLVM::LLVMArrayType::get(b.getI8Type(), text.size()),
                           /*isConstant=*/true, LLVM::Linkage::External,
                           "bsr_step_ptx", b.getStringAttr(text));
    if (!numTimers)
      return;
    // Nanoseconds and launches of each, and a row of what is between runs.
    auto table = LLVM::LLVMArrayType::get(
        LLVM::LLVMArrayType::get(b.getI64Type(), 2), unsigned(numTimers) + 1);
    auto global = LLVM::GlobalOp::create(
        b, module.getLoc(), table, /*isConstant=*/false,
        LLVM::Linkage::External, "bsr_step_timers", Attribute());
    b.createBlock(&global.getInitializerRegion());
    Value zero = LLVM::ZeroOp::create(b, module.getLoc(), table);
    LLVM::ReturnOp::create(b, module.getLoc(), zero);
  }
};
} // namespace
