// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How transfers between stages become ones of buffers.

#include "bsr/Dialect/Transfers.h"
#include "bsr/Transforms/Bufferization/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bufferization;

namespace {
struct SendModel : BufferizableOpInterface::ExternalModel<SendModel, SendOp> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto send = cast<SendOp>(op);
    FailureOr<Value> buffer =
        getBuffer(rewriter, send.getData(), options, state);
    if (failed(buffer))
      return failure();
    // A part of a larger buffer does not lie in one piece.
    if (!cast<MemRefType>(buffer->getType()).getLayout().isIdentity()) {
      FailureOr<Value> whole =
          options.createAlloc(rewriter, op->getLoc(),
                              getDenseBufferType(send.getData().getType()), {});
      if (failed(whole) ||
          failed(options.createMemCpy(rewriter, op->getLoc(), *buffer, *whole)))
        return failure();
      buffer = whole;
    }
    SendOp::create(rewriter, op->getLoc(), *buffer, send.getTo());
    rewriter.eraseOp(op);
    return success();
  }
};

struct ReceiveModel
    : BufferizableOpInterface::ExternalModel<ReceiveModel, ReceiveOp> {
  bool bufferizesToAllocation(Operation *, Value) const { return true; }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }

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
                      receive.getFrom());
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
