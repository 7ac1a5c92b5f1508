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
using namespace mlir::bsr::ptx;

/// Steps of all warps after which no other one is followed.
static constexpr uint64_t enoughSteps = 1'000'000;

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
/// What warps of a launch have done.
class Sum {
public:
  explicit Sum(const Launch &launch)
      : launch(launch), counts(numCounts + 2 * launch.arguments.size()) {}

  void add(const Warp &warp) {
    for (auto [part, index] : llvm::zip_equal(round, watched))
      part += warp.counts[index];
    for (auto [total, count] : llvm::zip_equal(counts, warp.counts))
      total += count;
    ++numWarps;
    numSteps += warp.numSteps;
    profile.hasDataBranches |= warp.hasDataBranches;
    profile.hasDataAddresses |= warp.hasDataAddresses;
    profile.work.longestWarp =
        std::max(profile.work.longestWarp, warp.counts[instructionCount]);
  }
  /// Ends a round of warps, of which each has another place in its block.
  void endRound() {
    for (auto [squares, part] : llvm::zip_equal(squares, round)) {
      squares += part * part;
      part = 0;
    }
    ++numRounds;
  }
  /// True if what rounds do on average is known to 1 %, as far as these tell.
  bool isSettled() const;
  /// What all warps do, if they are like these.
  Profile get() const;

  int64_t numWarps = 0;
  uint64_t numSteps = 0;

private:
  static constexpr unsigned watched[] = {instructionCount, sectorCount,
                                         wavefrontCount};

  const Launch &launch;
  Counts counts;
  int64_t numRounds = 0;
  std::array<double, std::size(watched)> round{}, squares{};
  Profile profile;
};
} // namespace

bool Sum::isSettled() const {
  double n = double(numRounds);
  return llvm::all_of(llvm::zip_equal(squares, watched), [&](auto entry) {
    auto [squares, index] = entry;
    double mean = counts[index] / n;
    // The square of the standard error of the mean.
    double error = (squares / n - mean * mean) / n;
    return error <= 1e-4 * mean * mean;
  });
}

Profile Sum::get() const {
  Profile all = profile;
  KernelWork &work = all.work;
  work.blocks = getBlocks(launch);
  work.warps = getWarps(launch);
  double scale = numWarps ? work.blocks * work.warps / numWarps : 0;
  auto count = [&](unsigned index) { return counts[index] * scale; };
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

Expected<Profile> mlir::bsr::fillWords(const Kernel &kernel,
                                       const Launch &launch) {
  if (Error error = verifyArguments(kernel, launch))
    return error;
  Flow flow(kernel, launch);
  Sum sum(launch);
  for (int64_t block = 0; block != getBlocks(launch); ++block) {
    SharedWords shared;
    std::vector<Warp> warps;
    for (int64_t warp = 0; warp != getWarps(launch); ++warp)
      warps.emplace_back(flow, block, warp, &shared);
    // All go on to the next barrier, in turn.
    while (!warps.empty()) {
      std::vector<Warp> waiting;
      for (Warp &warp : warps) {
        Expected<bool> isWaiting = warp.resume();
        if (!isWaiting)
          return isWaiting.takeError();
        if (*isWaiting)
          waiting.push_back(std::move(warp));
        else
          sum.add(warp);
      }
      warps = std::move(waiting);
    }
  }
  return sum.get();
}

Expected<Profile> mlir::bsr::profile(const Kernel &kernel,
                                     const Launch &launch) {
  if (Error error = verifyArguments(kernel, launch))
    return error;
  int64_t warps = getWarps(launch), blocks = getBlocks(launch);
  constexpr int64_t fewFollowed = 64, maxFollowed = 2048;

  // Multiples of the golden ratio, without their whole parts, lie evenly
  // however many they are; such a stride that comes to all blocks. Warps of a
  // block may have different tasks: a round is of as many as a block has, each
  // of another block, if there are enough.
  constexpr double ratio = 0.6180339887498949;
  auto stride = std::max<int64_t>(int64_t(double(blocks) * ratio), 1);
  while (std::gcd(stride, blocks) != 1)
    ++stride;

  Flow flow(kernel, launch);
  Sum sum(launch);
  for (int64_t round = 0; round != blocks; ++round) {
    bool isEnough = sum.numWarps >= fewFollowed && sum.isSettled();
    if (isEnough || sum.numWarps >= maxFollowed || sum.numSteps > enoughSteps)
      break;
    for (int64_t number = 0; number != warps; ++number) {
      int64_t block = (round * stride + number * blocks / warps) % blocks;
      Warp warp(flow, block, number);
      for (bool isAlive = true; isAlive;) {
        Expected<bool> isWaiting = warp.resume();
        if (!isWaiting)
          return isWaiting.takeError();
        isAlive = *isWaiting;
      }
      sum.add(warp);
    }
    sum.endRound();
  }
  return sum.get();
}
