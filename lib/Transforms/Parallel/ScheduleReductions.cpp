// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves what needs means over processes to the end of a step.

#include "bsr/Analysis/Step.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSCHEDULEREDUCTIONS
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// How many reductions of the block are started when the last one is that `op`
/// or what is nested in it reads, as `ready` tells of what comes before; 0 if
/// it reads none.
static unsigned getReady(Operation *op,
                         const DenseMap<Operation *, unsigned> &ready) {
  unsigned last = 0;
  op->walk([&](Operation *nested) {
    for (Value operand : nested->getOperands())
      if (Operation *made = operand.getDefiningOp())
        last = std::max(last, ready.lookup(made));
  });
  return last;
}

namespace {
struct ScheduleReductions
    : bsr::impl::BSRScheduleReductionsBase<ScheduleReductions> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (failed(getReturn(step)))
      return signalPassFailure();
    Block &body = step.front();
    DenseMap<Operation *, unsigned> ready;
    // By the reductions it needs, and where it stands.
    SmallVector<std::tuple<unsigned, unsigned, Operation *>> late;
    unsigned started = 0;
    for (Operation &op : body.without_terminator()) {
      unsigned number = getReady(&op, ready);
      if (isa<AllReduceOp>(op))
        // A mean of what needs others, of a loss say, is started behind those.
        ready[&op] = number ? number : ++started;
      else if (number)
        ready[&op] = number;
      if (number)
        late.emplace_back(number, late.size(), &op);
    }
    if (llvm::any_of(late, [](auto &entry) {
          return !isMemoryEffectFree(std::get<Operation *>(entry));
        }))
      return;
    // What reads another comes behind it: its number is no smaller, and equal
    // numbers keep their order.
    llvm::sort(late);
    for (auto [number, place, op] : late)
      op->moveBefore(body.getTerminator());
    numMoved += late.size();
  }
};
} // namespace
