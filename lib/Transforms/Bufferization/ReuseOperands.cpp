// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets kernels write results over operands that are not read later.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Slices.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRREUSEOPERANDS
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// True if no operation behind `launch` reads `value` or a view of it.
static bool isReadLast(Value value, LaunchOp launch) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    Operation *at = launch->getBlock()->findAncestorOpInBlock(*user);
    if (!at || launch->isBeforeInBlock(at))
      return false;
    return !isView(user) || isReadLast(user->getResult(0), launch);
  });
}

/// Kernels that write one buffer in a row: bufferization compares each of them
/// with all others.
static constexpr unsigned maxWrites = 8;

/// Gives results of `launch` the buffers of its operands where it can; returns
/// how many. `writes` counts the kernels that wrote over the buffer of a value.
static unsigned reuse(LaunchOp launch, DenseMap<Value, unsigned> &writes) {
  unsigned count = 0;
  DenseSet<Value> taken;
  for (OpOperand &init : launch.getInitsMutable()) {
    if (!init.get().getDefiningOp<tensor::EmptyOp>())
      continue;
    for (int64_t number : launch.getInPlace()) {
      Value input = launch.getInputs()[number];
      // What another kernel made, and not what bufferization has to keep.
      if (!input.getDefiningOp<LaunchOp>() ||
          input.getType() != init.get().getType() || taken.contains(input) ||
          llvm::count(launch.getInputs(), input) != 1 ||
          writes.lookup(input) + 1 >= maxWrites || !isReadLast(input, launch))
        continue;
      if (!decide("bsr-reuse-operands", launch))
        break;
      PassRemark::passed("bsr-reuse-operands", "OperandOverwritten", launch)
          .add("Kernel", launch.getKernel())
          .add("Operand", number);
      init.set(input);
      unsigned before = writes.lookup(input);
      writes[launch.getTiedOpResult(&init)] = before + 1;
      taken.insert(input);
      ++count;
      break;
    }
  }
  return count;
}

/// Checks that results that are read do not have memory of their own yet.
static LogicalResult verifyTogether(func::FuncOp step) {
  for (auto launch : step.front().getOps<LaunchOp>())
    for (OpOperand &init : launch.getInitsMutable())
      if (init.get().getDefiningOp<bufferization::AllocTensorOp>() &&
          !launch.getTiedOpResult(&init).use_empty())
        return launch.emitError("expected bsr-reuse-operands before "
                                "bsr-separate-results, but got a result with "
                                "memory of its own");
  return success();
}

namespace {
struct ReuseOperands : bsr::impl::BSRReuseOperandsBase<ReuseOperands> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (failed(verifyTogether(step)))
      return signalPassFailure();
    DenseMap<Value, unsigned> writes;
    for (auto launch : step.front().getOps<LaunchOp>())
      numReused += reuse(launch, writes);
  }
};
} // namespace
