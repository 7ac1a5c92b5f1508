// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels for processors are built with: vectors of lanes, panels, caches.

#ifndef BSR_CODEGEN_CPU_EMITTER_H
#define BSR_CODEGEN_CPU_EMITTER_H

#include "bsr/Codegen/CPU/CPUTarget.h"
#include "bsr/Codegen/Common/Evaluator.h"

namespace mlir::bsr::cpu {

/// An evaluator that knows vector registers and caches.
class Emitter : public Evaluator {
public:
  Emitter(OpBuilder &builder, Location loc, CPUTarget target)
      : Evaluator(builder, loc), target(target) {}

  CPUTarget target;

  /// bsr-expand-i1 makes them bytes.
  bool hasVectorsOfI1() const override { return true; }

  /// Lanes of the panels that buffers are cut in; 0 if none is.
  int64_t panel = 0;

  /// Covers `[low, high)` with vectors: as many of `lanes` elements as fit, in
  /// a loop, then powers of two below. `body` runs with `width` set. `high -
  /// low` is `extent`; `low` is a multiple of `lanes`.
  void forLanes(Value low, int64_t extent, int64_t lanes,
                llvm::function_ref<void(Index)> body);

  /// Prefetches the cache lines of `count` elements of `tensor` from `at` on,
  /// if the tensor has a buffer or is a view of one that has.
  void prefetch(Value tensor, ArrayRef<Index> at, int64_t count);
  /// Those of `memref`, to be read or to be written.
  void prefetchMemory(Value memref, ArrayRef<Index> at, int64_t count,
                      bool isWrite);

  /// Prefetches what `op` reads at the point `loops` of its iteration space of
  /// the arguments of its block, where `shift` has moved at least one of the
  /// indices there: of vectors of whole cache lines that lie side by side, in
  /// arguments that a nearer cache does not keep. Not of those in `done`, to
  /// which it adds what it has prefetched.
  using Shift = llvm::function_ref<Index(Index)>;
  void prefetchInputs(linalg::GenericOp op, ArrayRef<Index> loops, Shift shift,
                      llvm::SmallDenseSet<Value> &done);

  /// Where `memref`, which may be cut in panels, has the element at `at`.
  SmallVector<Value> getIndices(Value memref, ArrayRef<Index> at);

  /// Memory of a work item.
  Value allocate(ArrayRef<int64_t> shape, Type type);

  /// The sum of the lanes of `value`.
  Value sumLanes(Value value);
  /// The sums of the lanes of each of `values`, side by side in a vector; a
  /// tree of shuffles where the numbers are powers of two.
  /// Each of the vectors may be of `groups` of lanes, as many in one as there
  /// are vectors: the sums of the first group of each come first.
  Value sumLanes(ArrayRef<Value> values, int64_t groups = 1);

  /// The transpose of a square of as many `rows` as each has elements, a power
  /// of two; an element is a lane, or several side by side.
  SmallVector<Value> transpose(ArrayRef<Value> rows);
};

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_EMITTER_H
