// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the entries of values are made of, on the way from gradients and a
// weight to its update.

#ifndef BSR_GRADIENTS_PROVENANCE_H
#define BSR_GRADIENTS_PROVENANCE_H

#include "bsr/Analysis/StepData.h"
#include "bsr/Gradients/OffPattern.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// What entries are functions of.
enum class Origin {
  Numbers,   ///< Numbers alone: the same everywhere.
  Means,     ///< Numbers that data enters, such as means of gradients.
  Weight,    ///< The weight's entries, or these after a step.
  OfWeight,  ///< Functions of these.
  Gradients, ///< Gradients, linearly.
  Sums,      ///< Gradients, and what is added to them.
  Functions, ///< Other functions of gradients and the weight alone.
  Other
};

/// What values are made of, which are added in the order of the program.
class Provenance {
public:
  /// `offs` says what they are off the pattern.
  Provenance(Value weight, ArrayRef<Value> gradients, const StepData &data,
             const Offs &offs);

  /// Adds the results of entry-wise `op`, of which `offs` has all values.
  void add(Operation *op);

  Origin get(Value value) const;

private:
  Origin getOfNumbers(Value value) const;
  Origin combine(Operation *op) const;
  Origin combineSum(Operation *op, ArrayRef<Origin> in) const;

  Value weight;
  const StepData &data;
  const Offs &offs;
  DenseMap<Value, Origin> known;
};

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_PROVENANCE_H
