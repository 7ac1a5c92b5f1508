// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the entries of values are made of, on the way from gradients and a
// weight to its update.

#ifndef BSR_GRADIENTS_MAKEUP_H
#define BSR_GRADIENTS_MAKEUP_H

#include "bsr/Analysis/StepData.h"
#include "bsr/Gradients/OffPattern.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// What entries are functions of.
enum class Made {
  OfNumbers,   ///< Numbers alone: the same everywhere.
  OfMeans,     ///< Numbers that data enters, such as means of gradients.
  Weight,      ///< The weight's entries, or these after a step.
  OfWeight,    ///< Functions of these.
  OfGradients, ///< Gradients, linearly.
  OfSums,      ///< Gradients, and what is added to them.
  OfFunctions, ///< Other functions of gradients and the weight alone.
  OfOther
};

/// What values are made of, which are added in the order of the program.
class Makeup {
public:
  /// `offs` says what they are off the pattern.
  Makeup(Value weight, ArrayRef<Value> gradients, const StepData &data,
         const Offs &offs);

  /// Adds the results of entry-wise `op`, of which `offs` has all values.
  void add(Operation *op);

  Made get(Value value) const;

private:
  Made getOfNumbers(Value value) const;
  Made combine(Operation *op) const;
  Made combineSum(Operation *op, ArrayRef<Made> in) const;

  Value weight;
  const StepData &data;
  const Offs &offs;
  DenseMap<Value, Made> known;
};

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_MAKEUP_H
