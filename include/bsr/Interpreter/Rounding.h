// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What roundings may do to a program: its operations, changed at random.

#ifndef BSR_INTERPRETER_ROUNDING_H
#define BSR_INTERPRETER_ROUNDING_H

#include "bsr/Interpreter/Scalars.h"

#include "mlir/IR/BuiltinTypes.h"
#include <random>

namespace mlir::bsr::interpreter {

/// The roundoff of `type`, half a unit in the last place of 1; of f64 four
/// times that, since doubles are interpreted in doubles.
double getRoundoff(FloatType type);

/// `function`, which computes `op`, with a result that is the nearest float of
/// its type: exact for what a double holds, as sums, products, quotients and
/// square roots of f32 are.
ScalarFunction roundResult(Operation *op, ScalarFunction function);

/// Changes what operations compute as their types may: what no finite number
/// of the type holds is infinite, everything else is wrong by a random share,
/// up to `scale`, of a roundoff.
class Rounding {
public:
  Rounding(uint64_t seed, double scale) : random(seed), scale(scale) {}

  /// `function`, which computes `op`, with its result changed. Operations that
  /// compute exactly stay as they are: a maximum is one of its operands.
  ScalarFunction change(Operation *op, ScalarFunction function);

private:
  std::mt19937_64 random;
  double scale;
};

} // namespace mlir::bsr::interpreter

#endif // BSR_INTERPRETER_ROUNDING_H
