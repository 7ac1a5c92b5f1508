// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of rows by index. A first launch finds for each row its first token, and
// for each token the next one of its row. In a second, a thread block has a
// row, or a thread an entry of a stored block, and adds the updates of its
// tokens in their order: no atomics, and nothing is written twice.

#include "bsr/Codegen/GPU/Reductions/ScatterAdds.h"
#include "bsr/Codegen/Common/RowLoops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// Threads of a block.
static constexpr int64_t blockThreads = 128;

/// Emits `body(block, thread)` as a launch of `blocks` thread blocks.
static void
launch(Evaluator &e, ArrayRef<int64_t> blocks,
       llvm::function_ref<void(mlir::gpu::KernelDim3, Value)> body) {
  Value one = e.constant(1);
  auto launch = mlir::gpu::LaunchOp::create(e.b, e.loc, e.constant(blocks[0]),
                                            e.constant(blocks[1]), one,
                                            e.constant(blockThreads), one, one);
  e.scope([&] {
    e.b.setInsertionPointToStart(&launch.getBody().front());
    mlir::gpu::TerminatorOp::create(e.b, e.loc);
    e.b.setInsertionPointToStart(&launch.getBody().front());
    body(launch.getBlockIds(), launch.getThreadIds().x);
  });
}

/// Emits `RowTokens::emitLinks` as a launch: a thread has an item of the
/// buffer, and looks at all tokens.
static void emitLinks(RowTokens &tokens) {
  Evaluator &e = tokens.e;
  OpBuilder &b = e.b;
  Location loc = e.loc;
  int64_t numRows = tokens.numRows, numTokens = tokens.numTokens;
  int64_t items = numRows + numTokens;
  auto readRow = [&](Value token) {
    return e.read(tokens.indices, tokens.getPlace(Index::of(token)));
  };
  launch(
      e, {int64_t(llvm::divideCeil(items, blockThreads)), 1},
      [&](mlir::gpu::KernelDim3 block, Value thread) {
        Value item = e.materialize(
            e.multiplyAdd(Index::of(block.x), blockThreads, Index::of(thread)));
        auto compare = [&](arith::CmpIPredicate predicate, Value x,
                           Value y) -> Value {
          return arith::CmpIOp::create(b, loc, predicate, x, y);
        };
        auto select = [&](Value condition, Value x, Value y) -> Value {
          return arith::SelectOp::create(b, loc, condition, x, y);
        };
        Value isToken =
            compare(arith::CmpIPredicate::uge, item, e.constant(numRows));
        Value token = arith::SubIOp::create(b, loc, item, e.constant(numRows));
        Value last = e.constant(numTokens - 1);
        Value own = arith::MinUIOp::create(b, loc, token, last);
        Type type =
            cast<RankedTensorType>(tokens.indices.getType()).getElementType();
        Value row = select(isToken, readRow(own),
                           arith::IndexCastOp::create(b, loc, type, item));
        Value first =
            select(isToken, arith::AddIOp::create(b, loc, token, e.constant(1)),
                   e.constant(0));
        // The last that is found is the first one: tokens backwards.
        Value next =
            e.loop(e.constant(0), e.constant(numTokens), 1,
                   e.constant(numTokens),
                   [&](Value i, ValueRange found) -> SmallVector<Value> {
                     Value other = arith::SubIOp::create(b, loc, last, i);
                     Value isSame =
                         compare(arith::CmpIPredicate::eq, readRow(other), row);
                     Value isLater =
                         compare(arith::CmpIPredicate::uge, other, first);
                     Value isNext =
                         arith::AndIOp::create(b, loc, isSame, isLater);
                     return {select(isNext, other, found.front())};
                   })
                .front();
        Value isThere =
            compare(arith::CmpIPredicate::ult, item, e.constant(items));
        auto guard = scf::IfOp::create(b, loc, isThere);
        e.scope([&] {
          b.setInsertionPointToStart(guard.thenBlock());
          memref::StoreOp::create(
              b, loc, arith::IndexCastOp::create(b, loc, b.getI32Type(), next),
              tokens.links, item);
        });
      });
}

/// Emits the sums of all rows: a thread block has a row.
static void emitSums(ScatterAddOp op, RowTokens &tokens, Value output) {
  Evaluator &e = tokens.e;
  OpBuilder &b = e.b;
  Location loc = e.loc;
  RankedTensorType rows = op.getRows().getType();
  int64_t numFeatures = rows.getDimSize(1);
  launch(
      e, {tokens.numRows, int64_t(llvm::divideCeil(numFeatures, blockThreads))},
      [&](mlir::gpu::KernelDim3 block, Value thread) {
        Index row = Index::of(block.x);
        Index feature =
            e.multiplyAdd(Index::of(block.y), blockThreads, Index::of(thread));
        Value number = e.materialize(feature);
        bool isRagged = numFeatures % blockThreads;
        Index taken = isRagged
                          ? Index::of(arith::MinUIOp::create(
                                b, loc, number, e.constant(numFeatures - 1)))
                          : feature;
        Value zero = arith::ConstantOp::create(
            b, loc, b.getZeroAttr(rows.getElementType()));
        Value sum = tokens.addTokens(
            row, tokens.getFirst(row), zero, [&](ArrayRef<Index> token) {
              return e.read(op.getUpdates(),
                            addFeature(token, op.getFeatureDim(), taken));
            });
        if (!isRagged)
          return e.store(sum, output, {row, feature});
        Value isInside = arith::CmpIOp::create(
            b, loc, arith::CmpIPredicate::ult, number, e.constant(numFeatures));
        auto guard = scf::IfOp::create(b, loc, isInside);
        e.scope([&] {
          b.setInsertionPointToStart(guard.thenBlock());
          e.store(sum, output, {row, feature});
        });
      });
}

/// The rows that the indices of `root` choose from, and the indices.
static std::optional<std::pair<Value, int64_t>> getRows(Operation *root) {
  if (auto op = dyn_cast<ScatterAddOp>(root))
    return std::pair(Value(op.getIndices()),
                     op.getRows().getType().getDimSize(0));
  if (auto op = dyn_cast<ScatterRowsOp>(root))
    return std::pair(Value(op.getIndices()), op.getNumRows());
  if (auto op = dyn_cast<ScoreRowsOp>(root))
    return std::pair(Value(op.getIndices()), op.getNumRows());
  return std::nullopt;
}

SmallVector<MemRefType> bsr::gpu::getRowScratch(Operation *root) {
  auto rows = getRows(root);
  if (!rows)
    return {};
  return {RowTokens::getType(rows->first, rows->second)};
}

bool bsr::gpu::emitRowSums(Evaluator &e, Operation *root, Value output,
                           const PatternViews &patterns, ValueRange scratch) {
  auto rows = getRows(root);
  if (!rows)
    return false;
  RowTokens tokens(e, rows->first, rows->second, scratch.front());
  emitLinks(tokens);
  if (auto op = dyn_cast<ScatterAddOp>(root))
    emitSums(op, tokens, output);
  else if (auto op = dyn_cast<ScatterRowsOp>(root))
    emitScatterRows(e, op, output, patterns, tokens);
  else
    emitScoreRows(e, cast<ScoreRowsOp>(root), output, tokens);
  return true;
}
