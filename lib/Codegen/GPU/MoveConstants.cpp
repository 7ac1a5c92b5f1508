// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives kernels the constant arrays that they are called with.

#include "bsr/Codegen/GPU/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/SymbolTable.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRMOVECONSTANTS
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// For each operand of `call`, the name of the constant that it is, or a unit.
static ArrayAttr getConstants(func::CallOp call) {
  Builder b(call.getContext());
  return b.getArrayAttr(
      llvm::map_to_vector(call.getOperands(), [&](Value operand) -> Attribute {
        auto global = operand.getDefiningOp<memref::GetGlobalOp>();
        return global ? Attribute(global.getNameAttr()) : b.getUnitAttr();
      }));
}

/// Replaces the arguments of `kernel` and the operands of its `calls` that are
/// `constants` by what is in the kernel.
static LogicalResult moveConstants(func::FuncOp kernel, ArrayAttr constants,
                                   ArrayRef<func::CallOp> calls) {
  OpBuilder b = OpBuilder::atBlockBegin(&kernel.front());
  llvm::BitVector moved(kernel.getNumArguments());
  for (auto [argument, constant] :
       llvm::zip_equal(kernel.getArguments(), constants)) {
    auto name = dyn_cast<FlatSymbolRefAttr>(constant);
    if (!name)
      continue;
    argument.replaceAllUsesWith(memref::GetGlobalOp::create(
        b, argument.getLoc(), argument.getType(), name));
    moved.set(argument.getArgNumber());
  }
  for (func::CallOp call : calls) {
    call.setCallee(kernel.getName());
    call->eraseOperands(moved);
  }
  return kernel.eraseArguments(moved);
}

namespace {
struct MoveConstants : bsr::impl::BSRMoveConstantsBase<MoveConstants> {
  using Base::Base;

  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    llvm::MapVector<func::FuncOp,
                    llvm::MapVector<ArrayAttr, SmallVector<func::CallOp>>>
        kernels;
    getOperation().walk([&](func::CallOp call) {
      // What a kernel calls may go with it.
      if (call->getParentOfType<func::FuncOp>().isPrivate())
        return;
      auto kernel = symbols.lookup<func::FuncOp>(call.getCallee());
      if (kernel && !kernel.isExternal() && kernel.isPrivate())
        kernels[kernel][getConstants(call)].push_back(call);
    });
    for (auto &[kernel, ways] : kernels) {
      bool isCalled = false;
      for (auto &[constants, calls] : ways) {
        if (llvm::none_of(constants, llvm::IsaPred<FlatSymbolRefAttr>)) {
          isCalled = true;
          continue;
        }
        func::FuncOp copy = kernel.clone();
        symbols.insert(copy);
        if (failed(moveConstants(copy, constants, calls)))
          return signalPassFailure();
        ++numKernels;
      }
      // Uses are looked for in the whole module.
      if (!isCalled && SymbolTable::symbolKnownUseEmpty(kernel, getOperation()))
        symbols.erase(kernel);
    }
    getOperation().walk([](memref::GetGlobalOp global) {
      if (global.use_empty())
        global.erase();
    });
  }
};
} // namespace
