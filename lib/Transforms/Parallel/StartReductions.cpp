// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts means over processes in buckets, and waits for them where they are
// needed.

#include "bsr/Analysis/Step.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferViewFlowAnalysis.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSTARTREDUCTIONS
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// Means that are taken together.
struct Bucket {
  SmallVector<AllReduceOp> reductions;
  int64_t bytes = 0;
  /// What touches one of the buffers first, behind the reductions.
  Operation *reader = nullptr;
};
} // namespace

/// The buffer that `value` is a view of.
static Value getRoot(Value value) {
  while (auto view = value.getDefiningOp<ViewLikeOpInterface>())
    value = view.getViewSource();
  return value;
}

/// The first operation of the block behind `op` in which the buffer of `op` or
/// a view of it is used, or the end of the block.
static Operation *findReader(AllReduceOp op,
                             const BufferViewFlowAnalysis &views) {
  Block *block = op->getBlock();
  Operation *first = block->getTerminator();
  for (Value view : views.resolve(getRoot(op.getData())))
    for (Operation *user : view.getUsers()) {
      if (isa<ViewLikeOpInterface>(user))
        continue;
      Operation *at = block->findAncestorOpInBlock(*user);
      if (op->isBeforeInBlock(at) && at->isBeforeInBlock(first))
        first = at;
    }
  return first;
}

/// Starts `bucket` where its last reduction is, and waits in front of its
/// reader.
static void start(const Bucket &bucket) {
  AllReduceOp last = bucket.reductions.back();
  SmallVector<Location> locs;
  SmallVector<Value> buffers;
  for (AllReduceOp op : bucket.reductions) {
    buffers.push_back(op.getData());
    locs.push_back(op.getLoc());
  }
  OpBuilder b(last);
  Location loc = b.getFusedLoc(locs);
  auto started = StartReduceOp::create(b, loc, buffers);
  b.setInsertionPoint(bucket.reader);
  WaitReduceOp::create(b, loc, started.getTicket(), buffers);
  for (AllReduceOp op : bucket.reductions)
    op.erase();
}

namespace {
struct StartReductions : bsr::impl::BSRStartReductionsBase<StartReductions> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (bucketBytes < 0) {
      step.emitError("expected bucket-bytes to be 0 at least, but got ")
          << bucketBytes.getValue();
      return signalPassFailure();
    }
    if (failed(getReturn(step)))
      return signalPassFailure();
    // Nothing changes while readers are looked for.
    for (const Bucket &bucket : fillBuckets(step)) {
      start(bucket);
      ++numBuckets;
    }
  }

private:
  /// Of buckets of which no option says how large they are. Smaller ones take
  /// longer to start than to send; larger ones wait for their last gradient.
  static constexpr int64_t minBytes = 1 << 18, maxBytes = 1 << 24;

  SmallVector<Bucket> fillBuckets(func::FuncOp step) {
    BufferViewFlowAnalysis views(step);
    DataLayout layout = DataLayout::closest(step);
    auto getBytes = [&](AllReduceOp op) {
      auto type = cast<ShapedType>(op.getData().getType());
      return type.getNumElements() *
             int64_t(layout.getTypeSize(type.getElementType()).getFixedValue());
    };
    int64_t most = bucketBytes;
    if (!most) {
      for (auto op : step.front().getOps<AllReduceOp>())
        most += getBytes(op);
      most = std::clamp(most / 8, minBytes, maxBytes);
    }
    SmallVector<Bucket> full;
    // By type, in the order of their first reduction.
    llvm::MapVector<Type, Bucket> open;
    auto close = [&](Bucket &bucket) {
      if (!bucket.reductions.empty())
        full.push_back(std::move(bucket));
      bucket = Bucket();
    };
    for (Operation &op : step.front()) {
      for (auto &[type, bucket] : open)
        if (bucket.reader == &op)
          close(bucket);
      auto reduction = dyn_cast<AllReduceOp>(op);
      if (!reduction || !isa<MemRefType>(reduction.getData().getType()))
        continue;
      auto type = cast<MemRefType>(reduction.getData().getType());
      Bucket &bucket = open[type.getElementType()];
      Operation *reader = findReader(reduction, views);
      if (!bucket.reader || reader->isBeforeInBlock(bucket.reader))
        bucket.reader = reader;
      bucket.reductions.push_back(reduction);
      bucket.bytes += getBytes(reduction);
      if (bucket.bytes >= most)
        close(bucket);
    }
    return full;
  }
};
} // namespace
