// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is known of integers from how they are computed.

#ifndef BSR_ANALYSIS_INTEGERRANGES_H
#define BSR_ANALYSIS_INTEGERRANGES_H

#include "mlir/IR/Value.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

namespace mlir::bsr {

/// The ranges of the integers of a step: of numbers, and of all entries of
/// tensors. Looks through operations of linalg and knows the loops that an
/// index is of. Each is computed once, where it is asked for.
class IntegerRanges {
public:
  /// The range of `value`, an integer or an index, or a tensor of these.
  ConstantIntRanges get(Value value);

private:
  void compute(Value value);
  ConstantIntRanges computeArgument(BlockArgument argument) const;
  void computeResults(Operation *op);
  ConstantIntRanges getKnown(Value value) const;
  bool isKnown(Value value) const { return known.contains(value); }

  DenseMap<Value, ConstantIntRanges> known;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_INTEGERRANGES_H
