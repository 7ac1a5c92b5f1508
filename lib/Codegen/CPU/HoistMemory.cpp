// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hoists allocations out of parallel loops: one for each thread.

#include "bsr/Analysis/PassOrder.h"
#include "bsr/Codegen/CPU/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/OpenMP/OpenMPDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRHOISTMEMORY
#include "bsr/Codegen/CPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct HoistMemory : bsr::impl::BSRHoistMemoryBase<HoistMemory> {
  using Base::Base;

  void runOnOperation() override {
    // Without threads, memory would stay where it is.
    if (failed(requireBefore<scf::ForallOp>("scf-forall-to-parallel",
                                            getArgument(), getOperation())) ||
        failed(requireBefore<scf::ParallelOp>("convert-scf-to-openmp",
                                              getArgument(), getOperation())))
      return signalPassFailure();
    getOperation()->walk([&](memref::AllocaOp alloca) {
      auto threads = alloca->getParentOfType<omp::ParallelOp>();
      if (!threads || alloca.getNumOperands() != 0 ||
          alloca->getParentOp() == threads)
        return;
      Block &body = threads.getRegion().front();
      alloca->moveBefore(&body, body.begin());
      ++numHoisted;
    });
  }
};
} // namespace
