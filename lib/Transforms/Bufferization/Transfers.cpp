// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How transfers between stages become ones of buffers.

#include "bsr/Dialect/Transfers.h"
#include "ReaderModel.h"
#include "bsr/Transforms/Bufferization/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bufferization;

namespace {
struct SendModel : ReaderModel<SendModel, SendOp> {
  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto send = cast<SendOp>(op);
    FailureOr<Value> buffer =
        getWholeBuffer(send.getData(), rewriter, op->getLoc(), options, state);
    if (failed(buffer))
      return failure();
    SendOp::create(rewriter, op->getLoc(), *buffer, send.getTo());
    rewriter.eraseOp(op);
    return success();
  }
};

struct ReceiveModel : ReaderModel<ReceiveModel, ReceiveOp> {
  bool bufferizesToAllocation(Operation *, Value) const { return true; }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &) const {
    auto receive = cast<ReceiveOp>(op);
    FailureOr<Value> buffer = options.createAlloc(
        rewriter, op->getLoc(),
        getDenseBufferType(receive.getResult().getType()), {});
    if (failed(buffer))
      return failure();
    ReceiveOp::create(rewriter, op->getLoc(), Type(), *buffer,
                      receive.getFrom(), receive.getOnce());
    replaceOpWithBufferizedValues(rewriter, op, *buffer);
    return success();
  }
};
} // namespace

void bsr::registerTransferBufferization(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    SendOp::attachInterface<SendModel>(*context);
    ReceiveOp::attachInterface<ReceiveModel>(*context);
  });
}
