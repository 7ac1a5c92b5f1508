// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Places the buffers of a step in one arena.

#include "bsr/Analysis/LiveRanges.h"
#include "bsr/Analysis/Plans.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/Transforms/BufferViewFlowAnalysis.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/CallInterfaces.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "llvm/Support/MathExtras.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRPLANMEMORY
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Checks that the scores in `alloc` are computed when they are asked for, and
/// not in every step.
static LogicalResult verifyGuarded(memref::AllocOp alloc) {
  for (Operation *user : alloc->getUsers())
    if (isa<CallOpInterface>(user) && user->getBlock() == alloc->getBlock())
      return user->emitError("expected bsr-guard-scores before "
                             "bsr-plan-memory, but got scores of ")
             << attrs::scores.get(alloc) << " in every step";
  return success();
}

/// Every buffer starts on a cache line.
static constexpr int64_t alignment = 64;

namespace {
/// A buffer: when it is live and where it lies.
struct Buffer {
  memref::AllocOp alloc;
  /// Bytes, rounded up to the alignment.
  int64_t size;
  /// The first and the last operation of the step's body that uses it.
  int64_t begin, end;
  /// Whether it holds a plan, which keeps from step to step.
  bool isPlan;
  int64_t offset = 0;

  bool isLiveWith(const Buffer &other) const {
    return begin <= other.end && other.begin <= end;
  }
};
} // namespace

/// The bytes of a buffer of static shape.
static int64_t getSize(MemRefType type, const DataLayout &layout) {
  int64_t bytes = type.getNumElements() *
                  layout.getTypeSize(type.getElementType()).getFixedValue();
  return llvm::alignTo(bytes, alignment);
}

/// Collects the buffers that are allocated in `step`, with their sizes and live
/// intervals. Positions are those of the operations of the body; a buffer of a
/// nested region lives while the operation of the body around it runs, and a
/// small one that a single operation uses, on a target to which launches cost
/// something, from there to the end.
static FailureOr<SmallVector<Buffer>> collectBuffers(func::FuncOp step) {
  Block &body = step.front();
  int64_t launchBytes = getTarget(step).getCosts().launchBytes;
  DenseMap<Operation *, int64_t> position;
  for (auto [index, op] : llvm::enumerate(body))
    position[&op] = index;

  BufferViewFlowAnalysis views(step);
  DataLayout layout = DataLayout::closest(step);
  SmallVector<Buffer> buffers;
  WalkResult result = step.walk([&](memref::AllocOp alloc) {
    if (!alloc.getType().hasStaticShape()) {
      alloc.emitError("expected a buffer of static shape, but got ")
          << alloc.getType();
      return WalkResult::interrupt();
    }
    int64_t last = position[body.findAncestorOpInBlock(*alloc)];
    int64_t first = alloc->getBlock() == &body ? INT64_MAX : last;
    bool isPlan = false;
    for (Value view : views.resolve(alloc)) {
      for (Operation *user : view.getUsers()) {
        int64_t at = position[body.findAncestorOpInBlock(*user)];
        first = std::min(first, at);
        last = std::max(last, at);
        isPlan |= makesPlan(user);
      }
    }
    // Plans are there before the step, and for the next one.
    if (isPlan) {
      first = 0;
      last = position[body.getTerminator()];
    }
    // Scores are read when the step is over.
    if (attrs::scores.isOn(alloc)) {
      if (failed(verifyGuarded(alloc)))
        return WalkResult::interrupt();
      last = position[body.getTerminator()];
    }
    int64_t size = getSize(alloc.getType(), layout);
    // What one kernel alone uses is what its launches leave each other, such as
    // partial sums: what reads them can wait for that of other kernels.
    if (first == last && size < launchBytes)
      last = position[body.getTerminator()];
    buffers.push_back({alloc, size, std::min(first, last), last, isPlan});
    return WalkResult::advance();
  });
  if (result.wasInterrupted())
    return failure();
  return buffers;
}

static Peak findPeak(ArrayRef<Buffer> buffers) {
  return bsr::findPeak(
      llvm::map_to_vector(buffers, [](const Buffer &buffer) -> LiveRange {
        return {buffer.begin, buffer.end, buffer.size};
      }));
}

/// What is placed first, behind plans: a larger rank.
using Rank = std::tuple<int64_t, int64_t, int64_t>;

/// Gives each buffer an offset, the lowest place that no buffer of a larger
/// rank and live at the same time occupies, and returns the bytes of the arena
/// (greedy; Pisarchyk and Lee, "Efficient memory management for deep neural net
/// inference", 2020). Plans, which are live with everything, come first: one
/// piece at the start of the arena, which can be kept without the rest.
static int64_t place(MutableArrayRef<Buffer> buffers,
                     llvm::function_ref<Rank(const Buffer &)> getRank) {
  SmallVector<Buffer *> order;
  for (Buffer &buffer : buffers)
    order.push_back(&buffer);
  llvm::sort(order, [&](Buffer *a, Buffer *b) {
    if (a->isPlan != b->isPlan)
      return a->isPlan;
    Rank first = getRank(*a), second = getRank(*b);
    return first != second ? first > second : a < b;
  });

  int64_t arena = 0;
  SmallVector<Buffer *> placed; // by offset
  for (Buffer *buffer : order) {
    int64_t offset = 0;
    for (Buffer *other : placed) {
      if (!buffer->isLiveWith(*other))
        continue;
      if (offset + buffer->size <= other->offset)
        break;
      offset = std::max(offset, other->offset + other->size);
    }
    buffer->offset = offset;
    arena = std::max(arena, offset + buffer->size);
    placed.insert(llvm::upper_bound(placed, buffer,
                                    [](Buffer *a, Buffer *b) {
                                      return a->offset < b->offset;
                                    }),
                  buffer);
  }
  return arena;
}

/// Places `buffers` and returns the bytes of the arena. What is live at the
/// peak comes first and leaves no gap there, the longest-lived of it below, and
/// the rest by size; if that does not fit in the bytes of the peak, perhaps it
/// does the nearer to the peak, the earlier.
static int64_t placeBuffers(MutableArrayRef<Buffer> buffers, const Peak &peak) {
  auto byLife = [&](const Buffer &buffer) -> Rank {
    bool live = buffer.begin <= peak.at && peak.at <= buffer.end;
    return {live, live ? buffer.end - buffer.begin : 0, buffer.size};
  };
  auto byDistance = [&](const Buffer &buffer) -> Rank {
    return {std::min(peak.at - buffer.begin, int64_t(0)) +
                std::min(buffer.end - peak.at, int64_t(0)),
            buffer.size, 0};
  };
  int64_t arena = place(buffers, byLife);
  if (arena == peak.bytes)
    return arena;
  int64_t other = place(buffers, byDistance);
  return other <= arena ? other : place(buffers, byLife);
}

/// What the manifest says of the scores among `buffers`.
static ArrayAttr describeScores(Builder &b, ArrayRef<Buffer> buffers) {
  SmallVector<Attribute> scores;
  for (const Buffer &buffer : buffers) {
    memref::AllocOp alloc = buffer.alloc;
    if (Attribute name = attrs::scores.get(alloc))
      scores.push_back(b.getDictionaryAttr(
          {b.getNamedAttr("name", name),
           b.getNamedAttr("offset", b.getI64IntegerAttr(buffer.offset)),
           b.getNamedAttr("type", TypeAttr::get(alloc.getType()))}));
  }
  return b.getArrayAttr(scores);
}

/// Replaces the allocations by views of `arena`.
static void replaceAllocations(MutableArrayRef<Buffer> buffers, Value arena) {
  for (Buffer &buffer : buffers) {
    OpBuilder b(buffer.alloc);
    Location loc = buffer.alloc.getLoc();
    Value offset = arith::ConstantIndexOp::create(b, loc, buffer.offset);
    Value view = memref::ViewOp::create(b, loc, buffer.alloc.getType(), arena,
                                        offset, /*sizes=*/ValueRange());
    buffer.alloc.replaceAllUsesWith(view);
    buffer.alloc.erase();
  }
}

namespace {
struct PlanMemory : bsr::impl::BSRPlanMemoryBase<PlanMemory> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (failed(getReturn(step)))
      return signalPassFailure();
    FailureOr<SmallVector<Buffer>> buffers = collectBuffers(step);
    if (failed(buffers))
      return signalPassFailure();
    Peak peak = findPeak(*buffers);
    int64_t bytes = placeBuffers(*buffers, peak);

    Builder b(&getContext());
    NamedAttribute attrs[] = {
        attrs::name.with(b.getStringAttr("arena")),
        attrs::kind.with(b.getStringAttr("arena")),
    };
    if (failed(step.insertArgument(step.getNumArguments(),
                                   MemRefType::get({bytes}, b.getI8Type()),
                                   b.getDictionaryAttr(attrs), step.getLoc())))
      return signalPassFailure();
    if (ArrayAttr scores = describeScores(b, *buffers); !scores.empty())
      attrs::scores.set(step, scores);
    replaceAllocations(*buffers, step.getArguments().back());
    attrs::arenaBytes.set(step, b.getI64IntegerAttr(bytes));
    attrs::liveBytes.set(step, b.getI64IntegerAttr(peak.bytes));

    numBuffers += buffers->size();
    peakLive += peak.bytes;
    arenaBytes += bytes;
  }
};
} // namespace
