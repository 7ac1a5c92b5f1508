// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Results of attention in the type that is read of them.

#ifndef BSR_LIB_TRANSFORMS_ATTENTION_NARROWATTENTION_H
#define BSR_LIB_TRANSFORMS_ATTENTION_NARROWATTENTION_H

#include "mlir/IR/Block.h"

namespace mlir::bsr {

/// Lets each attention of `block`, and each gradient, round the results that
/// all readers round them to one type, but for the gradient that reads `y`;
/// and folds what widens such numbers, perhaps gives them other dimensions, and
/// rounds them again. What has no uses then stays.
void narrowAttention(Block &block);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_ATTENTION_NARROWATTENTION_H
