// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels for look-ups of rows by index and their gradients. One thread lists
// the tokens of each row; then a work item is a line of blocks, and goes
// through the tokens of its rows: no atomics, and no sum depends on which
// thread takes it.

#include "RowKernels.h"
#include "bsr/Codegen/Common/RowLoops.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::cpu;

/// As many work items are enough: each loops over the dimensions that follow.
static constexpr int64_t enoughItems = 64;

namespace {
/// Takes the points of leading dimensions at once, the others in loops.
struct ItemEmitter : Emitter {
  explicit ItemEmitter(const Emitter &emitter) : Emitter(emitter) {}

  void forEach(ArrayRef<int64_t> extents,
               llvm::function_ref<void(ArrayRef<Index>)> body) override {
    size_t taken = 0;
    for (int64_t items = 1; items < enoughItems && taken < extents.size();)
      items *= extents[taken++];
    forall(extents.take_front(taken), [&](ArrayRef<Index> item) {
      nest(extents.drop_front(taken), {},
           [&](ArrayRef<Index> inner, ValueRange) {
             SmallVector<Index> at(item);
             llvm::append_range(at, inner);
             body(at);
             return SmallVector<Value>();
           });
    });
  }
};
} // namespace

SmallVector<MemRefType> cpu::getLinkMemory(Operation *root) {
  if (auto op = dyn_cast<ScatterRowsOp>(root))
    return {RowTokens::getType(op.getIndices(), op.getNumRows())};
  if (auto op = dyn_cast<ScoreRowsOp>(root))
    return {RowTokens::getType(op.getIndices(), op.getNumRows())};
  return {};
}

bool cpu::emitRows(Emitter &emitter, Operation *root, Value output,
                   const PatternViews &patterns, ValueRange scratch) {
  ItemEmitter e(emitter);
  auto link = [&](auto op) {
    RowTokens tokens = RowTokens::of(e, op, scratch.front());
    tokens.emitLinks();
    return tokens;
  };
  if (auto op = dyn_cast<GatherRowsOp>(root))
    emitGatherRows(e, op, output, patterns);
  else if (auto op = dyn_cast<ScatterRowsOp>(root))
    emitScatterRows(e, op, output, patterns, link(op));
  else if (auto op = dyn_cast<ScoreRowsOp>(root))
    emitScoreRows(e, op, output, link(op));
  else
    return false;
  return true;
}
