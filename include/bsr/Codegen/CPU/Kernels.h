// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for the operations that a cluster computes.

#ifndef BSR_CODEGEN_CPU_KERNELS_H
#define BSR_CODEGEN_CPU_KERNELS_H

#include "bsr/Analysis/ComputedOps.h"
#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/CPU/Tiling.h"
#include "bsr/Codegen/Common/Blocks.h"

namespace mlir::bsr::cpu {

/// The view of its pattern that the kernel of `op` walks, if it has a pattern.
std::optional<View> getWalkedView(Operation *op, CPUTarget target);

/// Emits the loops that compute `roots` (one operation, or element-wise ones of
/// one space) into the buffers `outputs`.
void emitNest(Emitter &emitter, ArrayRef<Operation *> roots,
              const DenseMap<Value, Value> &outputs,
              const PatternViews &patterns);

/// The epilogue of a product, on finished sums.
struct Epilogue {
  /// Features that are transposed at once: a cache line of f32.
  static constexpr int64_t squareFeatures = 16;

  /// Emitted once for each vector, with its index in the result, lanes last,
  /// and its number among the vectors of all lanes.
  llvm::function_ref<void(ArrayRef<Index> at, Index number)> row;
  /// Emitted once for `squareFeatures` of a vector of as many lanes or fewer,
  /// with the index of the first; null if nothing is transposed.
  llvm::function_ref<void(ArrayRef<Index> at)> square;

  /// Prefetches where squares of `features` from `at` on, of one token, will be
  /// written.
  llvm::function_ref<void(ArrayRef<Index> at, int64_t features)> prefetch;

  explicit operator bool() const { return row || square; }
  void operator()(ArrayRef<Index> at, Index number) const { row(at, number); }
};

/// True if an epilogue can run on the sums of the product `op`, of two tensors
/// or of a pattern: its vectors run along the last dimension of its result.
bool acceptsEpilogue(Operation *op);
/// True if an epilogue on the sums of the product `op` may transpose them: work
/// items of its kernel have all tokens of a vector at whole squares of
/// features.
bool transposesSums(Operation *op, CPUTarget target);

/// The nests of single operations.
void emitPointwise(Emitter &emitter, ArrayRef<Operation *> roots,
                   const DenseMap<Value, Value> &outputs);
void emitReduction(Emitter &emitter, linalg::GenericOp op,
                   const DenseMap<Value, Value> &outputs);
/// Memory of its own that the kernel of `op` takes if it is a product of two
/// tensors.
SmallVector<MemRefType> getContractionMemory(Operation *op, CPUTarget target);
/// Emits `op` if it is a product of two tensors that vectors can run along;
/// false, and nothing emitted, if not. `memory` is that of
/// `getContractionMemory`, or empty.
bool emitContraction(Emitter &emitter, linalg::GenericOp op,
                     const DenseMap<Value, Value> &outputs,
                     Epilogue epilogue = {}, ValueRange memory = {});
/// Emits a product or another operation of the dialect into `output`.
void emitSparse(Emitter &emitter, Operation *op, Value output,
                const PatternViews &patterns);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_KERNELS_H
