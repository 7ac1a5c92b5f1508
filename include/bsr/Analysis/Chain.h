// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chains of element-wise operations and reductions that one kernel computes, a
// work item all of them.

#ifndef BSR_ANALYSIS_CHAIN_H
#define BSR_ANALYSIS_CHAIN_H

#include "bsr/Analysis/MemoryReads.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// True if `op` can be part of a chain: element-wise, or a reduction of one
/// tensor.
bool isChainable(Operation *op);

/// Says in a sentence what is wrong with an operation.
using Report = llvm::function_ref<void(Operation *, const Twine &)>;
/// A report as an error.
void emitReport(Operation *op, const Twine &sentence);

/// Roots over one space of work items: the parallel loops that all of them
/// share, at which each reads what the others make. The other loops are rows,
/// which a work item goes through in nests, one after the other: sums over rows
/// are there when a nest is done, and nests that need none of each other's sums
/// and have the same rows are one.
///
/// A total is a sum over all shared loops, for each row. No root reads it: a
/// work item leaves its part in scratch memory, and when all of them are there,
/// they are summed in a fixed order.
///
/// Vectors run along the last shared loop, if it is the last one of every
/// tensor, or else along the last row.
///
/// A product may come first. The chain is what its work items do with the sums
/// that they have, element by element: the rows are dimensions of its result,
/// of a sparse one its features, the shared loops the other dimensions, the
/// last one the lanes, and there are no sums over rows. Of a product of which
/// the target can, roots may be transposed: their results have the features
/// last. Memory of a work item has the sums then that lie nowhere else.
class Chain {
public:
  /// True if `value`, the product's result or what a nest stores for later
  /// ones, may lie in the buffer of the result `place` until it has been read:
  /// it has its type, and is written after the value, where that is read last.
  bool canLieAt(Value value, Value place) const;
  /// The results that a nest reads after the one that makes them: they need
  /// buffers.
  DenseSet<Value> getStored() const;

  /// True if all that is read of `tensor` is read before something is written
  /// there, should a result that `isKept` lie in its buffer.
  bool isReadFirst(Value tensor, llvm::function_ref<bool(Value)> isKept) const;

  struct Root {
    /// (Accessors of operations are not const.)
    mutable linalg::GenericOp op;
    /// The loops of more than one iteration, outermost first.
    SmallVector<int64_t> order;
    SmallVector<Read> reads;
    /// For each loop, the shared loop that it is, or -1.
    SmallVector<int64_t> shared;

    bool isTotal = false;
    /// The nest that it is in.
    int64_t nest = 0;

    bool isReduction() const { return op.getNumReductionLoops() != 0; }
    bool isSum() const { return isReduction() && !isTotal; }
  };
  struct Nest {
    /// The extents of the rows.
    SmallVector<int64_t> extents;
    SmallVector<const Root *> roots;
  };

  /// The roots, without the product.
  ArrayRef<Root> getRoots() const { return roots; }
  /// The product that the roots follow, or null, and the dimensions of its
  /// result that are rows.
  Value getProduct() const { return product; }
  SmallVector<int64_t> getProductRows() const;
  /// True if `root`, which follows a product, makes results that have features
  /// last, across the lanes.
  bool isTransposed(const Root &root) const;
  bool hasTransposed() const {
    return llvm::any_of(roots, [&](const Root &r) { return isTransposed(r); });
  }
  /// The extents of the shared loops; 1 for one that is a row now.
  ArrayRef<int64_t> getExtents() const { return extents; }
  /// The shared loop of the lanes, or -1 if they run along rows.
  int64_t getLanes() const { return lanes; }
  /// The loops of `root` that are rows, outermost first.
  SmallVector<int64_t> getRows(const Root &root) const;
  SmallVector<Nest> getNests() const;

protected:
  static std::optional<Root> getRoot(linalg::GenericOp op, IsLeaf isLeaf);
  /// Makes the result of `op` the product: all of its dimensions but the
  /// features of a sparse one are shared loops.
  void setProduct(Operation *op, TargetAttrInterface target);
  /// For each dimension of `result`, which `root` makes, its shared loop, or
  /// -1.
  SmallVector<int64_t> getSharedLoops(const Root &root, OpResult result) const;
  SmallVector<int64_t> getRowExtents(const Root &root) const;
  /// The root that makes `tensor`, or null.
  const Root *getProducer(Value tensor) const;
  bool isAligned(const Root &reader, const Read &access,
                 const Root &producer) const;

  /// Chooses where vectors run; false, and a report, if the loops do not lie in
  /// memory so that they can, or a work item has not all that it needs.
  bool setLanes(Report report);
  /// Reports a root that needs more of the product than its work items have.
  bool followsProduct(Report report) const;

  /// The result of the product that the roots follow, if there is one.
  Value product;
  /// Roots may be transposed.
  bool transposes = false;
  std::vector<Root> roots;
  /// The extents of the shared loops; 1 for one that is a row now.
  SmallVector<int64_t> extents;
  /// The shared loop of the lanes, or -1 if they run along rows.
  int64_t lanes = -1;

private:
  bool verifyReduction(const Root &root, Report report) const;
  bool isOfItem(const Root &reader, const Read &access, const Root &writer,
                OpResult result, bool isOneRow) const;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_CHAIN_H
