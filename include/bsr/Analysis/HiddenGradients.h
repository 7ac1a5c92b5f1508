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

  /// Products that are the gradient of the weight of `space`, or that of one
  /// example each: they multiply what the weight was multiplied with, along its
  /// rows and along its columns, depend on that product, and are in nobody's
  /// space. What multiplies one of these with something else that depends on
  /// the product is one, too, if nothing else is (`isPlain`: the space has a
  /// source that is), or if it is used as a gradient and no other weight was
  /// multiplied with the same; else it is not sure.
  SmallVector<HiddenGradient> find(const Space &space, const Forward &forward,
                                   bool isPlain) const;

  /// True if `value` multiplies what the weight was multiplied with along its
  /// rows, and along its columns.
  bool isProduct(Value value, const Space &space, const Forward &forward) const;

  /// What may be the gradient of `weight`, or that of an example, of which the
  /// step looks rows up: operations that nobody's space has, read what the
  /// look-up reads, depend on it, and have results of the weight's shape that
  /// are used as gradients.
  SmallVector<Operation *> findLookUps(const BoundWeight &weight,
                                       const Space &space,
                                       const Forward &forward) const;

  /// What may be the gradient of a weight without a next value: operations with
  /// results of its shape that mix entries, have nothing to do with other
  /// parameters, and of which nothing but numbers is used, such as a norm, in
  /// the next values of others.
  SmallVector<Operation *> findCandidates(const BoundWeight &weight,
                                          const Forward &forward) const;

private:
  /// A product with the shape of a gradient: which entries it has, and whether
  /// it multiplies factors along both of the weight's dimensions.
  struct Match {
    Entries entries;
    bool isOfBoth;
  };
  /// How the owner of `operand`, which is `factor` with these dimensions,
  /// multiplies it.
  std::optional<Match> match(const Space &space, const Forward &forward,
                             const Factor &factor, OpOperand &operand,
                             ArrayRef<int64_t> dims) const;

  /// Whether another weight's gradient has the form of one.
  enum class Rival { None, Possible, Sure };
  /// Of product `op`, which multiplies `operand`, a `factor` of the weight.
  Rival findRival(Operation *op, OpOperand &operand, const Factor &factor,
                  const Forward &forward) const;

  func::FuncOp func;
  const Spaces &spaces;
  /// The operands of structured operations by what they are, stripped.
  DenseMap<Value, SmallVector<std::pair<OpOperand *, SmallVector<int64_t>>>>
      readers;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_HIDDENGRADIENTS_H
