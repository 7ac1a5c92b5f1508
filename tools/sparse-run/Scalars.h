// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations on numbers.

#ifndef BSR_TOOLS_SPARSERUN_SCALARS_H
#define BSR_TOOLS_SPARSERUN_SCALARS_H

#include "Numbers.h"

#include "mlir/IR/Operation.h"
#include <functional>

namespace tools {

/// Computes the results of an operation on numbers from its operands.
using ScalarFunction =
    std::function<void(const Number *operands, Number *results)>;

/// What `op`, of `arith`, `math` or `affine`, or a `bsr.barrier`, computes of
/// numbers, or of each element of tensors; null if it is not interpreted. The
/// function refers to `op`.
ScalarFunction getScalarFunction(mlir::Operation *op);

/// `integer` as one of `width` bits.
int64_t wrap(int64_t integer, unsigned width);

/// The number that `attribute` says, of a float, an integer, a Boolean.
Number getNumber(mlir::Attribute attribute);

} // namespace tools

#endif // BSR_TOOLS_SPARSERUN_SCALARS_H
