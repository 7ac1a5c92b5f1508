// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What models of bufferization have in common.

#ifndef BSR_LIB_TRANSFORMS_BUFFERIZATION_READERMODEL_H
#define BSR_LIB_TRANSFORMS_BUFFERIZATION_READERMODEL_H

#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"

namespace mlir::bsr {

/// Of an operation that reads its tensors, and makes ones of its own or none.
template <typename Model, typename OpTy>
struct ReaderModel
    : bufferization::BufferizableOpInterface::ExternalModel<Model, OpTy> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const bufferization::AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const bufferization::AnalysisState &) const {
    return false;
  }
  bufferization::AliasingValueList
  getAliasingValues(Operation *, OpOperand &,
                    const bufferization::AnalysisState &) const {
    return {};
  }
};

/// The buffer of `value`, in one piece: a copy of one that does not lie so, as
/// a part of a larger one.
FailureOr<Value>
getWholeBuffer(Value value, RewriterBase &rewriter, Location loc,
               const bufferization::BufferizationOptions &options,
               bufferization::BufferizationState &state);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_BUFFERIZATION_READERMODEL_H
