// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What kernels of every target share that go through the blocks of a pattern.

#ifndef BSR_CODEGEN_COMMON_BLOCKS_H
#define BSR_CODEGEN_COMMON_BLOCKS_H

#include "bsr/Codegen/Common/Evaluator.h"
#include "bsr/Dialect/BSR.h"

namespace mlir::bsr {

/// The index arrays of one view of a pattern.
struct PatternView {
  Value ptr, idx, slot;
};
/// The views of pattern arguments.
using PatternViews = DenseMap<std::pair<Value, View>, PatternView>;

/// `KernelOpInterface::getLineView` of `op`; nothing if it has no pattern.
std::optional<View> getLineView(Operation *op);

/// The element type that sums of products of `types` are taken in.
Type getSumType(OpBuilder &b, TypeRange types);

/// Entry `at` of an array of 32-bit indices, as an index.
Value loadIndex(Evaluator &e, Value array, Index at);

/// The block `ahead` blocks behind `block` in the order of a view, or the last
/// one.
Index getNextBlock(Evaluator &e, Value block, PatternType pattern,
                   int64_t ahead = 1);

/// Calls `body` for every block of `line` with its slot and its position along
/// the line, carrying values.
SmallVector<Value> forBlocks(
    Evaluator &e, const PatternView &view, Index line, ValueRange inits,
    llvm::function_ref<SmallVector<Value>(Index, Index, ValueRange)> body);

/// `a * c + sum` in the type of `sum`, of scalars and vectors.
Value multiplyAdd(Evaluator &e, Value a, Value c, Value sum);

SmallVector<Value> getZeros(Evaluator &e, Type type, int64_t count);

/// `sum`, and `background` once for each of the `length` entries of a line that
/// its blocks, of `blockLength` entries, leave out. Where they leave none out,
/// nothing is added, not even 0 * NaN.
Value addBackground(Evaluator &e, Value sum, Value background,
                    const PatternView &view, Index line, int64_t length,
                    int64_t blockLength);

/// What the sum, or the largest, of the entries of a line starts from.
Value getVecStart(Evaluator &e, ReduceVecOp op, Type type);
/// This with one more element (or vector of them).
Value addToVec(Evaluator &e, ReduceVecOp op, Value sum, Value element);

/// The norm of a block so far, with one more element (or vector of them).
Value addToNorm(Evaluator &e, Norm kind, Value norm, Value element);
/// The norm of a block, of the sum or the largest of its elements.
Value finishNorm(Evaluator &e, Norm kind, Value norm);

/// Emits the loops of operations that are no work: nothing runs in parallel.
void emitLive(Evaluator &e, LiveOp op, Value output,
              const PatternViews &patterns);
void emitNumAbsent(Evaluator &e, NumAbsentOp op, Value output,
                   const PatternViews &patterns);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_BLOCKS_H
