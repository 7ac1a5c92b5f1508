// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How shards of tensors become ones of buffers.

#include "bsr/Dialect/Shards.h"
#include "ReaderModel.h"
#include "bsr/Transforms/Bufferization/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bufferization;

namespace {
struct ShardModel : ReaderModel<ShardModel, ShardOp> {
  bool bufferizesToAllocation(Operation *, Value) const { return true; }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto shard = cast<ShardOp>(op);
    Location loc = op->getLoc();
    FailureOr<Value> whole =
        getWholeBuffer(shard.getWhole(), rewriter, loc, options, state);
    if (failed(whole))
      return failure();
    FailureOr<Value> buffer = options.createAlloc(
        rewriter, loc, getDenseBufferType(shard.getResult().getType()), {});
    if (failed(buffer))
      return failure();
    ShardOp::create(rewriter, loc, Type(), *whole, *buffer);
    replaceOpWithBufferizedValues(rewriter, op, *buffer);
    return success();
  }
};

/// The whole is written where the operand is that it takes the place of.
struct UnshardModel
    : BufferizableOpInterface::ExternalModel<UnshardModel, UnshardOp> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    return operand.get() == cast<UnshardOp>(op).getShard();
  }
  bool bufferizesToMemoryWrite(Operation *op, OpOperand &operand,
                               const AnalysisState &) const {
    return operand.get() == cast<UnshardOp>(op).getWhole();
  }
  AliasingValueList getAliasingValues(Operation *op, OpOperand &operand,
                                      const AnalysisState &) const {
    if (operand.get() != cast<UnshardOp>(op).getWhole())
      return {};
    return {{op->getResult(0), BufferRelation::Equivalent}};
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    auto unshard = cast<UnshardOp>(op);
    FailureOr<Value> shard = getWholeBuffer(unshard.getShard(), rewriter,
                                            op->getLoc(), options, state);
    FailureOr<Value> whole =
        getBuffer(rewriter, unshard.getWhole(), options, state);
    if (failed(shard) || failed(whole))
      return failure();
    UnshardOp::create(rewriter, op->getLoc(), Type(), *shard, *whole);
    replaceOpWithBufferizedValues(rewriter, op, *whole);
    return success();
  }
};
} // namespace

void bsr::registerShardBufferization(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    ShardOp::attachInterface<ShardModel>(*context);
    UnshardOp::attachInterface<UnshardModel>(*context);
  });
}
