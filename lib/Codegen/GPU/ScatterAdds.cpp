// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of rows by index. A first launch finds for each row its first token, and
// for each token the next one of its row. In a second, a block of threads has a
// row and adds the updates of its tokens in their order: no atomics, and no row
// is written twice.

#include "ScatterAdds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;

/// Threads of a block.
static constexpr int64_t blockThreads = 128;

namespace {
class RowSum {
public:
  RowSum(Evaluator &e, ScatterAddOp op, Value links)
      : e(e), b(e.b), loc(e.loc), op(op), links(links),
        tokens(op.getIndices().getType().getShape()),
        numTokens(op.getIndices().getType().getNumElements()),
        numRows(op.getRows().getType().getDimSize(0)) {}

  void emitLinks();
  void emitSums(Value output);

private:
  /// Emits `body(block, thread)` as a launch of `blocks` blocks of threads.
  void launch(ArrayRef<int64_t> blocks,
              llvm::function_ref<void(gpu::KernelDim3, Value)> body);
  SmallVector<Index> getToken(Index number);
  Value readRow(Index token);
  /// What `links` has at `item`.
  Value readLink(Index item);
  Value addTokens(Value first, Index feature, Value zero);

  Evaluator &e;
  OpBuilder &b;
  Location loc;
  ScatterAddOp op;
  /// Of each row, and then of each token, the next token of that row; the
  /// number of tokens where there is none.
  Value links;
  ArrayRef<int64_t> tokens;
  int64_t numTokens, numRows;
};
} // namespace

void RowSum::launch(ArrayRef<int64_t> blocks,
                    llvm::function_ref<void(gpu::KernelDim3, Value)> body) {
  Value one = e.constant(1);
  auto launch = gpu::LaunchOp::create(b, loc, e.constant(blocks[0]),
                                      e.constant(blocks[1]), one,
                                      e.constant(blockThreads), one, one);
  e.scope([&] {
    b.setInsertionPointToStart(&launch.getBody().front());
    gpu::TerminatorOp::create(b, loc);
    b.setInsertionPointToStart(&launch.getBody().front());
    body(launch.getBlockIds(), launch.getThreadIds().x);
  });
}

/// The place of token `number` in the indices.
SmallVector<Index> RowSum::getToken(Index number) {
  SmallVector<Index> place(tokens.size(), Index::constant(0));
  for (int64_t dim = tokens.size() - 1; dim > 0; --dim)
    std::tie(number, place[dim]) = e.split(number, tokens[dim]);
  if (!place.empty())
    place.front() = number;
  return place;
}

Value RowSum::readRow(Index token) {
  return e.read(op.getIndices(), getToken(token));
}

Value RowSum::readLink(Index item) {
  Value link = memref::LoadOp::create(b, loc, links, e.materialize(item));
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), link);
}

void RowSum::emitLinks() {
  int64_t items = numRows + numTokens;
  launch(
      {int64_t(llvm::divideCeil(items, blockThreads)), 1},
      [&](gpu::KernelDim3 block, Value thread) {
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
        Value row = select(
            isToken, readRow(Index::of(own)),
            arith::IndexCastOp::create(
                b, loc, op.getIndices().getType().getElementType(), item));
        Value first =
            select(isToken, arith::AddIOp::create(b, loc, token, e.constant(1)),
                   e.constant(0));
        // The last that is found is the first one: tokens backwards.
        Value next =
            e.loop(e.constant(0), e.constant(numTokens), 1,
                   e.constant(numTokens),
                   [&](Value i, ValueRange found) -> SmallVector<Value> {
                     Value other = arith::SubIOp::create(b, loc, last, i);
                     Value isSame = compare(arith::CmpIPredicate::eq,
                                            readRow(Index::of(other)), row);
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
              links, item);
        });
      });
}

/// The sum of the updates at `feature` of token `first` and of those that
/// follow it.
Value RowSum::addTokens(Value first, Index feature, Value zero) {
  Type types[] = {first.getType(), zero.getType()};
  Location locs[] = {loc, loc};
  auto loop =
      scf::WhileOp::create(b, loc, TypeRange(types), ValueRange{first, zero});
  e.scope([&] {
    Block *before = b.createBlock(&loop.getBefore(), {}, types, locs);
    Value isToken =
        arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult,
                              before->getArgument(0), e.constant(numTokens));
    scf::ConditionOp::create(b, loc, isToken, before->getArguments());
  });
  e.scope([&] {
    Block *after = b.createBlock(&loop.getAfter(), {}, types, locs);
    Index token = Index::of(after->getArgument(0));
    SmallVector<Index> at = getToken(token);
    at.insert(at.begin() + op.getFeatureDim(), feature);
    Value sum = arith::AddFOp::create(b, loc, after->getArgument(1),
                                      e.read(op.getUpdates(), at));
    Value next = readLink(e.multiplyAdd(token, 1, Index::constant(numRows)));
    scf::YieldOp::create(b, loc, ValueRange{next, sum});
  });
  return loop.getResult(1);
}

void RowSum::emitSums(Value output) {
  RankedTensorType rows = op.getRows().getType();
  int64_t numFeatures = rows.getDimSize(1);
  launch({numRows, int64_t(llvm::divideCeil(numFeatures, blockThreads))},
         [&](gpu::KernelDim3 block, Value thread) {
           Index row = Index::of(block.x);
           Index feature = e.multiplyAdd(Index::of(block.y), blockThreads,
                                         Index::of(thread));
           Value number = e.materialize(feature);
           bool isRagged = numFeatures % blockThreads;
           Index taken = isRagged
                             ? Index::of(arith::MinUIOp::create(
                                   b, loc, number, e.constant(numFeatures - 1)))
                             : feature;
           Value zero = arith::ConstantOp::create(
               b, loc, b.getZeroAttr(rows.getElementType()));
           Value sum = addTokens(readLink(row), taken, zero);
           if (!isRagged)
             return e.store(sum, output, {row, feature});
           Value isInside =
               arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, number,
                                     e.constant(numFeatures));
           auto guard = scf::IfOp::create(b, loc, isInside);
           e.scope([&] {
             b.setInsertionPointToStart(guard.thenBlock());
             e.store(sum, output, {row, feature});
           });
         });
}

SmallVector<MemRefType> bsr::getScatterScratch(ScatterAddOp op) {
  int64_t items = op.getRows().getType().getDimSize(0) +
                  op.getIndices().getType().getNumElements();
  return {MemRefType::get(items, IntegerType::get(op.getContext(), 32))};
}

void bsr::emitScatterAdd(Evaluator &e, ScatterAddOp op, Value output,
                         ValueRange scratch) {
  RowSum sums(e, op, scratch.front());
  sums.emitLinks();
  sums.emitSums(output);
}
