// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Passes tensor maps to kernels by value.

#include "bsr/Codegen/GPU/Passes.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRPASSTENSORMAPS
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct PassTensorMaps : bsr::impl::BSRPassTensorMapsBase<PassTensorMaps> {
  using Base::Base;

  void runOnOperation() override {
    // CUDA Driver API, `CUtensorMap`.
    constexpr int64_t bytes = 128, alignment = 64;
    Builder b(&getContext());
    Type type = LLVM::LLVMArrayType::get(b.getI8Type(), bytes);
    getOperation().walk([&](NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp op) {
      auto map = dyn_cast<BlockArgument>(op.getTmaDescriptor());
      auto kernel = op->getParentOfType<LLVM::LLVMFuncOp>();
      if (!map || map.getOwner() != &kernel.getBody().front())
        return;
      auto set = [&](StringRef name, Attribute value) {
        kernel.setArgAttr(map.getArgNumber(), name, value);
      };
      set(LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(type));
      set(LLVM::LLVMDialect::getAlignAttrName(),
          b.getI64IntegerAttr(alignment));
      set(NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
    });
  }
};
} // namespace
