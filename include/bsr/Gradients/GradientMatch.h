// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that have the form of a weight's gradient.

#ifndef BSR_GRADIENTS_GRADIENTMATCH_H
#define BSR_GRADIENTS_GRADIENTMATCH_H

#include "bsr/Gradients/WeightUses.h"

namespace mlir::bsr {

/// How an operation reads a factor of products with a weight.
struct GradientMatch {
  /// Which entries of the weight its result has, if that is known.
  std::optional<Entries> entries;
  /// True if it also reads, along the weight's other dimensions, what the
  /// weight was multiplied with along these.
  bool isOfBoth = false;
  /// True for a weight of one row or column: sums of activations that something
  /// weighs have the same form.
  bool isThin = false;
};

/// An operand that is a tensor, stripped, or a slice of it: `dims[i]` is the
/// tensor's dimension that dimension `i` is, or -1.
struct FactorRead {
  /// The operand has `size` entries from `offset` on along `dim`; where that is
  /// -1, a part along any dimension.
  struct Cut {
    int64_t dim, offset, size;
  };

  OpOperand *operand;
  SmallVector<int64_t> dims;
  SmallVector<Cut, 1> cuts;
};

/// Matches the owner of the operand of `read`, which is `factor`, with the
/// gradient of what `factor` multiplied: it has the dimensions of that, those
/// of the factor from there and the others from something else, and perhaps
/// those of examples. Nothing if it has not.
std::optional<GradientMatch> matchGradient(const Forward &forward,
                                           const Factor &factor,
                                           const FactorRead &read);

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_GRADIENTMATCH_H
