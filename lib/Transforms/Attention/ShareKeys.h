// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keys and values that several heads of queries share.

#ifndef BSR_LIB_TRANSFORMS_ATTENTION_SHAREKEYS_H
#define BSR_LIB_TRANSFORMS_ATTENTION_SHAREKEYS_H

#include "mlir/IR/Block.h"

namespace mlir::bsr {

/// True if `value`, a tensor, was repeated along dimension `dim`: it is the
/// same everywhere along it.
bool isConstantAlong(Value value, unsigned dim);

/// Lets each attention of `block`, and each gradient, read keys and values that
/// were repeated for several heads of queries as they were before, and sum up
/// their gradients over these heads if all readers of the gradients do.
/// Attention that the target has no kernels for then stays as it is.
void shareKeys(Block &block);

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_ATTENTION_SHAREKEYS_H
