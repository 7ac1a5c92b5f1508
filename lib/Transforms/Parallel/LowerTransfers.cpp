// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls the communicator for transfers between stages.

#include "CommunicatorCalls.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Transfers.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "bsr/step.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLOWERTRANSFERS
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Makes `op`, a transfer of `buffer` to or from `rank`, a call of the function
/// whose address is `offset` bytes in the communicator.
static void lower(OpBuilder &b, Operation *op, Value buffer, int64_t rank,
                  size_t offset, CommunicatorCalls &calls) {
  b.setInsertionPoint(op);
  Location loc = op->getLoc();
  calls.call(loc, offset,
             {calls.getAddress(loc, buffer), calls.getBytes(loc, buffer),
              calls.getConstant(loc, b.getI32Type(), rank)});
  op->erase();
}

namespace {
struct LowerTransfers : bsr::impl::BSRLowerTransfersBase<LowerTransfers> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (failed(lowerIn(func)))
        return signalPassFailure();
  }

  LogicalResult lowerIn(func::FuncOp func) {
    SmallVector<Operation *> transfers;
    func.walk([&](Operation *op) {
      if (isa<SendOp, ReceiveOp>(op))
        transfers.push_back(op);
    });
    if (transfers.empty())
      return success();
    for (Operation *op : transfers)
      if (llvm::any_of(op->getOperandTypes(), llvm::IsaPred<TensorType>) ||
          op->getNumResults())
        return op->emitError("expected a buffer, but got a tensor: bufferize "
                             "it first");
    BlockArgument context;
    if (func.getNumArguments())
      context = func.getArguments().back();
    if (!attrs::communicates.isOn(func) || !context ||
        !isa<LLVM::LLVMPointerType>(context.getType()))
      return transfers.front()->emitError(
          "expected a step that has its context from bsr-lower-reductions "
          "around it, but got none");
    OpBuilder b(func.getBody());
    CommunicatorCalls calls(b, func.getLoc(), context);
    for (Operation *op : transfers) {
      if (auto send = dyn_cast<SendOp>(op))
        lower(b, op, send.getData(), send.getTo(),
              offsetof(bsr_communicator, send), calls);
      else if (auto receive = dyn_cast<ReceiveOp>(op))
        lower(b, op, receive.getBuffer(), receive.getFrom(),
              offsetof(bsr_communicator, receive), calls);
    }
    return success();
  }
};
} // namespace
