// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows the scores of a product through all that is computed of them.

#ifndef BSR_TRANSFORMS_ATTENTION_ATTENTIONSCORES_H
#define BSR_TRANSFORMS_ATTENTION_ATTENTIONSCORES_H

#include "AttentionMatch.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {

/// True if `op` is a sum of products of two tensors that starts from zero.
bool isProduct(linalg::GenericOp op);

/// The number that all entries of `value`, a tensor or a scalar, are.
std::optional<double> getConstant(Value value);

/// The operations of `block` of whose results, element by element changed, a
/// maximum is taken: what may be between a product and its softmax.
DenseSet<Operation *> findMaximized(Block &block);

/// All that is computed from the scores of one product row by row, and what
/// the dimensions of it are to an attention.
class AttentionScores {
public:
  /// A product that reads what is computed from the scores.
  struct Site {
    linalg::GenericOp op;
    unsigned operand;
    LabelledTensor read;
  };

  /// Notes in `obstacle` what is in the way.
  AttentionScores(linalg::GenericOp product,
                  const DenseSet<Operation *> &maximized,
                  AttentionObstacle &obstacle)
      : maximized(maximized), obstacle(obstacle) {
    found.scores = product;
  }

  /// Follows the scores through the rest of their block, names the dimensions
  /// of what is computed and finds what is exponentiated. False if the product
  /// is not one of queries and keys, or something is in the way.
  bool follow();

  /// Notes that `op` is in the way, but of products without a batch dimension,
  /// which are logits rather than attention. False.
  bool stop(Operation *op, const Twine &reason);

  /// Operand `operand`, or the result, of `op`, whose loops are `loops`.
  LabelledTensor getOperand(linalg::GenericOp op, unsigned operand,
                            const Labels &loops) const;
  LabelledTensor getResult(linalg::GenericOp op, const Labels &loops) const;

  /// Takes what the read of `site` is made of element by element, from what are
  /// no probabilities themselves, into the factor: replaces the read by what is
  /// multiplied. False if there is nothing more.
  bool peelFactor(Site &site);

  /// What is known of the attention: queries and keys, the extents of
  /// dimensions, and what is added to the scores.
  AttentionMatch found;
  /// All that is computed from the scores row by row.
  llvm::MapVector<Value, Labels> labels;
  DenseSet<Operation *> rowReductions;
  SmallVector<Site> sites;
  /// Sums over batch dimensions of what is computed from the scores.
  SmallVector<Site> sums;
  /// Other products of queries and keys: what the dimensions of each are.
  llvm::MapVector<Operation *, Labels> products;

private:
  // Following (AttentionScores.cpp).
  bool follow(Operation *op);
  bool followGeneric(linalg::GenericOp op);
  bool isBatchSum(linalg::GenericOp op, const Labels &loops);

  // Naming dimensions (AttentionDims.cpp).
  std::optional<unsigned> findKeyDim();
  bool setDims(unsigned keyDim);
  std::optional<Labels> getLoopLabels(linalg::GenericOp op);
  /// True if `loops` says what each loop of `op` is, but for those of one
  /// iteration.
  static bool areNamed(linalg::GenericOp op, const Labels &loops);
  bool nameDims();
  void findGradient(Value value, const Labels &labels);

  // What is exponentiated (AttentionTerms.cpp).
  void findTerms();
  bool addTerm(linalg::GenericOp op, Value score);

  const DenseSet<Operation *> &maximized;
  AttentionObstacle &obstacle;
  /// What products were looked for behind: a value may be read many times
  /// (random bits, of themselves).
  DenseSet<Value> searched;
};

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_ATTENTION_ATTENTIONSCORES_H
