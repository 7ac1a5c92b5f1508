// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products that have the form of a weight's gradient.

#ifndef BSR_ANALYSIS_GRADIENTMATCH_H
#define BSR_ANALYSIS_GRADIENTMATCH_H

#include "bsr/Analysis/Forward.h"

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

/// Matches the owner of `operand`, which is `factor` with dimensions `dims`,
/// with the gradient of what `factor` multiplied: it has the dimensions of
/// that, those of the factor from there and the others from something else, and
/// perhaps those of examples. Nothing if it has not.
std::optional<GradientMatch> matchGradient(const Forward &forward,
                                           const Factor &factor,
                                           OpOperand &operand,
                                           ArrayRef<int64_t> dims);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_GRADIENTMATCH_H
