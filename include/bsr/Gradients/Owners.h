// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whose next values depend on what a step computes.

#ifndef BSR_GRADIENTS_OWNERS_H
#define BSR_GRADIENTS_OWNERS_H

#include "bsr/Gradients/Spaces.h"

namespace mlir::bsr {

/// The parameters whose next values depend on a value by more than numbers.
class Owners {
public:
  Owners(func::FuncOp func, const Spaces &spaces)
      : func(func), spaces(spaces) {}

  /// True if what `use` computes outside of space `number` reaches the next
  /// values of other parameters; `isOnly`: not this one's.
  bool reachesOthers(unsigned number, OpOperand &use, bool isOnly);
  /// True if it reaches the next values of this one.
  bool reachesOwn(unsigned number, OpOperand &use);

private:
  void find();
  /// Whose next values what `use` computes outside of space `number` reaches.
  BitVector getReached(unsigned number, OpOperand &use);

  func::FuncOp func;
  const Spaces &spaces;
  /// By the numbers of spaces; found when it is asked for.
  DenseMap<Value, BitVector> owners;
};

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_OWNERS_H
