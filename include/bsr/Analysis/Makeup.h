// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the entries of values are made of, on the way from gradients and a
// weight to its update.

#ifndef BSR_ANALYSIS_MAKEUP_H
#define BSR_ANALYSIS_MAKEUP_H

#include "bsr/Analysis/StepData.h"
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
  OfOther
};

/// What values are made of, which are added in the order of the program.
class Makeup {
public:
  Makeup(Value weight, ArrayRef<Value> gradients, const StepData &data);

  /// Adds the results of entry-wise `op`.
  void add(Operation *op);

  Made get(Value value) const;

private:
  Made getOfNumbers(Value value) const;

  Value weight;
  const StepData &data;
  DenseMap<Value, Made> known;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_MAKEUP_H
