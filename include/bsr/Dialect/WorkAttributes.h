// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step says of its work. The dialect verifies it with the other
// attributes (Attributes.h).

#ifndef BSR_DIALECT_WORKATTRIBUTES_H
#define BSR_DIALECT_WORKATTRIBUTES_H

#include "bsr/Dialect/Attributes.h"

namespace mlir::bsr::attrs {

/// Of a step: the floating-point operations of its products, as
/// `bsr-count-flops` counts them.
struct Work {
  static constexpr StringLiteral getNameStr() { return "bsr.work"; }
  DictionaryAttr getAttr(Operation *op);
};
inline constexpr Discardable<Work> work;

} // namespace mlir::bsr::attrs

#endif // BSR_DIALECT_WORKATTRIBUTES_H
