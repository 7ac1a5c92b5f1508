// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which products may be the scores of an attention.

#ifndef BSR_LIB_TRANSFORMS_ATTENTION_ATTENTIONCANDIDATES_H
#define BSR_LIB_TRANSFORMS_ATTENTION_ATTENTIONCANDIDATES_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// The keys of `scores`, a product: as many as the larger of the dimensions
/// that one operand has alone.
int64_t getNumKeys(linalg::GenericOp scores);

/// True if a softmax is computed of `scores`: powers that are summed up.
bool isExponentiated(linalg::GenericOp scores);

/// True if something that is computed of `scores`, a product, is multiplied
/// with other tensors than it is a product of: values. The logits of a loss are
/// multiplied again with what they are a product of, in its gradient. True
/// as well if not every user was analysed.
bool mayHaveValues(linalg::GenericOp scores);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_ATTENTION_ATTENTIONCANDIDATES_H
