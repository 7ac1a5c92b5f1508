// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls the communicator for transfers between stages.

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
/// whose address is `offset` bytes in `communicator`.
static void lower(Operation *op, Value buffer, int64_t rank, size_t offset,
                  Value communicator) {
  OpBuilder b(op);
  Location loc = op->getLoc();
  Type ptr = communicator.getType(), i32 = b.getI32Type(), i64 = b.getI64Type();
  auto type = cast<MemRefType>(buffer.getType());
  Value at = memref::ExtractAlignedPointerAsIndexOp::create(b, loc, buffer);
  Value address = arith::IndexCastOp::create(b, loc, i64, at);
  Value data = LLVM::IntToPtrOp::create(b, loc, ptr, address);
  int64_t bytes =
      type.getNumElements() * ((type.getElementTypeBitWidth() + 7) / 8);
  Value count =
      LLVM::ConstantOp::create(b, loc, i64, b.getI64IntegerAttr(bytes));
  Value other =
      LLVM::ConstantOp::create(b, loc, i32, b.getI32IntegerAttr(int32_t(rank)));
  Value field = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), communicator,
                                    ArrayRef<LLVM::GEPArg>(int32_t(offset)));
  Value function = LLVM::LoadOp::create(b, loc, ptr, field);
  auto signature = LLVM::LLVMFunctionType::get(
      LLVM::LLVMVoidType::get(b.getContext()), {ptr, ptr, i64, i32});
  LLVM::CallOp::create(b, loc, signature,
                       ValueRange{function, communicator, data, count, other});
  op->erase();
}

namespace {
struct LowerTransfers : mlir::bsr::impl::BSRLowerTransfersBase<LowerTransfers> {
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
    Value field = LLVM::GEPOp::create(
        b, func.getLoc(), context.getType(), b.getI8Type(), context,
        ArrayRef<LLVM::GEPArg>(int32_t(offsetof(bsr_context, communicator))));
    Value communicator =
        LLVM::LoadOp::create(b, func.getLoc(), context.getType(), field);
    for (Operation *op : transfers) {
      if (auto send = dyn_cast<SendOp>(op))
        lower(op, send.getData(), send.getTo(),
              offsetof(bsr_communicator, send), communicator);
      else if (auto receive = dyn_cast<ReceiveOp>(op))
        lower(op, receive.getBuffer(), receive.getFrom(),
              offsetof(bsr_communicator, receive), communicator);
    }
    return success();
  }
};
} // namespace
