// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long a launch takes at least, by what it does and what a chip has.

#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>
#include <numeric>

using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

llvm::StringRef mlir::bsr::gpu::stringify(Resource resource) {
  static constexpr llvm::StringLiteral names[numResources] = {
      "tensor", "issue", "arithmetic", "shared", "L2", "memory", "launch"};
  return names[static_cast<unsigned>(resource)];
}

void KernelWork::multiplyByBlocks() {
  instructions *= blocks;
  for (auto *all : {&tensorFlops, &warpgroupFlops})
    for (double &flops : *all)
      flops *= blocks;
  for (double &ofUnit : arithmetic)
    ofUnit *= blocks;
  sharedBytes *= blocks;
  l2Bytes *= blocks;
}

const Chip &mlir::bsr::gpu::getChip(Operation *op) {
  return *findChip(cast<GPUAttr>(getTarget(op)).getChip());
}

int64_t mlir::bsr::gpu::getBusyBlocks(const Chip &chip) {
  auto below = int64_t(llvm::bit_floor(uint64_t(chip.multiprocessors)));
  return chip.multiprocessors - below < 2 * below - chip.multiprocessors
             ? below
             : 2 * below;
}

Prediction mlir::bsr::gpu::bound(const KernelWork &work, const Chip &chip,
                                 const ModelParameters &parameters) {
  Prediction prediction;
  auto clocks = [&](Resource resource) -> double & {
    return prediction.clocks[static_cast<unsigned>(resource)];
  };
  // What the busiest multiprocessor does of all, and with how many warps.
  double rounds = std::ceil(work.blocks / chip.multiprocessors);
  double share = work.blocks ? rounds / work.blocks : 0;

  double mmaRate = parameters.mmaRate.value_or(chip.mmaRate);
  double wgmmaRate = parameters.wgmmaRate.value_or(chip.wgmmaRate);
  for (auto [flops, together, rate] :
       llvm::zip_equal(work.tensorFlops, work.warpgroupFlops, chip.tensor)) {
    clocks(Resource::Tensor) += share * flops / (rate * mmaRate);
    if (together != 0)
      clocks(Resource::Tensor) += share * together / (rate * wgmmaRate);
  }
  // A warp issues one instruction a clock.
  clocks(Resource::Issue) =
      std::max(share * work.instructions / issueSlots, work.longestWarp);
  constexpr double warpLanes = 32;
  for (auto [instructions, lanes] :
       llvm::zip_equal(work.arithmetic, chip.lanes))
    clocks(Resource::Arithmetic) = std::max(
        clocks(Resource::Arithmetic), share * instructions * warpLanes / lanes);
  clocks(Resource::Shared) = share * work.sharedBytes / sharedBytes;
  double l2 = parameters.l2Bandwidth.value_or(chip.l2Bandwidth);
  clocks(Resource::L2) = std::max(work.l2Bytes / l2 * chip.clock,
                                  share * work.l2Bytes / l2PortBytes);
  double memory = parameters.memoryBandwidth.value_or(chip.memoryBandwidth);
  clocks(Resource::Memory) = work.memoryBytes / memory * chip.clock;

  // The launches of a graph are one after the other.
  double launch =
      parameters.launchSeconds.value_or(chip.launchSeconds) * chip.clock;
  llvm::ArrayRef<double> used(prediction.clocks);
  double longest = *llvm::max_element(used);
  double all = std::accumulate(used.begin(), used.end(), 0.0);
  clocks(Resource::Launch) = launch;
  prediction.binding =
      static_cast<Resource>(llvm::max_element(used) - used.begin());
  prediction.seconds =
      (launch + longest + (1 - parameters.overlap) * (all - longest)) /
      chip.clock;
  return prediction;
}

double mlir::bsr::gpu::getSeconds(llvm::ArrayRef<KernelWork> launches,
                                  const Chip &chip) {
  double seconds = 0;
  for (const KernelWork &work : launches)
    seconds += bound(work, chip).seconds;
  return seconds;
}
