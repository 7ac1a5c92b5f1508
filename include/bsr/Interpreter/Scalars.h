// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Operations on numbers.

#ifndef BSR_INTERPRETER_SCALARS_H
#define BSR_INTERPRETER_SCALARS_H

#include "bsr/Interpreter/Numbers.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/APFloat.h"
#include <functional>
#include <optional>

namespace mlir::bsr::interpreter {

/// Computes the results of an operation on numbers from its operands.
using ScalarFunction =
    std::function<void(const Number *operands, Number *results)>;

/// What `op`, of `arith`, `math` or `affine`, or a `bsr.barrier`, computes of
/// numbers, or of each element of tensors; null if it is not interpreted. The
/// function refers to `op`.
ScalarFunction getScalarFunction(Operation *op);

/// `integer` as one of `width` bits.
int64_t wrap(int64_t integer, unsigned width);

/// The number that `attribute` says, of a float, an integer, a Boolean.
Number getNumber(Attribute attribute);

/// The number that `op` is if it is a constant of one.
std::optional<Number> getConstantNumber(Operation *op);

/// The float of `semantics` that is nearest to `real`.
double round(double real, const llvm::fltSemantics &semantics);

} // namespace mlir::bsr::interpreter

#endif // BSR_INTERPRETER_SCALARS_H
