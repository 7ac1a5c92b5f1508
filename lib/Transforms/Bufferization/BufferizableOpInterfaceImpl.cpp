// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bufferization of the dialect's operations outside of clusters: each becomes
// plain loops, into a new buffer.

#include "bsr/Transforms/Bufferization/BufferizableOpInterfaceImpl.h"
#include "ReaderModel.h"
#include "bsr/Codegen/Common/Nests.h"
#include "bsr/Dialect/Groups.h"
#include "bsr/Dialect/Rows.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bufferization;

/// The buffers of one view of `pattern`.
static PatternView createView(RewriterBase &rewriter, Location loc,
                              Value pattern, View view) {
  SmallVector<Value> arrays;
  rewriter.createOrFold<IndicesOp>(arrays, loc, pattern, view);
  for (Value &array : arrays)
    array = ToBufferOp::create(rewriter, loc,
                               getDenseBufferType(array.getType()), array);
  return {arrays[0], arrays[1], arrays[2]};
}

FailureOr<Value> bsr::getWholeBuffer(Value value, RewriterBase &rewriter,
                                     Location loc,
                                     const BufferizationOptions &options,
                                     BufferizationState &state) {
  FailureOr<Value> buffer = getBuffer(rewriter, value, options, state);
  if (failed(buffer) ||
      cast<MemRefType>(buffer->getType()).getLayout().isIdentity())
    return buffer;
  FailureOr<Value> whole = options.createAlloc(
      rewriter, loc, getDenseBufferType(value.getType()), {});
  if (failed(whole) ||
      failed(options.createMemCpy(rewriter, loc, *buffer, *whole)))
    return failure();
  return whole;
}

namespace {
/// An operation that makes tensors of its own.
template <typename OpTy>
struct KernelModel : ReaderModel<KernelModel<OpTy>, OpTy> {
  bool bufferizesToAllocation(Operation *, Value) const { return true; }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    Evaluator evaluator(rewriter, op->getLoc());
    PatternViews patterns;
    for (Value operand : op->getOperands()) {
      if (isa<PatternType>(operand.getType())) {
        if (std::optional<View> view = getLineView(op))
          patterns[{operand, *view}] =
              createView(rewriter, op->getLoc(), operand, *view);
        continue;
      }
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      evaluator.setBuffer(operand, *buffer);
    }
    DenseMap<Value, Value> outputs;
    SmallVector<Value> buffers;
    for (Value result : op->getResults()) {
      FailureOr<Value> output = options.createAlloc(
          rewriter, op->getLoc(), getDenseBufferType(result.getType()), {});
      if (failed(output))
        return failure();
      outputs[result] = *output;
      buffers.push_back(*output);
    }
    emitLoops(evaluator, op, outputs, patterns);
    replaceOpWithBufferizedValues(rewriter, op, buffers);
    return success();
  }
};

/// The mean takes the place of what it is of.
struct AllReduceModel
    : BufferizableOpInterface::ExternalModel<AllReduceModel, AllReduceOp> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return true;
  }
  AliasingValueList getAliasingValues(Operation *op, OpOperand &,
                                      const AnalysisState &) const {
    return {{op->getResult(0), BufferRelation::Equivalent}};
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    FailureOr<Value> buffer =
        getBuffer(rewriter, op->getOperand(0), options, state);
    if (failed(buffer))
      return failure();
    AllReduceOp::create(rewriter, op->getLoc(), Type(), *buffer);
    replaceOpWithBufferizedValues(rewriter, op, *buffer);
    return success();
  }
};

/// Index arrays are buffers whose owner is the pattern's; they are never
/// written.
struct IndicesModel
    : BufferizableOpInterface::ExternalModel<IndicesModel, IndicesOp> {
  bool isWritable(Operation *, Value, const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &,
                          BufferizationState &) const {
    auto indices = cast<IndicesOp>(op);
    auto buffers = IndicesOp::create(
        rewriter, op->getLoc(), getDenseBufferType(indices.getPtr().getType()),
        getDenseBufferType(indices.getIdx().getType()),
        getDenseBufferType(indices.getSlot().getType()), indices.getPattern(),
        indices.getTranspose());
    replaceOpWithBufferizedValues(rewriter, op, buffers->getResults());
    return success();
  }
};
} // namespace

void bsr::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, BSRDialect *) {
    AllReduceOp::attachInterface<AllReduceModel>(*context);
    AttentionGradOp::attachInterface<KernelModel<AttentionGradOp>>(*context);
    AttentionOp::attachInterface<KernelModel<AttentionOp>>(*context);
    BlockScoresOp::attachInterface<KernelModel<BlockScoresOp>>(*context);
    GatherRowsOp::attachInterface<KernelModel<GatherRowsOp>>(*context);
    GroupedMatmulOp::attachInterface<KernelModel<GroupedMatmulOp>>(*context);
    GroupedOuterOp::attachInterface<KernelModel<GroupedOuterOp>>(*context);
    IndicesOp::attachInterface<IndicesModel>(*context);
    LiveOp::attachInterface<KernelModel<LiveOp>>(*context);
    NumAbsentOp::attachInterface<KernelModel<NumAbsentOp>>(*context);
    ReduceVecOp::attachInterface<KernelModel<ReduceVecOp>>(*context);
    SampleOp::attachInterface<KernelModel<SampleOp>>(*context);
    SampleVecOp::attachInterface<KernelModel<SampleVecOp>>(*context);
    ScatterAddOp::attachInterface<KernelModel<ScatterAddOp>>(*context);
    ScatterRowsOp::attachInterface<KernelModel<ScatterRowsOp>>(*context);
    ScoreRowsOp::attachInterface<KernelModel<ScoreRowsOp>>(*context);
    SDDMMOp::attachInterface<KernelModel<SDDMMOp>>(*context);
    SpMMOp::attachInterface<KernelModel<SpMMOp>>(*context);
    ToDenseOp::attachInterface<KernelModel<ToDenseOp>>(*context);
    context->loadDialect<BufferizationDialect, memref::MemRefDialect,
                         scf::SCFDialect, vector::VectorDialect>();
  });
}
