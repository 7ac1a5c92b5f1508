// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chains of element-wise operations and reductions that one kernel computes, a
// work item all of them.

#ifndef BSR_ANALYSIS_CHAIN_H
#define BSR_ANALYSIS_CHAIN_H

#include "bsr/Analysis/Reads.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

namespace mlir::bsr {

/// True if `op` can be part of a chain: element-wise, or a reduction of one
/// tensor.
bool isChainable(Operation *op);

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
/// last one the lanes, and there are no sums over rows.
class Chain {
public:
  /// Makes `op` the last root, if it fits.
  bool add(linalg::GenericOp op, IsLeaf isLeaf);

  /// The chain of `roots`, if they are one. The first may be a product of which
  /// `target` can run the others as an epilogue.
  static std::optional<Chain> match(ArrayRef<Operation *> roots, IsLeaf isLeaf,
                                    TargetAttrInterface target);

  /// For each of `values`, the product's result or what a nest stores for later
  /// ones, the result in whose buffer it lies until it has been read: one of
  /// its type, that is written where the value is read last, and nobody else's
  /// place. Null if there is none.
  SmallVector<Value> getPlaces(ArrayRef<Value> values,
                               llvm::function_ref<bool(Value)> isResult) const;
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
  /// The extents of the shared loops; 1 for one that is a row now.
  ArrayRef<int64_t> getExtents() const { return extents; }
  /// The shared loop of the lanes, or -1 if they run along rows.
  int64_t getLanes() const { return lanes; }
  /// The loops of `root` that are rows, outermost first.
  SmallVector<int64_t> getRows(const Root &root) const;
  SmallVector<Nest> getNests() const;

private:
  static std::optional<Root> getRoot(linalg::GenericOp op, IsLeaf isLeaf);
  bool add(Root root);
  void setProduct(Operation *op);
  /// True if the roots need no more of the product than its work items have.
  bool followsProduct() const;
  /// The root that makes `tensor`, or null.
  const Root *getProducer(Value tensor) const;
  /// Makes the shared loop `number` a row.
  void drop(int64_t number);
  /// Chooses where vectors run; false if the loops do not lie in memory so that
  /// they can.
  bool setLanes();
  bool isAligned(const Root &reader, const Read &access,
                 const Root &producer) const;
  bool isOfItem(const Root &reader, const Read &access, const Root &writer,
                OpResult result, bool isOneRow) const;
  /// The result of the product that the roots follow, if there is one.
  Value product;
  std::vector<Root> roots;
  /// The extents of the shared loops; 1 for one that is a row now.
  SmallVector<int64_t> extents;
  /// The shared loop of the lanes, or -1 if they run along rows.
  int64_t lanes = -1;
  /// For each dimension of what the roots read and make, its shared loop, or
  /// -1.
  DenseMap<Value, SmallVector<int64_t>> tensors;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_CHAIN_H
