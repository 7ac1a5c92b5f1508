// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves small launches of one kernel to one place, where they can be joined.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/LiveRanges.h"
#include "bsr/Analysis/Order.h"
#include "bsr/Codegen/GPU/Passes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRGATHERLAUNCHES
#include "bsr/Codegen/GPU/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// A launch that may be anywhere between what it reads and what reads it.
struct Candidate {
  LaunchOp launch;
  Operation *lastProducer = nullptr; ///< in the block, if any
  Operation *firstUser;
};

struct GatherLaunches : bsr::impl::BSRGatherLaunchesBase<GatherLaunches> {
  using Base::Base;

  void runOnOperation() override;

private:
  void gather(MutableArrayRef<Candidate> candidates, Order &order);
};
} // namespace

/// Whether `launch` is of an element-wise cluster, and moves so few bytes that
/// it hardly takes longer than a launch that does nothing. What is computed
/// again, late, so that it needs no memory before, is so only if it is tiny.
static bool isSmall(LaunchOp launch, int64_t launchBytes) {
  auto cluster = SymbolTable::lookupNearestSymbolFrom<ClusterOp>(
      launch, launch.getKernelAttr());
  StringAttr kind = cluster ? attrs::kind.get(cluster) : StringAttr();
  if (!kind || kind.getValue() != "elementwise")
    return false;
  int64_t read = 0, written = 0;
  for (Value input : launch.getInputs())
    read += getTensorBytes(input);
  for (Value init : launch.getInits())
    written += getTensorBytes(init);
  if (attrs::recomputed.isOn(launch) && written >= launchBytes / 64)
    return false;
  return read + written < launchBytes;
}

static std::optional<Candidate> getCandidate(LaunchOp launch,
                                             const Order &order) {
  Candidate candidate{launch, nullptr, nullptr};
  Block *block = launch->getBlock();
  for (Value operand : launch->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    if (!producer || isa<tensor::EmptyOp>(producer))
      continue;
    if (producer->getBlock() == block &&
        (!candidate.lastProducer ||
         order.isBefore(candidate.lastProducer, producer)))
      candidate.lastProducer = producer;
  }
  for (Operation *user : launch->getUsers()) {
    Operation *at = block->findAncestorOpInBlock(*user);
    if (!candidate.firstUser || order.isBefore(at, candidate.firstUser))
      candidate.firstUser = at;
  }
  if (!candidate.firstUser)
    return std::nullopt;
  return candidate;
}

/// Moves launches of one kernel to as few places as there can be: the first
/// user of those that are left is one, and takes in all that can be there.
void GatherLaunches::gather(MutableArrayRef<Candidate> candidates,
                            Order &order) {
  llvm::sort(candidates, [&](const Candidate &a, const Candidate &b) {
    return a.firstUser != b.firstUser ? order.isBefore(a.firstUser, b.firstUser)
                                      : order.isBefore(a.launch, b.launch);
  });
  SmallVector<Candidate> left(candidates);
  while (left.size() > 1) {
    Operation *place = left.front().firstUser;
    SmallVector<Candidate> here, later;
    for (const Candidate &candidate : left)
      (!candidate.lastProducer || order.isBefore(candidate.lastProducer, place)
           ? here
           : later)
          .push_back(candidate);
    left = std::move(later);
    if (here.size() < 2 || !decide("bsr-gather-launches", here[0].launch))
      continue;
    PassRemark::passed("bsr-gather-launches", "LaunchesGathered",
                       here[0].launch)
        .add("Kernel", here[0].launch.getKernel())
        .add("Launches", here.size());
    for (Candidate &candidate : here) {
      for (Value init : candidate.launch.getInits())
        if (auto empty = init.getDefiningOp<tensor::EmptyOp>();
            empty && empty->getBlock() == place->getBlock() &&
            order.isBefore(place, empty))
          order.moveBefore(empty, place);
      order.moveBefore(candidate.launch, place);
    }
    numMoved += here.size();
  }
}

void GatherLaunches::runOnOperation() {
  func::FuncOp step = getOperation();
  if (step.isExternal() || !step.getBody().hasOneBlock())
    return;
  Block &block = step.front();
  int64_t launchBytes = getTarget(step).getCosts().launchBytes;
  SmallVector<LaunchOp> small;
  llvm::SetVector<StringRef> kernels;
  for (auto launch : block.getOps<LaunchOp>())
    if (isSmall(launch, launchBytes)) {
      small.push_back(launch);
      kernels.insert(launch.getKernel());
    }
  Order order(block);
  for (StringRef kernel : kernels) {
    SmallVector<Candidate> candidates;
    for (LaunchOp launch : small)
      if (launch.getKernel() == kernel)
        if (auto candidate = getCandidate(launch, order))
          candidates.push_back(*candidate);
    gather(candidates, order);
  }
}
