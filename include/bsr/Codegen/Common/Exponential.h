// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The exponential function of f32, by a polynomial.

#ifndef BSR_CODEGEN_COMMON_EXPONENTIAL_H
#define BSR_CODEGEN_COMMON_EXPONENTIAL_H

#include "bsr/Codegen/Common/NumberBuilder.h"

namespace mlir::bsr {

/// exp(x) of an f32, or of a vector of them, rounded once: subnormal results
/// too, and infinity beyond 89.
Value createExp(NumberBuilder &b, Value x);

/// The same in 14 instructions, for `x` that are not far above 0, such as
/// scores minus their maximum: 0 below -88.
Value createFlushedExp(NumberBuilder &b, Value x);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_EXPONENTIAL_H
