// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns tensor values into loads, vectors and loops on demand: the core of
// bsr-emit.

#ifndef BSR_CODEGEN_CPU_EMITTER_H
#define BSR_CODEGEN_CPU_EMITTER_H

#include "bsr/Codegen/CPU/CPUTarget.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <map>

namespace mlir::bsr {

/// A position along one dimension: `base + offset`, and, if `lanes`, one more
/// for each lane of a vector. `align` divides `base + offset`.
struct Index {
  Value base;
  int64_t offset = 0;
  bool lanes = false;
  int64_t align = 1;

  static Index constant(int64_t offset);
  static Index of(Value base, bool lanes = false, int64_t align = 1) {
    return {base, 0, lanes, align};
  }
  /// The same position without the lanes.
  Index scalar() const { return {base, offset, false, align}; }
  Index plus(int64_t more) const;
  bool isConstant() const { return !base && !lanes; }
  bool operator==(const Index &other) const {
    return base == other.base && offset == other.offset && lanes == other.lanes;
  }
};

/// The buffer of `tensor`, `[..., rows, lanes]`, in panels:
/// `[..., lanes / panel, rows, panel]`. Rows that nobody uses follow where
/// panels of a power of two of bytes would share the sets of a cache: a block
/// of rows would push itself out, panel after panel.
RankedTensorType getPanelType(RankedTensorType tensor, int64_t panel);

/// Emits loops and vectors that compute elements of tensors on demand. A tensor
/// with a buffer is loaded from it; an element-wise operation, a view or a
/// constant without one is computed where it is used, through its indexing
/// maps, so that transposes, broadcasts and slices cost nothing.
class Emitter {
public:
  Emitter(OpBuilder &builder, Location loc, CPUTarget target)
      : b(builder), loc(loc), target(target) {}

  OpBuilder &b;
  Location loc;
  CPUTarget target;

  /// Lanes of the vectors emitted now; 1 emits scalars.
  int64_t width = 1;

  /// Lanes of the panels that buffers are cut in; 0 if none is.
  int64_t panel = 0;

  /// `memref` has the shape of `tensor`, as it is or in panels.
  void setBuffer(Value tensor, Value memref) { buffers[tensor] = memref; }
  Value getBuffer(Value tensor) const { return buffers.lookup(tensor); }

  /// The element (or `width` elements, if an index has lanes) of `tensor` at
  /// `at`.
  Value read(Value tensor, ArrayRef<Index> at);

  /// Makes `value` what `read` finds at `at`, in this scope. It may have a
  /// wider type than the tensor, if all that `evaluate` does with it is to
  /// widen it.
  void remember(Value tensor, ArrayRef<Index> at, Value value) {
    memory[getKey(tensor, at)] = value;
  }

  /// What the body of `op` yields at the point `loops` of its iteration space.
  /// `accumulators` stand for the init operands; empty, which a reduction is
  /// not evaluated with, reads the inits.
  SmallVector<Value> evaluate(linalg::GenericOp op, ArrayRef<Index> loops,
                              ValueRange accumulators = {});

  /// The element, or the lanes, of the tensor in `memref` at `at`.
  Value load(Value memref, ArrayRef<Index> at);
  void store(Value value, Value memref, ArrayRef<Index> at);
  /// Asks for the cache lines of `count` elements of `tensor` from `at` on, if
  /// the tensor has a buffer or is a view of one that has.
  void prefetch(Value tensor, ArrayRef<Index> at, int64_t count);

  /// Memory of a work item.
  Value allocate(ArrayRef<int64_t> shape, Type type);

  /// A loop from `low` to `high`; `body` gets the induction variable and the
  /// carried values and returns their next values.
  using Body = llvm::function_ref<SmallVector<Value>(Value, ValueRange)>;
  SmallVector<Value> loop(Value low, Value high, int64_t step, ValueRange inits,
                          Body body);
  /// A loop over `[0, extent)`, without a loop if there is one iteration.
  SmallVector<Value>
  loop(int64_t extent, ValueRange inits,
       llvm::function_ref<SmallVector<Value>(Index, ValueRange)> body);
  /// Nested loops over `extents`.
  SmallVector<Value> nest(
      ArrayRef<int64_t> extents, ValueRange inits,
      llvm::function_ref<SmallVector<Value>(ArrayRef<Index>, ValueRange)> body);

  /// Covers `[low, high)` with chunks: as many of `lanes` elements as fit, in a
  /// loop, then powers of two below. `body` runs with `width` set. `high - low`
  /// is `extent`; `low` is a multiple of `lanes`.
  void forLanes(Value low, int64_t extent, int64_t lanes,
                llvm::function_ref<void(Index)> body);

  /// Emits `body` with memories of its own of what was computed.
  void scope(llvm::function_ref<void()> body);

  Value constant(int64_t value);
  /// `base + offset` as a value; lanes are ignored.
  Value materialize(Index index);
  /// `a * extent + b`, for `b` in `[0, extent)`; nothing if lanes would not be
  /// adjacent.
  std::optional<Index> linearize(Index a, int64_t extent, Index b);
  Index multiplyAdd(Index a, int64_t factor, Index b);
  /// True at run time if all of `indices` are 0; null if all are constants.
  Value areZero(ArrayRef<Index> indices);
  /// `value` as a vector of `width` if it is a scalar.
  Value broadcast(Value value);
  /// Float conversion of a scalar or vector to element type `type`.
  Value convert(Value value, Type type);
  /// The sum of the lanes of `value`.
  Value sumLanes(Value value);
  /// The sums of the lanes of each of `values`, side by side in a vector; a
  /// tree of shuffles where the numbers are powers of two.
  Value sumLanes(ArrayRef<Value> values);

  /// The transpose of a square of as many `rows` as each has lanes, a power of
  /// two.
  SmallVector<Value> transpose(ArrayRef<Value> rows);

  /// True if work items may have memory on the stack: whoever lowers the loops
  /// sees to it that it is freed.
  bool hasStack = false;

  /// Set while one element-wise nest is emitted: where its results go. `load`
  /// then remembers which buffers are read anywhere else.
  std::optional<SmallVector<Index>> lockstep;
  DenseSet<Value> readElsewhere;

  /// True if something could not be emitted, which was reported.
  bool hasFailed = false;

private:
  Value readUncached(Value tensor, ArrayRef<Index> at);
  /// What a reduction made: the lanes at `at` of what `remember` was told. A
  /// reduction is never computed where it is used.
  Value readSum(OpResult sum, ArrayRef<Index> at);
  /// `value` as `first * divisor + second`, by the form of what computes it:
  /// `second` may be larger than `divisor`, but has a bound.
  std::optional<std::pair<Index, Index>> divide(Value value, int64_t divisor);
  /// `index` as `first * extent + second`, with `second` below `extent`.
  std::pair<Index, Index> split(Index index, int64_t extent);
  /// `at`, a position in the result of `view` (a slice, an expansion or a
  /// collapse), as one in its source; nothing if lanes would not stay adjacent.
  std::optional<SmallVector<Index>> getSource(Operation *view,
                                              ArrayRef<Index> at);
  /// `at` as a position in `memref`, which may be cut in panels.
  SmallVector<Index> place(Value memref, ArrayRef<Index> at);
  /// True if the lanes at `at`, a position in `memref`, lie side by side.
  bool areAdjacent(Value memref, ArrayRef<Index> at) const;
  /// A scalar that is a constant or the element of a tensor of rank 0.
  Value readScalar(Value scalar);
  Value readPerLane(Value tensor, ArrayRef<Index> at);

  Value extract(Value tensor, ArrayRef<Value> indices,
                ArrayRef<std::optional<Index>> positions);

  struct Key {
    Value tensor;
    SmallVector<Index> at;
    int64_t width;
    bool operator<(const Key &other) const;
  };
  /// Without lanes, an element is the same in vectors of any width.
  Key getKey(Value tensor, ArrayRef<Index> at) const;
  std::map<Key, Value> memory;
  DenseMap<Value, Value> buffers;
};

/// The loops of `op` at the point `at` of its result number `result`.
SmallVector<Index> getLoops(linalg::GenericOp op, unsigned result,
                            ArrayRef<Index> at);
/// The results of `map` (dimensions and constants) at the point `loops`.
SmallVector<Index> applyMap(AffineMap map, ArrayRef<Index> loops);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_CPU_EMITTER_H
