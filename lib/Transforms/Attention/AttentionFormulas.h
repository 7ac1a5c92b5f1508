// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compares what a program computes between products with what the formulas of
// attention give.
//
// Programs write a softmax and its gradient in many ways. What is compared is
// not how they are written but what they compute: the row-wise operations
// between the products are evaluated for rows of random numbers, and must give
// what the formulas of attention give, to 9 digits. None of them may compare
// scores by their size: they are analytic then, and functions that agree around
// 0 agree everywhere.

#ifndef BSR_TRANSFORMS_ATTENTION_ATTENTIONFORMULAS_H
#define BSR_TRANSFORMS_ATTENTION_ATTENTIONFORMULAS_H

#include "AttentionScores.h"

namespace mlir::bsr {

/// The formulas of an attention whose scores were followed.
class AttentionFormulas {
public:
  AttentionFormulas(AttentionScores &scores)
      : scores(scores), found(scores.found) {}

  /// What a product or a sum reads, of random rows.
  enum class Formula {
    /// Probabilities; whether a row without anything is zero is set.
    Probability,
    /// Probabilities times the factor.
    Dropped,
    /// Gradients of the product, or of what is exponentiated.
    ProductGradient,
    ScoreGradient
  };

  /// True if what `site` reads is what `formula` gives.
  bool matches(const AttentionScores::Site &site, Formula formula);

private:
  bool isSmooth(const AttentionScores::Site &site);
  bool isSmooth(linalg::GenericOp op);
  bool depends(Value value);

  AttentionScores &scores;
  AttentionMatch &found;
  /// Whether values depend on the scores, or on the probabilities' gradient.
  DenseMap<Value, bool> dependent;
};

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_ATTENTION_ATTENTIONFORMULAS_H
