// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves what needs means over processes to the end of a step, and what makes
// other gradients behind one that comes late and takes long to send.

#include "bsr/Analysis/Step.h"
#include "bsr/Transforms/Parallel/Passes.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSCHEDULEREDUCTIONS
#include "bsr/Transforms/Parallel/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// How many reductions of the block are started when the last one is that `op`
/// or what is nested in it reads, as `ready` tells of what comes before; 0 if
/// it reads none.
static unsigned getReady(Operation *op,
                         const DenseMap<Operation *, unsigned> &ready) {
  unsigned last = 0;
  op->walk([&](Operation *nested) {
    for (Value operand : nested->getOperands())
      if (Operation *made = operand.getDefiningOp())
        last = std::max(last, ready.lookup(made));
  });
  return last;
}

static int64_t getBits(AllReduceOp op) {
  Type type = op.getData().getType();
  auto shaped = dyn_cast<ShapedType>(type);
  return getElementTypeOrSelf(type).getIntOrFloatBitWidth() *
         (shaped ? shaped.getNumElements() : 1);
}

/// The last mean of `means` that has an eighth of all their bytes, a bucket of
/// its own, and the mean in front of what is made of others while it is sent:
/// those that then come behind it have at most a half of its bytes. Null if
/// there is none.
static std::pair<Operation *, Operation *>
findLarge(ArrayRef<AllReduceOp> means) {
  int64_t all = 0, behind = 0;
  for (AllReduceOp mean : means)
    all += getBits(mean);
  while (!means.empty() && 8 * getBits(means.back()) < all) {
    behind += getBits(means.back());
    means = means.drop_back();
  }
  if (means.empty())
    return {};
  AllReduceOp large = means.back();
  for (means = means.drop_back(); !means.empty(); means = means.drop_back()) {
    behind += getBits(means.back());
    if (2 * behind > getBits(large))
      return {large, means.back()};
  }
  return {};
}

/// Moves what stands in front of a large mean that comes late, and is not
/// needed for it, behind it. So a tied embedding, whose gradient is there when
/// the backward pass ends, is sent while gradients of other weights are made.
/// Returns how many operations moved.
static unsigned startLargeEarlier(Block &body) {
  auto [large, begin] = findLarge(llvm::to_vector(body.getOps<AllReduceOp>()));
  if (!large)
    return 0;
  auto visitMakers = [&](Operation *op, function_ref<void(Operation *)> visit) {
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (Operation *maker = operand.getDefiningOp())
          if (Operation *inBody = body.findAncestorOpInBlock(*maker))
            visit(inBody);
    });
  };
  DenseSet<Operation *> needed = {large};
  SmallVector<Operation *> others;
  for (Operation *op = large; op != begin; op = op->getPrevNode())
    if (needed.contains(op))
      visitMakers(op, [&](Operation *maker) { needed.insert(maker); });
    else
      others.push_back(op);
  // What has an effect, an allocation, stays: it reads nothing that moves.
  DenseSet<Operation *> moved;
  SmallVector<Operation *> order;
  for (Operation *op : llvm::reverse(others)) {
    if (isMemoryEffectFree(op)) {
      moved.insert(op);
      order.push_back(op);
      continue;
    }
    bool readsMoved = false;
    visitMakers(op,
                [&](Operation *maker) { readsMoved |= moved.contains(maker); });
    if (readsMoved)
      return 0;
  }
  Operation *place = large;
  for (Operation *op : order) {
    op->moveAfter(place);
    place = op;
  }
  return order.size();
}

namespace {
struct ScheduleReductions
    : bsr::impl::BSRScheduleReductionsBase<ScheduleReductions> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    if (failed(getReturn(step)))
      return signalPassFailure();
    Block &body = step.front();
    numMoved += startLargeEarlier(body);
    DenseMap<Operation *, unsigned> ready;
    // By the reductions it needs, and where it stands.
    SmallVector<std::tuple<unsigned, unsigned, Operation *>> late;
    unsigned started = 0;
    for (Operation &op : body.without_terminator()) {
      unsigned number = getReady(&op, ready);
      if (isa<AllReduceOp>(op))
        // A mean of what needs others, of a loss say, is started behind those.
        ready[&op] = number ? number : ++started;
      else if (number)
        ready[&op] = number;
      if (number)
        late.emplace_back(number, late.size(), &op);
    }
    if (llvm::any_of(late, [](auto &entry) {
          return !isMemoryEffectFree(std::get<Operation *>(entry));
        }))
      return;
    // What reads another comes behind it: its number is no smaller, and equal
    // numbers keep their order.
    llvm::sort(late);
    for (auto [number, place, op] : late)
      op->moveBefore(body.getTerminator());
    numMoved += late.size();
  }
};
} // namespace
