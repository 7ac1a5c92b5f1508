// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What in a step depends on its data.

#ifndef BSR_ANALYSIS_STEPDATA_H
#define BSR_ANALYSIS_STEPDATA_H

#include "bsr/Analysis/Dependents.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mlir::bsr {

/// What depends on the data of a step, the arguments that it neither carries
/// nor stores in blocks.
class StepData {
public:
  explicit StepData(func::FuncOp func);

  bool isData(BlockArgument arg) const;

  /// True if `value` depends on data by more than numbers.
  bool contains(Value value) const { return data.contains(value); }
  /// True if an operand of `op` does.
  bool isReadBy(Operation *op) const {
    return llvm::any_of(op->getOperands(),
                        [&](Value operand) { return contains(operand); });
  }

  /// True if `number` depends on data, as a mean of a gradient does.
  bool enters(Value number) const {
    Operation *op = number.getDefiningOp();
    return op && (isReadBy(op) || behind.contains(op));
  }

  /// True if `value` depends on `values`, and on no data in another way.
  bool isOnlyOf(Value value, const DenseSet<Value> &values) const;

  /// True if `op` depends on data by more than numbers and other than through
  /// `gradients`; says whether it depends on one of these.
  bool reaches(Operation *op, const DenseSet<Value> &gradients,
               bool &reachesGradient) const;

private:
  func::FuncOp func;
  DenseSet<Value> data;
  /// What depends on data, by numbers too.
  Dependents behind;
};

/// True for a gather: it looks entries up, and mixes none.
bool isGather(Operation *op);

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_STEPDATA_H
