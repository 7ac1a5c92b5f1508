// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Splits a block into operations with results in memory and operations that
// are computed at each use.

#ifndef BSR_ANALYSIS_MATERIALIZATION_H
#define BSR_ANALYSIS_MATERIALIZATION_H

#include "bsr/Dialect/TargetCosts.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::bsr {

/// The points of the iteration space of `op`.
int64_t getNumPoints(linalg::GenericOp op);

/// The roots of a block: the operations that a kernel computes before it reads
/// their results. Views, constants and cheap or singly used element-wise
/// operations are none: they are inlined, computed where they are used.
class Materialization {
public:
  Materialization(Block &block, TargetCosts costs);

  bool contains(Operation *op) const { return roots.contains(op); }

  /// True if `op` is computed where it is used.
  bool isInlined(Operation *op) const;

  /// True if `value` is computed before what reads it.
  bool isLeaf(Value value) const;

  /// What one element of the result of `op` costs with everything that is
  /// inlined into it, in simple operations.
  int64_t getCost(Operation *op) const { return costs.lookup(op); }

private:
  bool canInline(linalg::GenericOp op);
  int64_t addInlinedCosts(linalg::GenericOp op) const;
  /// The operations that use `value`, looking through views; true if one of
  /// them needs the value in memory.
  bool getConsumers(Value value, SetVector<Operation *> &consumers) const;

  TargetCosts limits;
  DenseSet<Operation *> roots;
  /// The element-wise operations that are inlined.
  DenseSet<Operation *> inlined;
  DenseMap<Operation *, int64_t> costs;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_MATERIALIZATION_H
