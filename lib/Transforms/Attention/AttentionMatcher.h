// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds attention, and its gradient, among products and what is between them.

#ifndef BSR_TRANSFORMS_ATTENTION_ATTENTIONMATCHER_H
#define BSR_TRANSFORMS_ATTENTION_ATTENTIONMATCHER_H

#include "AttentionMatch.h"

namespace mlir::bsr {

/// The attention whose scores are the product `scores`, of which something in
/// `maximized` is computed. Nothing if there is none; `obstacle` says what is
/// in the way if it is almost one.
std::optional<AttentionMatch>
matchAttention(linalg::GenericOp scores, const DenseSet<Operation *> &maximized,
               AttentionObstacle &obstacle);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_ATTENTION_ATTENTIONMATCHER_H
