// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the gradients of block-sparse weights in a step.

#ifndef BSR_ANALYSIS_GRADIENTFINDER_H
#define BSR_ANALYSIS_GRADIENTFINDER_H

#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/Entries.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {

/// A weight that `bsr-bind` has bound.
struct BoundWeight {
  StringAttr name;
  ToDenseOp dense;
  /// Of its next value and those of its moments.
  SmallVector<SampleOp> samples;
};

/// What a product with a weight multiplies it with: a tensor without what only
/// reorders or rounds it, and the dimension that is summed, of the weight's
/// rows or columns; -1 if there is no such one.
struct Factor {
  Value value;
  int64_t dim = -1;
  bool isRow = false;
};

/// What products multiply a weight with, and what follows from it.
struct Forward {
  SmallVector<Factor> factors;
  /// The entry-wise functions of the weight.
  DenseSet<Value> values;
  SmallVector<Operation *> products;
  /// What depends on the products.
  Dependents after;
  /// Gradients that no entry-wise way leads from to a next value.
  SmallVector<Value> hidden;
  /// What brings entries together before a product reads them, so that they are
  /// not zero off the pattern; or null.
  Operation *mixing = nullptr;
};

/// The entries of a weight, or of another carried argument, on the way to its
/// next values.
struct Space {
  SmallVector<int64_t> shape;
  SmallVector<Value> roots; // next values
  llvm::MapVector<Value, SmallVector<Entries, 1>> entries;
  /// What enters: results of operations that are not entry-wise, and products
  /// of a column and a row.
  SmallVector<Value> sources;
  /// Entry-wise operations that also read a column and a row.
  SmallVector<Operation *> fused;
};

/// Finds the gradients of weights that `bsr-bind` has bound, as the description
/// of the pass says what they are. Weights go by their numbers in the list.
class GradientFinder {
public:
  /// Calls `report` with an operation and what it does for each gradient not
  /// found for sure.
  GradientFinder(
      func::FuncOp func, ArrayRef<BoundWeight> weights,
      function_ref<void(const BoundWeight &, Operation *, StringRef)> report);

  /// What may be the gradient of the weight, in the order in which it is
  /// computed.
  SmallVector<Value> getGradients(unsigned number);

  /// The entries of the weight, on the way to its next values.
  const Space &getSpace(unsigned number) const { return spaces[number]; }
  /// True for a gradient that no entry-wise way leads from to a next value.
  bool isHidden(unsigned number, Value value) const {
    return llvm::is_contained(forwards[number].hidden, value);
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
  /// True if `value` has entries of a parameter.
  bool isInSpace(Value value) const { return claims.contains(value); }

  /// True if `value` has entries of other weights where it has some of this, or
  /// entries of this in several ways.
  bool isClaimed(unsigned number, Value value) {
    const auto &own = spaces[number].entries.find(value)->second;
    if (own.size() != 1)
      return true;
    return llvm::any_of(claims.lookup(value), [&](unsigned other) {
      return other != number &&
             llvm::any_of(spaces[other].entries.find(value)->second,
                          [&](const Entries &entries) {
                            return entries.overlap(own[0]);
                          });
    });
  }

  /// True if `value` is more than entries of this weight.
  bool isShared(unsigned number, Value value) {
    return isClaimed(number, value) || activations[number].contains(value);
  }
  /// True if what `use`, of a value of the weight's space, computes is in the
  /// space too, or does not see its entries.
  bool isInside(unsigned number, OpOperand &use);
  /// True if what `use` computes outside of the weight's space reaches the next
  /// values of other parameters, by more than numbers; `isOnly`: not this
  /// one's.
  bool reachesOthers(unsigned number, OpOperand &use, bool isOnly);

private:
  void addSpace(const BoundWeight &weight);
  void addOthers();
  void addReaders();
  void walk(Space &space, ArrayRef<Value> roots, const Entries &whole);
  void findOuterProducts(Space &space);

  Forward getForward(const BoundWeight &weight);
  void sortInOrder(SmallVectorImpl<Value> &values) const;
  void findMixing(const BoundWeight &weight, Forward &forward);
  bool isOnlyOf(Value value, const DenseSet<Value> &values);
  void findHidden(unsigned number);
  void reportCandidates(unsigned number);
  bool readsFactor(Operation *op, ArrayRef<Factor> factors, unsigned depth);
  void addData();
  bool isData(BlockArgument arg);
  bool reachesData(Operation *op, const DenseSet<Value> &gradients,
                   bool &reachesGradient);

  /// True if an operand of `op` depends on data by more than numbers.
  bool readsData(Operation *op) {
    return llvm::any_of(op->getOperands(),
                        [&](Value operand) { return data.contains(operand); });
  }
  void findOwners();
  DenseSet<Value> getActivations(unsigned number);
  DenseSet<Value> getOpen(unsigned number);
  void reportData(unsigned number, const DenseSet<Value> &gradients);

  func::FuncOp func;
  ArrayRef<BoundWeight> weights;
  function_ref<void(const BoundWeight &, Operation *, StringRef)> report;
  DenseMap<Operation *, unsigned> order;
  DenseSet<Value> data;         // what depends on data by more than numbers
  SmallVector<Space, 0> spaces; // those of the weights, then of others
  SmallVector<Forward, 0> forwards;
  SmallVector<DenseSet<Value>, 0> opens, activations;
  /// The parameters whose next values depend on a value by more than numbers.
  DenseMap<Value, BitVector> owners;
  DenseMap<Value, SmallVector<unsigned, 1>> claims;
  /// The operands of structured operations by what they are, stripped.
  DenseMap<Value, SmallVector<std::pair<OpOperand *, SmallVector<int64_t>>>>
      readers;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_GRADIENTFINDER_H
