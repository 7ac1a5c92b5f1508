// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Says why no plan fits.

#include "Report.h"
#include "llvm/Support/FormatVariadic.h"
#include <limits>

using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::formatv;

/// The least memory that block `number` takes of a device, one sample of a
/// micro-batch on each of as many as there are.
static double getLeastMemory(const StageChain &chain, const Devices &devices,
                             unsigned number) {
  double least = std::numeric_limits<double>::infinity();
  for (int64_t microBatches = 1; microBatches <= devices.batch;
       ++microBatches) {
    if (devices.batch % microBatches)
      continue;
    int64_t samples = devices.batch / microBatches;
    int64_t replicas = std::min(samples, devices.count);
    while (samples % replicas)
      --replicas;
    StageCost cost = getCost(chain, devices, {number, number + 1, replicas},
                             microBatches, /*behind=*/0);
    least = std::min(least, cost.getMemory());
  }
  return least;
}

Error bsr::createNoFit(const StepParts &step, const StageChain &chain,
                       const Devices &devices) {
  unsigned largest = 0;
  double most = 0, state = 0;
  for (auto [number, block] : llvm::enumerate(chain.blocks)) {
    double least = getLeastMemory(chain, devices, number);
    if (least > most)
      most = least, largest = number;
    state += block.stateBytes;
  }
  for (const SharedState &shared : chain.shared)
    state += shared.stateBytes;
  const StageBlock &block = chain.blocks[largest];
  std::string first = step.parts[block.begin].name;
  std::string last = step.parts[block.end - 1].name;
  std::string names = first == last ? first : first + " to " + last;
  if (most > devices.memory)
    return createStringError(
        formatv("expected {0} of memory on a device to hold {1}, which {2} "
                "at least {3}, but got too little{4}",
                formatBytes(devices.memory), names,
                first == last ? "takes" : "take", formatBytes(most),
                first == last ? "" : ": more --blocks are smaller")
            .str());
  return createStringError(
      formatv("expected {0} devices of {1} to hold the step, whose state "
              "alone takes {2}, but got no plan that fits: more devices, "
              "more memory or a smaller batch may",
              devices.count, formatBytes(devices.memory), formatBytes(state))
          .str());
}
