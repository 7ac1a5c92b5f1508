// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loop nests for the operations that a cluster computes.

#ifndef BSR_CODEGEN_CPU_KERNELS_H
#define BSR_CODEGEN_CPU_KERNELS_H

#include "bsr/Analysis/Kernels.h"
#include "bsr/Codegen/CPU/Emitter.h"
#include "bsr/Codegen/Common/Blocks.h"

namespace mlir::bsr {

/// The view of its pattern that the kernel of `op` walks, if it has a pattern.
std::optional<View> getWalkedView(Operation *op, CPUTarget target);

/// Emits the loops that compute `roots` (one operation, or element-wise ones of
/// one space) into the buffers `outputs`.
void emitNest(Emitter &emitter, ArrayRef<Operation *> roots,
              const DenseMap<Value, Value> &outputs,
              const PatternViews &patterns);

/// Work items of a product, at least: enough for every thread to have its
/// share.
constexpr int64_t minItems = 32;

/// The largest of `limit` and below that divides `extent`.
int64_t getDivisor(int64_t extent, int64_t limit);

/// Consecutive tiles of `size` points from `base` on.
struct Tiles {
  int64_t base, size, count;
};
/// Covers `extent` with tiles of `size` and a smaller one for what is left.
SmallVector<Tiles, 2> tileWithRemainder(int64_t extent, int64_t size);
/// Covers `extent` lanes with vectors of `width`, a power of two, and what is
/// left with vectors of the powers of two below.
SmallVector<Tiles, 4> getVectors(int64_t extent, int64_t width);
/// Covers `extent` with as few tiles of at most `limit` as possible, their
/// sizes no more than one apart.
SmallVector<Tiles, 2> tileEvenly(int64_t extent, int64_t limit);

/// The epilogue of a product, emitted once for each vector of finished sums,
/// with its index in the result, lanes last, and its number among the vectors
/// of all lanes.
using Epilogue = llvm::function_ref<void(ArrayRef<Index> at, Index number)>;

/// True if an epilogue can run on the sums of the product `op`, of two tensors
/// or of a pattern: its vectors run along the last dimension of its result.
bool acceptsEpilogue(Operation *op);

/// The nests of single operations.
void emitPointwise(Emitter &emitter, ArrayRef<Operation *> roots,
                   const DenseMap<Value, Value> &outputs);
void emitReduction(Emitter &emitter, linalg::GenericOp op,
                   const DenseMap<Value, Value> &outputs);
/// Emits `op` if it is a product of two tensors that vectors can run along;
/// false, and nothing emitted, if not.
bool emitContraction(Emitter &emitter, linalg::GenericOp op,
                     const DenseMap<Value, Value> &outputs,
                     Epilogue epilogue = {});
/// Emits a product or another operation of the dialect into `output`.
void emitSparse(Emitter &emitter, Operation *op, Value output,
                const PatternViews &patterns);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_CPU_KERNELS_H
