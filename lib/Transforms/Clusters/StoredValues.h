// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What of a step lies in memory, when, and what of it to compute again.

#ifndef BSR_LIB_TRANSFORMS_CLUSTERS_STOREDVALUES_H
#define BSR_LIB_TRANSFORMS_CLUSTERS_STOREDVALUES_H

#include "bsr/Analysis/LiveRanges.h"
#include "bsr/Analysis/Materialization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::bsr {

/// The values of a block that lie in memory, and when.
class StoredValues {
public:
  StoredValues(Block &block, TargetCosts costs);

  /// A value that a root computes: where it is computed and where roots read
  /// it, rising.
  struct Stored {
    int64_t begin;
    SmallVector<int64_t> reads;
    int64_t bytes;
    /// Where it is computed again; something else is computed again from it.
    std::optional<int64_t> again = {};
    bool isKept = false;
  };

  /// The stored values, in program order.
  llvm::MapVector<Value, Stored> values;
  const Materialization &getRoots() const { return roots; }
  /// The operation at which most bytes are live.
  Operation *getPeak() const { return ops[peak]; }

  /// The quotients q = e / s that a product needs behind the peak, and so lie
  /// in memory there, while e is read by what can compute it from q and s.
  SmallVector<linalg::GenericOp> getQuotients() const;

  /// Decides which values to compute again behind the peak, at a cost of at
  /// most `maxCost` simple operations an element, the last ones first.
  SmallVector<Value> choose(int64_t maxCost);

private:
  void addReads(Value value, Stored &stored);
  bool isReadInline(const Stored &stored) const;
  void choose(Value value, Stored &stored);
  bool isThere(Value value, int64_t at, int64_t depth = maxDepth) const;
  bool canComputeAt(Value value, int64_t at, int64_t depth) const;
  void readAgain(Value value, int64_t at);

  /// How many values are computed again for another one, each for the next.
  static constexpr int64_t maxDepth = 3;
  bool collectInputs(Operation *op, SetVector<Value> &inputs) const;

  Block &block;
  Materialization roots;
  int64_t extendedEighths, launchBytes, maxCost = 0;
  SmallVector<Operation *> ops;
  DenseMap<Operation *, int64_t> positions;
  int64_t peak = 0;
};

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_CLUSTERS_STOREDVALUES_H
