// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the gradients of block-sparse weights in a step.

#ifndef BSR_GRADIENTS_GRADIENTFINDER_H
#define BSR_GRADIENTS_GRADIENTFINDER_H

#include "bsr/Gradients/Activations.h"
#include "bsr/Gradients/GradientMarks.h"
#include "bsr/Gradients/HiddenGradients.h"

namespace mlir::bsr {

/// Finds the gradients of weights that `bsr-bind` has bound, as the description
/// of the pass says what they are. Weights go by their numbers in the list.
class GradientFinder {
public:
  /// Calls `report` with an operation and what it does for each gradient not
  /// found for sure. Of weights with `marks` these alone are the gradients.
  GradientFinder(
      func::FuncOp func, ArrayRef<BoundWeight> weights,
      ArrayRef<GradientMark> marks,
      function_ref<void(const BoundWeight &, Operation *, StringRef)> report);

  /// What may be the gradient of the weight, in the order in which it is
  /// computed. Sums of it and of what a penalty's derivative leaves where the
  /// weight is zero come behind it.
  SmallVector<Value> getGradients(unsigned number);

  const Spaces &getSpaces() const { return spaces; }
  /// The gradients that the program marks as the weight's, if it marks any.
  ArrayRef<HiddenGradient> getMarked(unsigned number) const {
    return marked[number];
  }
  /// True for a gradient that no entry-wise way leads from to a next value.
  bool isHidden(unsigned number, Value value) const {
    return llvm::is_contained(hidden[number], value);
  }
  /// True for a value of the weight's space that something outside of it sees.
  bool isOpen(unsigned number, Value value) const {
    return opens[number].contains(value);
  }
  /// True for a value of the weight's space that is a gradient of activations,
  /// too.
  bool isActivation(unsigned number, Value value) const {
    return activations[number].contains(value);
  }
  /// True if `value` is more than entries of this weight.
  bool isShared(unsigned number, Value value) const {
    return spaces.isClaimed(number, value) ||
           (isActivation(number, value) &&
            !hiddenGradients.isProduct(value, forwards[number]));
  }
  /// True if what `use` computes outside of the weight's space goes back to
  /// other parameters, or to this one through activations, by more than
  /// numbers.
  bool goesBack(unsigned number, OpOperand &use) {
    return owners.reachesOthers(number, use, /*isOnly=*/false) ||
           (isAdded[number] && comesBack(number, use, spaces, data, owners));
  }

private:
  bool isHiddenElsewhere(unsigned number, Value value) const;
  SmallVector<Value> getFunctions(unsigned number) const;
  SmallVector<Value> findPenalties(unsigned number, ArrayRef<Value> gradients);

  func::FuncOp func;
  ArrayRef<BoundWeight> weights;
  function_ref<void(const BoundWeight &, Operation *, StringRef)> report;
  Spaces spaces;
  StepData data;
  HiddenGradients hiddenGradients;
  Owners owners;
  SmallVector<Forward, 0> forwards;
  /// For each weight, whether it is added to activations.
  SmallVector<bool> isAdded;
  SmallVector<SmallVector<Value>, 0> hidden;
  SmallVector<SmallVector<HiddenGradient>, 0> marked;
  SmallVector<DenseSet<Value>, 0> opens, activations;
};

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_GRADIENTFINDER_H
