// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes scalars as soon as their operands are there.

#include "bsr/Analysis/Order.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRHOISTSCALARS
#include "bsr/Transforms/Clusters/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Moves what makes scalars to where its operands are there, so that an update
/// that needs them (a bias correction, a learning rate) need not wait.
static int64_t hoistScalars(Block &block) {
  Order order(block);
  int64_t count = 0;
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
    if (!isMemoryEffectFree(&op) || op.getNumResults() == 0 ||
        !llvm::all_of(op.getResultTypes(), [](Type type) {
          auto tensor = dyn_cast<RankedTensorType>(type);
          return !tensor ||
                 (tensor.hasStaticShape() && tensor.getNumElements() == 1);
        }))
      continue;
    Operation *after = nullptr;
    op.walk([&](Operation *inner) {
      for (Value operand : inner->getOperands()) {
        Operation *producer = operand.getDefiningOp();
        if (producer && producer->getBlock() == &block &&
            (!after || order.isBefore(after, producer)))
          after = producer;
      }
    });
    order.moveAfter(&op, after);
    ++count;
  }
  return count;
}

namespace {
struct HoistScalars : bsr::impl::BSRHoistScalarsBase<HoistScalars> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp func = getOperation();
    if (func.isDeclaration() || !func.getBody().hasOneBlock())
      return;
    numHoisted += hoistScalars(func.getBody().front());
  }
};
} // namespace
