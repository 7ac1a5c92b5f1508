// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What products multiply a weight with.

#ifndef BSR_ANALYSIS_FORWARD_H
#define BSR_ANALYSIS_FORWARD_H

#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/Spaces.h"
#include "bsr/Analysis/StepData.h"

namespace mlir::bsr {

/// What a product with a weight multiplies it with: a tensor without what only
/// reorders or rounds it, and the dimension that is summed, of the weight's
/// rows or columns; -1 if there is no such one.
struct Factor {
  Value value;
  int64_t dim = -1;
  bool isRow = false;
};

/// A gradient, and which entries of the weight it has.
struct HiddenGradient {
  Value value;
  Entries entries;
  bool isSure = true;
};

/// What products multiply a weight with, as it is or as an entry-wise function
/// of it, and what follows from it. The step may make weights of the weight and
/// of `gradients`, which are masked, and multiply these as well.
struct Forward {
  Forward(const BoundWeight &weight, const StepData &data, const Spaces &spaces,
          ArrayRef<HiddenGradient> gradients = {});

  /// True if `op` reads a factor, or sums up what does, by way of `depth` sums
  /// at most.
  bool readsFactor(Operation *op, unsigned depth) const;

  SmallVector<Factor> factors;
  /// The entry-wise functions of the weight.
  DenseSet<Value> values;
  SmallVector<Operation *> products;
  /// What depends on the products.
  Dependents after;
  /// What brings entries together before a product reads them, so that they are
  /// not zero off the pattern; or null.
  Operation *mixing = nullptr;

private:
  void findFactors(const BoundWeight &weight, const StepData &data,
                   ArrayRef<HiddenGradient> gradients);
  void findMixing(const BoundWeight &weight, const StepData &data,
                  const Spaces &spaces);
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_FORWARD_H
