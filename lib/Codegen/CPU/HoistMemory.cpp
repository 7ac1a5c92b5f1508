// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes memory of work items memory of threads.

#include "bsr/Codegen/CPU/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/OpenMP/OpenMPDialect.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRHOISTMEMORY
#include "bsr/Codegen/CPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;

namespace {
struct HoistMemory : bsr::impl::BSRHoistMemoryBase<HoistMemory> {
  using Base::Base;

  void runOnOperation() override {
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
