// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Steps that add up gradients over several runs and update in the last one.

#ifndef BSR_LIB_TRANSFORMS_PARALLEL_ACCUMULATION_H
#define BSR_LIB_TRANSFORMS_PARALLEL_ACCUMULATION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace mlir::bsr {

/// What `op` adds up entry by entry, two tensors of the type of its result;
/// nothing if it does something else.
std::optional<std::pair<Value, Value>> getSummands(Operation *op);

/// True if `op` has the entries of its first operand in another order or shape.
bool isRearranged(Operation *op);

/// A run of a step whose argument of role `apply` is 0: what depends on that
/// argument alone is known, and so is which operand is selected by it.
class RunWithoutUpdate {
public:
  explicit RunWithoutUpdate(func::FuncOp step);

  /// False if the step has no such argument: then every run updates.
  bool exists() const { return bool(apply); }

  /// True if `value` depends on one of `sources`.
  bool dependsOn(Value value, const DenseSet<Value> &sources);

private:
  /// What `value` is, of a tensor that all entries are, or null if this is not
  /// known.
  Attribute evaluate(Value value);
  Attribute compute(Value value);
  bool find(Value value);

  BlockArgument apply;
  DenseMap<Value, Attribute> known;
  const DenseSet<Value> *sources = nullptr;
  DenseMap<Value, bool> found; // whether they depend on `sources`
};

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_PARALLEL_ACCUMULATION_H
