// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients that no entry-wise way leads from to a next value.

#ifndef BSR_ANALYSIS_HIDDENGRADIENTS_H
#define BSR_ANALYSIS_HIDDENGRADIENTS_H

#include "bsr/Analysis/Forward.h"

namespace mlir::bsr {

/// Finds gradients by what they multiply, where the entries of the next value
/// do not lead back to them.
class HiddenGradients {
public:
  HiddenGradients(func::FuncOp func, const Spaces &spaces);

  /// A gradient, and which entries of the weight it has.
  struct Gradient {
    Value value;
    Entries entries;
  };
  /// Products that are the gradient of `weight`, whose space is `space`: they
  /// multiply what the weight was multiplied with, depend on that product, and
  /// sum over what they do not have in common with the weight; its next value,
  /// if it has one, depends on them by more than numbers, and they are nobody
  /// else's gradient.
  SmallVector<Gradient> find(const BoundWeight &weight, const Space &space,
                             const Forward &forward) const;

  /// What may be the gradient of a weight without a next value: operations with
  /// results of its shape that mix entries, have nothing to do with other
  /// parameters, and of which nothing but numbers is used, such as a norm, in
  /// the next values of others.
  SmallVector<Operation *> findCandidates(const BoundWeight &weight,
                                          const Forward &forward) const;

private:
  func::FuncOp func;
  const Spaces &spaces;
  /// The operands of structured operations by what they are, stripped.
  DenseMap<Value, SmallVector<std::pair<OpOperand *, SmallVector<int64_t>>>>
      readers;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_HIDDENGRADIENTS_H
