// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of rows by index: a block of threads has one row. It looks for its
// tokens, 128 at a time, of which every thread sees which ones are, and adds
// these in their order: no atomics, and no row is written twice.

#include "ScatterAdds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace mlir::bsr;

static constexpr int64_t warp = 32;
/// Threads of a block, each with a feature and, in turn, a token to look at.
static constexpr int64_t blockThreads = 128;

namespace {
class RowSum {
public:
  RowSum(Evaluator &e, ScatterAddOp op)
      : e(e), b(e.b), loc(e.loc), op(op),
        tokens(op.getIndices().getType().getShape()),
        numTokens(op.getIndices().getType().getNumElements()) {}

  void emit(Value output);

private:
  Value word(int64_t value) {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(value));
  }
  SmallVector<Index> getToken(Index number);
  Value isOfRow(Index number, Value row);
  Value addTokens(Value mask, Index first, Index feature, Value sum);

  Evaluator &e;
  OpBuilder &b;
  Location loc;
  ScatterAddOp op;
  ArrayRef<int64_t> tokens;
  int64_t numTokens;
};
} // namespace

/// The place of token `number` in the indices.
SmallVector<Index> RowSum::getToken(Index number) {
  SmallVector<Index> place(tokens.size(), Index::constant(0));
  for (int64_t dim = tokens.size() - 1; dim > 0; --dim)
    std::tie(number, place[dim]) = e.split(number, tokens[dim]);
  if (!place.empty())
    place.front() = number;
  return place;
}

/// True if there is a token `number`, and its index is `row`.
Value RowSum::isOfRow(Index number, Value row) {
  Value token = e.materialize(number);
  Value last = e.constant(numTokens - 1);
  Value taken = arith::MinUIOp::create(b, loc, token, last);
  Value index = e.read(op.getIndices(), getToken(Index::of(taken)));
  Value wanted = arith::IndexCastOp::create(b, loc, index.getType(), row);
  Value isSame =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, index, wanted);
  Value isThere =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, token, last);
  return arith::AndIOp::create(b, loc, isSame, isThere);
}

/// `sum` and the updates at `feature` of the tokens, from `first` on, whose
/// bits are set in `mask`.
Value RowSum::addTokens(Value mask, Index first, Index feature, Value sum) {
  Type types[] = {mask.getType(), sum.getType()};
  auto loop =
      scf::WhileOp::create(b, loc, TypeRange(types), ValueRange{mask, sum});
  e.scope([&] {
    Location locs[] = {loc, loc};
    Block *before = b.createBlock(&loop.getBefore(), {}, types, locs);
    Value isLeft = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne,
                                         before->getArgument(0), word(0));
    scf::ConditionOp::create(b, loc, isLeft, before->getArguments());
  });
  e.scope([&] {
    Location locs[] = {loc, loc};
    Block *after = b.createBlock(&loop.getAfter(), {}, types, locs);
    Value left = after->getArgument(0);
    // The lowest bit that is set, and the mask without it.
    Value below = arith::SubIOp::create(b, loc, left, word(1));
    Value others = arith::XOrIOp::create(b, loc, left, word(-1));
    Value place = math::CtPopOp::create(
        b, loc, arith::AndIOp::create(b, loc, below, others));
    Value rest = arith::AndIOp::create(b, loc, left, below);
    Value lane = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), place);
    SmallVector<Index> at = getToken(e.multiplyAdd(first, 1, Index::of(lane)));
    at.insert(at.begin() + op.getFeatureDim(), feature);
    Value next = arith::AddFOp::create(b, loc, after->getArgument(1),
                                       e.read(op.getUpdates(), at));
    scf::YieldOp::create(b, loc, ValueRange{rest, next});
  });
  return loop.getResult(1);
}

void RowSum::emit(Value output) {
  RankedTensorType rows = op.getRows().getType();
  int64_t numFeatures = rows.getDimSize(1);
  constexpr int64_t numWarps = blockThreads / warp;
  Type masks = MemRefType::get(
      {numWarps}, b.getI32Type(), AffineMap(),
      gpu::AddressSpaceAttr::get(b.getContext(), gpu::AddressSpace::Workgroup));
  Value one = e.constant(1);
  auto launch = gpu::LaunchOp::create(
      b, loc, e.constant(rows.getDimSize(0)),
      e.constant(llvm::divideCeil(numFeatures, blockThreads)), one,
      e.constant(blockThreads), one, one, /*dynamicSharedMemorySize=*/Value(),
      /*asyncTokenType=*/Type(), /*asyncDependencies=*/ValueRange(), masks);
  Value shared = launch.getWorkgroupAttributions().front();
  e.scope([&] {
    b.setInsertionPointToStart(&launch.getBody().front());
    gpu::TerminatorOp::create(b, loc);
    b.setInsertionPointToStart(&launch.getBody().front());
    Value row = launch.getBlockIds().x;
    Index thread = Index::of(launch.getThreadIds().x);
    Index feature =
        e.multiplyAdd(Index::of(launch.getBlockIds().y), blockThreads, thread);
    Value number = e.materialize(feature);
    Index taken = feature;
    if (numFeatures % blockThreads)
      taken = Index::of(
          arith::MinUIOp::create(b, loc, number, e.constant(numFeatures - 1)));
    auto [warpNumber, lane] = e.split(thread, warp);
    Value zero =
        arith::ConstantOp::create(b, loc, b.getZeroAttr(rows.getElementType()));
    auto addChunk = [&, warpNumber = warpNumber, lane = lane](
                        Value first, ValueRange sums) -> SmallVector<Value> {
      Value isMine = isOfRow(e.multiplyAdd(Index::of(first), 1, thread), row);
      Value mask = NVVM::VoteSyncOp::create(b, loc, b.getI32Type(), word(-1),
                                            isMine, NVVM::VoteSyncKind::ballot);
      auto guard = scf::IfOp::create(b, loc, e.areZero(lane));
      e.scope([&] {
        b.setInsertionPointToStart(guard.thenBlock());
        memref::StoreOp::create(b, loc, mask, shared,
                                e.materialize(warpNumber));
      });
      gpu::BarrierOp::create(b, loc);
      Value sum =
          e.loop(e.constant(0), e.constant(numWarps), 1, sums,
                 [&](Value part, ValueRange sums) {
                   Value found = memref::LoadOp::create(b, loc, shared, part);
                   Index start =
                       e.multiplyAdd(Index::of(part), warp, Index::of(first));
                   return SmallVector<Value>{
                       addTokens(found, start, taken, sums.front())};
                 })
              .front();
      // The masks have been read.
      gpu::BarrierOp::create(b, loc);
      return {sum};
    };
    Value sum = e.loop(e.constant(0), e.constant(numTokens), blockThreads, zero,
                       addChunk)
                    .front();
    if (numFeatures % blockThreads == 0)
      return e.store(sum, output, {Index::of(row), feature});
    Value isInside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult,
                                           number, e.constant(numFeatures));
    auto guard = scf::IfOp::create(b, loc, isInside);
    e.scope([&] {
      b.setInsertionPointToStart(guard.thenBlock());
      e.store(sum, output, {Index::of(row), feature});
    });
  });
}

void bsr::emitScatterAdd(Evaluator &e, ScatterAddOp op, Value output) {
  RowSum(e, op).emit(output);
}
