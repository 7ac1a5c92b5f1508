// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gradients that no entry-wise way leads from to a next value.

#ifndef BSR_GRADIENTS_HIDDENGRADIENTS_H
#define BSR_GRADIENTS_HIDDENGRADIENTS_H

#include "bsr/Gradients/GradientMatch.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// Finds gradients by what they multiply, where the entries of the next value
/// do not lead back to them.
class HiddenGradients {
public:
  HiddenGradients(func::FuncOp func, const Spaces &spaces);

  /// Products that are the gradient of the weight of `space`, or that of one
  /// example each: they multiply what the weight was multiplied with, along its
  /// rows and along its columns, depend on that product, and are in no
  /// weight's space. What multiplies one of these with something else that
  /// depends on the product is one, too, if nothing else is (`isPlain`: the
  /// space has a source that is), or if it is used as a gradient and no other
  /// weight was multiplied with the same; else it is not sure.
  SmallVector<HiddenGradient> find(const Space &space, const Forward &forward,
                                   bool isPlain) const;

  /// True if `value` multiplies what the weight was multiplied with along its
  /// rows, and along its columns.
  bool isProduct(Value value, const Forward &forward) const;

  /// True if all that the step makes of `value` is in `space`, as of gradients
  /// of examples that are only added up.
  static bool isOnlySummed(Value value, const Space &space);

  /// What else may be the gradient of a weight, or that of an example, of which
  /// the step looks rows up: operations that no space has, read the
  /// places, depend on the look-up, and have results with the weight's
  /// dimensions that are used as gradients. None of them is `known`.
  SmallVector<Operation *> findLookUps(const Space &space,
                                       const Forward &forward,
                                       ArrayRef<Value> known) const;

  /// The operations of the forward pass that combine the weight with data,
  /// entry by entry.
  SmallVector<Operation *> findMixtures(const BoundWeight &weight,
                                        const Forward &forward) const;

  /// What may be the gradient of a weight that data is combined with, entry by
  /// entry: sums over copies of it that are used as gradients, and numbers made
  /// of as many entries as it has that next values depend on.
  SmallVector<Operation *> findCombined(const BoundWeight &weight,
                                        const Space &space,
                                        const Forward &forward) const;

  /// What may be the gradient of a weight without a next value: operations with
  /// results of its shape that mix entries, have nothing to do with other
  /// parameters, and of which nothing but numbers is used, such as a norm, in
  /// the next values of others.
  SmallVector<Operation *> findCandidates(const BoundWeight &weight,
                                          const Forward &forward) const;

  /// The first operation, if there is one, whose result no space has,
  /// has the weight's dimensions, depends on products with it, is used as
  /// gradients are, and which the update depends on: what a step goes on
  /// computing with in a form that is none of those above.
  Operation *findUnknown(const BoundWeight &weight, const Space &space,
                         const Forward &forward) const;

private:
  /// Whose next values are made of a value with the entries of a weight, or
  /// some for each example, entry by entry and summed over examples: other
  /// parameters' (`hasOthers`) in this way (`hasNear`), or by a product. In the
  /// sums, examples may have a factor each if `takesFactors`.
  struct Updates {
    bool hasOwn = false, hasOthers = false, hasNear = false;
  };
  Updates findUpdates(Value value, const Space &space, bool takesFactors) const;

  /// True if the step uses `value` as it uses gradients: it sums functions of
  /// `count` of its entries up, or adds them to the weight's, perhaps after a
  /// sum over examples.
  bool isUsedAsGradient(Value value, int64_t count,
                        const Forward &forward) const;

  /// True if `product` may be a gradient of `weight`, or those of examples, by
  /// its shape: these have the weight's dimensions, too.
  static bool mayHaveEntriesOf(Value product, Value weight);

  /// What the owner of the operand of `read`, which is `factor`, is.
  std::optional<HiddenGradient> judge(const FactorRead &read,
                                      const Factor &factor, const Space &space,
                                      const Forward &forward,
                                      bool isPlain) const;

  /// True if the step inserts `value`, which has `entries`, where these are in
  /// a tensor of the shape of the weight of `space`.
  static bool isPlaced(Value value, const Entries &entries, const Space &space);
  /// What a value is that may be a gradient in several ways: the parts of a
  /// weight that the same is multiplied with have gradients of one form.
  static HiddenGradient choose(ArrayRef<HiddenGradient> candidates,
                               const Space &space);

  /// Whether another weight's gradient has the form of one.
  enum class Rival { None, Possible, Sure };
  /// Of the product that multiplies `operand`, a `factor` of the weight.
  Rival findRival(OpOperand &operand, const Factor &factor,
                  const Forward &forward) const;

  func::FuncOp func;
  const Spaces &spaces;
  /// Sums of one tensor.
  SmallVector<linalg::LinalgOp> sums;
  /// Operations with one tensor as their result, by how many elements that has,
  /// with their number in the order of the program.
  DenseMap<int64_t, SmallVector<std::pair<unsigned, linalg::LinalgOp>>> bySize;
  /// The operands of products, and the places of sums by place, by what they
  /// are, stripped, and by what they are slices of.
  DenseMap<Value, SmallVector<FactorRead, 1>> readers;
};

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_HIDDENGRADIENTS_H
