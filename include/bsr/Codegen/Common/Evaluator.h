// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns tensor values into loads, vectors and loops on demand.

#ifndef BSR_CODEGEN_COMMON_EVALUATOR_H
#define BSR_CODEGEN_COMMON_EVALUATOR_H

#include "bsr/Codegen/Common/IndexBuilder.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <map>

namespace mlir::bsr {

/// Computes elements of tensors on demand. A tensor with a buffer is loaded
/// from it; an element-wise operation, a view or a constant without one is
/// computed where it is used, through its indexing maps, so that transposes,
/// broadcasts and slices cost nothing.
class Evaluator : public IndexBuilder {
public:
  using IndexBuilder::IndexBuilder;
  virtual ~Evaluator() = default;

  /// Lanes of the vectors emitted now; 1 emits scalars.
  int64_t width = 1;

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

  /// Computes before `loop`, in which it is called, what `op` reads at the
  /// point `loops` of its iteration space that divides or is a function of
  /// `math` and depends on nothing of `loop`: LLVM does not know that what
  /// `loop` stores is not what this reads. To be called before anything else
  /// is read in `loop`.
  void readBefore(Operation *loop, linalg::GenericOp op, ArrayRef<Index> loops);

  /// What the body of `op` yields at the point `loops` of its iteration space.
  /// `accumulators` stand for the init operands; empty, which a reduction is
  /// not evaluated with, reads the inits.
  SmallVector<Value> evaluate(linalg::GenericOp op, ArrayRef<Index> loops,
                              ValueRange accumulators = {});

  /// The element, or the lanes, of the tensor in `memref` at `at`.
  Value load(Value memref, ArrayRef<Index> at);
  void store(Value value, Value memref, ArrayRef<Index> at);

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

  /// Calls `body` for every point of `extents`; none depends on another one.
  /// Here they are taken one after the other; a target may take them at once.
  virtual void forEach(ArrayRef<int64_t> extents,
                       llvm::function_ref<void(ArrayRef<Index>)> body);
  /// Calls `body` for every point of `extents`, in a parallel loop.
  void forall(ArrayRef<int64_t> extents,
              llvm::function_ref<void(ArrayRef<Index>)> body);

  /// The bytes that divide the address of the lanes at `at`, which lie side by
  /// side in `memref`, if the target's loads and stores need to know.
  virtual std::optional<int64_t> getAlignment(Value memref,
                                              ArrayRef<Index> at) const {
    return std::nullopt;
  }

  /// True if vectors of i1 may be loaded and stored: memory has a byte for
  /// each, LLVM would take a bit.
  virtual bool hasVectorsOfI1() const { return false; }

  /// Emits `body` with memories of its own of what was computed.
  void scope(llvm::function_ref<void()> body);

  /// `value` as a vector of `width` if it is a scalar.
  Value broadcast(Value value);
  /// Float conversion of a scalar or vector to element type `type`.
  Value convert(Value value, Type type);

  /// True if something could not be emitted, which was reported.
  bool hasFailed = false;

protected:
  /// `at` as a position in `memref`, which may be cut in panels.
  SmallVector<Index> place(Value memref, ArrayRef<Index> at);
  /// `at`, a position in the result of `view` (a slice, an expansion or a
  /// collapse), as one in its source; nothing if lanes would not stay adjacent.
  std::optional<SmallVector<Index>> getSource(Operation *view,
                                              ArrayRef<Index> at);

private:
  void readBefore(Operation *loop, Value tensor, ArrayRef<Index> at);
  Value readUncached(Value tensor, ArrayRef<Index> at);
  /// What a reduction or a product made: the lanes at `at` of what `remember`
  /// was told. Neither is ever computed where it is used.
  Value readSum(OpResult sum, ArrayRef<Index> at);
  /// True if the lanes at `at`, a position in `memref`, lie side by side.
  bool areAdjacent(Value memref, ArrayRef<Index> at) const;
  /// A scalar that is a constant or the element of a tensor of rank 0.
  Value readScalar(Value scalar);
  Value readPerLane(Value tensor, ArrayRef<Index> at);
  /// The element of `tensor` at `indices`; `positions` are what is known of
  /// them.
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

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_EVALUATOR_H
