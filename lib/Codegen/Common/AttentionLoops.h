// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plain loops for attention and its gradient.

#ifndef BSR_CODEGEN_COMMON_ATTENTIONLOOPS_H
#define BSR_CODEGEN_COMMON_ATTENTIONLOOPS_H

#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Dialect/Attention.h"

namespace mlir::bsr {

/// Emits the formulas of `attention` as they stand: every score is computed
/// again wherever it is part of a sum. `outputs` has a buffer for each result
/// that is stored.
void emitAttentionLoops(Evaluator &e, const Attention &attention,
                        const DenseMap<Value, Value> &outputs,
                        const PatternViews &patterns);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_ATTENTIONLOOPS_H
