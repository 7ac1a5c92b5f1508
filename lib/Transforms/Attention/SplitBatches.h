// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Splits batch dimensions of products that were merged.

#ifndef BSR_TRANSFORMS_ATTENTION_SPLITBATCHES_H
#define BSR_TRANSFORMS_ATTENTION_SPLITBATCHES_H

#include "mlir/IR/Block.h"

namespace mlir::bsr {

/// Splits the batch dimensions of products in `block` that are several
/// dimensions of what an operand is collapsed from or of what the result is
/// expanded to, as a program that has but one batch dimension for its products
/// merges sequences and heads. Reshapes around the products become views of
/// these dimensions, or go away. Products of an attention whose softmax has
/// them merged, too, stay as they are.
void splitBatches(Block &block);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_ATTENTION_SPLITBATCHES_H
