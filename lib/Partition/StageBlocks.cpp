// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Merges the parts of a step to blocks of about one time.

#include "bsr/Partition/StagePlan.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::bsr;

StageChain bsr::getChain(const StepParts &step, const Devices &devices) {
  StageChain chain;
  double samples = double(step.samples);
  auto getSeconds = [&](ArrayRef<Work> all) {
    double seconds = 0;
    for (const Work &work : all) {
      double bytes =
          devices.memoryBandwidth ? work.bytes / devices.memoryBandwidth : 0;
      seconds += std::max(work.flops / devices.flops, bytes);
    }
    return seconds / samples;
  };
  for (auto [number, part] : llvm::enumerate(step.parts)) {
    unsigned begin = number;
    chain.blocks.push_back(
        {begin, begin + 1, getSeconds(part.forward), getSeconds(part.backward),
         part.savedBytes / samples, part.stateBytes, part.gradientBytes});
  }
  for (const StepCut &cut : step.cuts)
    chain.cuts.push_back(
        {cut.forwardBytes / samples, cut.backwardBytes / samples});
  chain.shared = step.shared;
  chain.accumulates = step.accumulates;
  return chain;
}

/// Makes one of blocks `at` and `at + 1`.
static void merge(StageChain &chain, unsigned at) {
  StageBlock &block = chain.blocks[at];
  const StageBlock &next = chain.blocks[at + 1];
  block.end = next.end;
  block.forward += next.forward;
  block.backward += next.backward;
  block.savedBytes += next.savedBytes;
  block.stateBytes += next.stateBytes;
  block.gradientBytes += next.gradientBytes;
  chain.blocks.erase(chain.blocks.begin() + at + 1);
  chain.cuts.erase(chain.cuts.begin() + at);
  SmallVector<SharedState> still;
  for (SharedState &shared : chain.shared) {
    for (unsigned &part : shared.parts)
      part -= part > at;
    shared.parts.erase(llvm::unique(shared.parts), shared.parts.end());
    if (shared.parts.size() > 1) {
      still.push_back(std::move(shared));
      continue;
    }
    StageBlock &only = chain.blocks[shared.parts.front()];
    only.stateBytes += shared.stateBytes;
    only.gradientBytes += shared.gradientBytes;
  }
  chain.shared = std::move(still);
}

StageChain bsr::mergeBlocks(StageChain chain, unsigned count) {
  double total = 0;
  for (const StageBlock &block : chain.blocks)
    total += block.forward + block.backward;
  double mean = total / std::max(count, 1u);
  while (chain.blocks.size() > count && chain.blocks.size() > 1) {
    // A pair that fits, with most bytes; or the one of the least time.
    std::optional<unsigned> fits, least;
    double mostBytes = 0, leastTime = 0;
    for (unsigned at = 0; at + 1 < chain.blocks.size(); ++at) {
      const StageBlock &a = chain.blocks[at], &b = chain.blocks[at + 1];
      double time = a.forward + a.backward + b.forward + b.backward;
      double bytes = chain.cuts[at].forwardBytes + chain.cuts[at].backwardBytes;
      if (time <= mean && (!fits || bytes > mostBytes))
        fits = at, mostBytes = bytes;
      if (!least || time < leastTime)
        least = at, leastTime = time;
    }
    merge(chain, fits ? *fits : *least);
  }
  return chain;
}
