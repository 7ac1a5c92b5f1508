// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds what work items of a chain can share.

#ifndef BSR_ANALYSIS_CHAINMATCHER_H
#define BSR_ANALYSIS_CHAINMATCHER_H

#include "bsr/Analysis/Chain.h"

namespace mlir::bsr {

/// A chain that roots are added to: as many loops are shared as all of them
/// can, and each root is in the first nest that it can be in.
class ChainMatcher : public Chain {
public:
  /// The chain of `roots`, if they are one. The first may be a product of which
  /// `target` can run the others as an epilogue.
  static std::optional<ChainMatcher>
  match(ArrayRef<Operation *> roots, IsLeaf isLeaf, TargetAttrInterface target);

  /// Makes `op` the last root, if it fits.
  bool add(linalg::GenericOp op, IsLeaf isLeaf);

private:
  bool add(Root root);
  void startWith(Operation *op, TargetAttrInterface target);
  /// Makes the shared loop `number` a row.
  void drop(int64_t number);
  /// Divides the roots into nests.
  void setNests();
  /// True if a shared loop that has no lanes lies inside of a row.
  bool hasLoopInRow() const;
  /// True if roots are sums alone, or one of them goes on with a sum: rows that
  /// are gone through one after the other are gone through again.
  bool isOfSums() const;

  /// For each dimension of what the roots read and make, its shared loop, or
  /// -1.
  DenseMap<Value, SmallVector<int64_t>> tensors;
  /// Threads that share a row, not one, go through it.
  bool keepsRowsInside = false;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_CHAINMATCHER_H
