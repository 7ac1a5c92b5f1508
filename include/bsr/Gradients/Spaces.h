// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which values have entries of a parameter, on the way to its next values.

#ifndef BSR_GRADIENTS_SPACES_H
#define BSR_GRADIENTS_SPACES_H

#include "bsr/Analysis/EntryMaps.h"
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

/// The spaces of the weights of a step, which go by their numbers in the list,
/// then those of its other parameters.
class Spaces {
public:
  Spaces(func::FuncOp func, ArrayRef<BoundWeight> weights);

  unsigned size() const { return spaces.size(); }
  Space &operator[](unsigned number) { return spaces[number]; }
  const Space &operator[](unsigned number) const { return spaces[number]; }

  /// True if `value` has entries of a parameter.
  bool contains(Value value) const { return claims.contains(value); }
  /// True if `value` has entries of others where it has some of space `number`,
  /// or entries of this in several ways.
  bool isClaimed(unsigned number, Value value) const;
  /// True if what `use`, of a value of space `number`, computes is in the space
  /// too, or does not see its entries.
  bool isInside(unsigned number, OpOperand &use) const;

  /// The values of space `number` that `gradients` enter, entry by entry: not
  /// those that depend on them by numbers or sums alone.
  DenseSet<Value> getCarriers(unsigned number, ArrayRef<Value> gradients) const;

  /// Sorts values in the order of the program, in which operands are known
  /// first.
  void sortInOrder(SmallVectorImpl<Value> &values) const;

private:
  void addSpace(const BoundWeight &weight);
  void addOthers();
  void walk(Space &space, ArrayRef<Value> roots, const Entries &whole);
  void findOuterProducts(Space &space);

  func::FuncOp func;
  ArrayRef<BoundWeight> weights;
  DenseMap<Operation *, unsigned> order;
  SmallVector<Space, 0> spaces;
  DenseMap<Value, SmallVector<unsigned, 1>> claims;
};

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_SPACES_H
