// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long a launch takes at least, by what it does and what a chip has.

#include "bsr/Codegen/GPU/Core/Model.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>
#include <numeric>

using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

constexpr int64_t kibibyte = 1024;
constexpr double tera = 1e12, giga = 1e9;

// docs/gpu.md, "The model", says where each figure is from.
static constexpr Chip chips[] = {
    {"sm_80",
     "A100 SXM",
     108,
     1.41 * giga,
     {2048, 1024},
     {64, 32, 64, 16},
     163 * kibibyte,
     5.4 * tera,
     2.039 * tera,
     1,
     0},
    {"sm_86",
     "A40",
     84,
     1.74 * giga,
     {1024, 512},
     {128, 2, 64, 16},
     99 * kibibyte,
     2.1 * tera,
     .696 * tera,
     1,
     0},
    {"sm_89",
     "L40",
     142,
     2.49 * giga,
     {512, 256},
     {128, 2, 64, 16},
     99 * kibibyte,
     5.2 * tera,
     .864 * tera,
     1,
     0},
    {"sm_90",
     "H100 SXM",
     132,
     1.83 * giga,
     {4096, 2048},
     {128, 64, 64, 16},
     227 * kibibyte,
     9.7 * tera,
     3.35 * tera,
     .63,
     0},
    {"sm_90a",
     "H100 SXM",
     132,
     1.83 * giga,
     {4096, 2048},
     {128, 64, 64, 16},
     227 * kibibyte,
     9.7 * tera,
     3.35 * tera,
     .63,
     .85},
    {"sm_100a",
     "B200",
     148,
     1.85 * giga,
     {8192, 4096},
     {128, 64, 64, 16},
     227 * kibibyte,
     11 * tera,
     8 * tera,
     .31,
     0},
};

llvm::ArrayRef<Chip> mlir::bsr::gpu::getChips() { return chips; }

const Chip *mlir::bsr::gpu::findChip(llvm::StringRef name) {
  const auto *chip =
      llvm::find_if(chips, [&](const Chip &chip) { return chip.name == name; });
  return chip == std::end(chips) ? nullptr : chip;
}

llvm::StringRef mlir::bsr::gpu::stringify(Resource resource) {
  static constexpr llvm::StringLiteral names[numResources] = {
      "tensor", "issue", "arithmetic", "shared", "L2", "memory"};
  return names[static_cast<unsigned>(resource)];
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

  const auto *longest = llvm::max_element(prediction.clocks);
  prediction.binding =
      static_cast<Resource>(longest - prediction.clocks.begin());
  double all =
      std::accumulate(prediction.clocks.begin(), prediction.clocks.end(), 0.0);
  prediction.seconds =
      (*longest + (1 - parameters.overlap) * (all - *longest)) / chip.clock;
  return prediction;
}
