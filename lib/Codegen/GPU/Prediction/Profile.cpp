// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a launch of a kernel in PTX does.

#include "Warp.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <numeric>

using namespace llvm;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;
using namespace mlir::bsr::ptx;

/// Steps of all warps after which no other one is followed.
static constexpr uint64_t enoughSteps = 3'000'000;

static Error verifyArguments(const Kernel &kernel, const Launch &launch) {
  if (kernel.parameters.size() == launch.arguments.size())
    return Error::success();
  return createStringError("expected a launch of '" + kernel.name + "' with " +
                           Twine(kernel.parameters.size()) +
                           " arguments, but got " +
                           Twine(launch.arguments.size()));
}

static int64_t getProduct(const std::array<int64_t, 3> &extents) {
  return extents[0] * extents[1] * extents[2];
}

static int64_t getBlocks(const Launch &launch) {
  return getProduct(launch.grid);
}

static int64_t getWarps(const Launch &launch) {
  return llvm::divideCeil(getProduct(launch.block), int64_t(numLanes));
}

namespace {
/// What warps of a launch have done. Those that have one place in their blocks
/// are taken to be alike, more than others are.
class Sum {
public:
  explicit Sum(const Launch &launch)
      : launch(launch), places(getWarps(launch)) {
    for (Place &place : places)
      place.counts.resize(numCounts + 2 * launch.arguments.size());
  }

  void add(const Warp &warp, int64_t number) {
    Place &place = places[number];
    for (auto [squares, index] : llvm::zip_equal(place.squares, watched))
      squares += warp.counts[index] * warp.counts[index];
    for (auto [total, count] : llvm::zip_equal(place.counts, warp.counts))
      total += count;
    ++place.numWarps;
    ++numWarps;
    numSteps += warp.numSteps;
    profile.hasDataBranches |= warp.hasDataBranches;
    profile.hasDataAddresses |= warp.hasDataAddresses;
    profile.work.longestWarp =
        std::max(profile.work.longestWarp, warp.counts[instructionCount]);
  }
  /// True if what warps do on average is known to 1 %, as far as these tell.
  bool isSettled() const;
  /// What all warps do, if they are like these.
  Profile get() const;

  int64_t numWarps = 0;
  uint64_t numSteps = 0;

private:
  static constexpr unsigned watched[] = {instructionCount, sectorCount,
                                         wavefrontCount};
  /// What those have done that have one place in their blocks.
  struct Place {
    int64_t numWarps = 0;
    Counts counts;
    std::array<double, std::size(watched)> squares{};
  };

  const Launch &launch;
  std::vector<Place> places;
  Profile profile;
};
} // namespace

bool Sum::isSettled() const {
  if (llvm::any_of(places,
                   [](const Place &place) { return place.numWarps < 2; }))
    return false;
  for (auto [i, index] : llvm::enumerate(watched)) {
    // Of the sum of the places' means: it, and the square of its standard
    // error.
    double sum = 0, error = 0;
    for (const Place &place : places) {
      auto n = double(place.numWarps);
      double mean = place.counts[index] / n;
      sum += mean;
      error += (place.squares[i] / n - mean * mean) / (n - 1);
    }
    if (error > 1e-4 * sum * sum)
      return false;
  }
  return true;
}

Profile Sum::get() const {
  Profile all = profile;
  KernelWork &work = all.work;
  work.blocks = getBlocks(launch);
  work.warps = getWarps(launch);
  auto found = double(llvm::count_if(
      places, [](const Place &place) { return place.numWarps != 0; }));
  auto count = [&](unsigned index) {
    double sum = 0;
    for (const Place &place : places)
      if (place.numWarps)
        sum += place.counts[index] / double(place.numWarps);
    return found == 0 ? 0 : sum * work.blocks * work.warps / found;
  };
  work.instructions = count(instructionCount);
  for (unsigned unit = 0; unit != numUnits; ++unit)
    work.arithmetic[unit] = count(arithmeticCount + unit);
  for (unsigned type = 0; type != numTensorTypes; ++type)
    work.tensorFlops[type] = count(tensorCount + type);
  for (unsigned type = 0; type != numTensorTypes; ++type)
    work.warpgroupFlops[type] = count(warpgroupCount + type);
  all.globalSectors = count(sectorCount);
  all.sharedWavefronts = count(wavefrontCount);
  all.matrixInstructions = count(matrixCount);
  // What passes L1 goes to shared memory alone.
  work.sharedBytes = (all.globalSectors - count(passedCount)) * sectorBytes +
                     all.sharedWavefronts * sharedBytes;
  work.l2Bytes = count(missCount) * sectorBytes;
  // Of each buffer what is touched, once.
  llvm::MapVector<unsigned, std::array<double, 2>> touched;
  DenseMap<unsigned, double> sizes;
  for (auto [index, argument] : llvm::enumerate(launch.arguments)) {
    if (argument.isNumber)
      continue;
    double &size = sizes[argument.buffer];
    size = std::max<double>(size, argument.bytes);
    for (unsigned isWrite : {0, 1})
      touched[argument.buffer][isWrite] +=
          count(numCounts + 2 * index + isWrite);
  }
  for (auto [buffer, bytes] : touched)
    for (double part : bytes)
      work.memoryBytes += std::min(part, sizes[buffer]);
  return all;
}

Expected<Profile> mlir::bsr::gpu::fillWords(const Kernel &kernel,
                                            const Launch &launch) {
  if (Error error = verifyArguments(kernel, launch))
    return error;
  Flow flow(kernel, launch);
  Sum sum(launch);
  for (int64_t block = 0; block != getBlocks(launch); ++block) {
    SharedWords shared;
    std::vector<std::pair<int64_t, Warp>> warps;
    for (int64_t warp = 0; warp != getWarps(launch); ++warp)
      warps.emplace_back(warp, Warp(flow, block, warp, &shared));
    // All go on to the next barrier, in turn.
    while (!warps.empty()) {
      std::vector<std::pair<int64_t, Warp>> waiting;
      for (auto &[number, warp] : warps) {
        Expected<bool> isWaiting = warp.resume();
        if (!isWaiting)
          return isWaiting.takeError();
        if (*isWaiting)
          waiting.emplace_back(number, std::move(warp));
        else
          sum.add(warp, number);
      }
      warps = std::move(waiting);
    }
  }
  return sum.get();
}

Expected<Profile> mlir::bsr::gpu::profile(const Kernel &kernel,
                                          const Launch &launch) {
  if (Error error = verifyArguments(kernel, launch))
    return error;
  int64_t warps = getWarps(launch), all = getBlocks(launch) * warps;
  constexpr int64_t fewFollowed = 64, maxFollowed = 2048;

  // Multiples of the golden ratio, without their whole parts, lie evenly
  // however many they are; such a stride that comes to all warps.
  constexpr double ratio = 0.6180339887498949;
  auto stride = std::max<int64_t>(int64_t(double(all) * ratio), 1);
  while (std::gcd(stride, all) != 1)
    ++stride;

  Flow flow(kernel, launch);
  Sum sum(launch);
  while (sum.numWarps != std::min(all, maxFollowed) &&
         (sum.numWarps < fewFollowed || !sum.isSettled()) &&
         sum.numSteps <= enoughSteps) {
    int64_t number = sum.numWarps * stride % all;
    Warp warp(flow, number / warps, number % warps);
    for (bool isAlive = true; isAlive;) {
      Expected<bool> isWaiting = warp.resume();
      if (!isWaiting)
        return isWaiting.takeError();
      isAlive = *isWaiting;
    }
    sum.add(warp, number % warps);
  }
  return sum.get();
}
