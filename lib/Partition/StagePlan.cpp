// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Searches the stages, replicas and micro-batches of a training step.

#include "bsr/Partition/StagePlan.h"
#include "llvm/ADT/STLExtras.h"
#include <limits>

using namespace mlir;
using namespace mlir::bsr;

static constexpr double infinity = std::numeric_limits<double>::infinity();

StageCost bsr::getCost(const StageChain &chain, const Devices &devices,
                       Stage stage, int64_t microBatches, unsigned behind) {
  StageCost cost;
  double samples =
      double(devices.batch) / double(microBatches) / double(stage.replicas);
  double saved = 0;
  for (unsigned i = stage.begin; i != stage.end; ++i) {
    const StageBlock &block = chain.blocks[i];
    cost.forward += block.forward * samples;
    cost.backward += block.backward * samples;
    cost.stateBytes += block.stateBytes;
    cost.gradientBytes += block.gradientBytes;
    saved += block.savedBytes;
  }
  auto getSeconds = [&](double bytes) {
    return devices.latency + bytes / devices.bandwidth;
  };
  if (stage.begin) {
    const StepCut &cut = chain.cuts[stage.begin - 1];
    saved += cut.forwardBytes;
    cost.forward += getSeconds(cut.forwardBytes * samples);
    cost.backward += getSeconds(cut.backwardBytes * samples);
    cost.sentBytes += cut.backwardBytes * samples * microBatches;
  }
  if (stage.end != chain.blocks.size()) {
    const StepCut &cut = chain.cuts[stage.end - 1];
    cost.forward += getSeconds(cut.forwardBytes * samples);
    cost.backward += getSeconds(cut.backwardBytes * samples);
    cost.sentBytes += cut.forwardBytes * samples * microBatches;
  }
  // A shared parameter is where it is read; its gradients go to and fro.
  for (const SharedState &shared : chain.shared) {
    auto isInside = [&](unsigned block) {
      return block >= stage.begin && block < stage.end;
    };
    if (!llvm::any_of(shared.parts, isInside))
      continue;
    cost.stateBytes += shared.stateBytes;
    cost.gradientBytes += shared.gradientBytes;
    if (!llvm::all_of(shared.parts, isInside)) {
      cost.end += 2 * getSeconds(shared.gradientBytes);
      cost.reducedBytes += 2 * shared.gradientBytes;
    }
  }
  // A ring: each device sends each part of the gradient twice but its own.
  if (stage.replicas > 1) {
    double others = double(stage.replicas - 1);
    double bytes = 2 * others / double(stage.replicas) * cost.gradientBytes;
    cost.end += 2 * others * devices.latency + bytes / devices.bandwidth;
    cost.reducedBytes += bytes;
  }
  // The update reads and writes the state, and reads the gradient.
  if (devices.memoryBandwidth)
    cost.end +=
        (2 * cost.stateBytes + cost.gradientBytes) / devices.memoryBandwidth;
  // A step that sums up gradients itself has the sum in its state.
  if (chain.accumulates)
    cost.gradientBytes = 0;
  int64_t underWay = microBatches;
  if (devices.schedule == Schedule::OneForwardOneBackward)
    underWay = std::min<int64_t>(microBatches, behind + 1);
  cost.activationBytes = saved * samples * double(underWay);
  return cost;
}

double bsr::getEstimate(const StageCost &cost, int64_t microBatches,
                        unsigned stages) {
  double micro = cost.forward + cost.backward + cost.end / double(microBatches);
  return micro * double(microBatches + stages - 1);
}

namespace {
/// The search for one number of micro-batches, from the last stage to the
/// first: how many activations a stage keeps depends on the stages behind it.
class Search {
public:
  Search(const StageChain &chain, const Devices &devices, PlanShape shape,
         int64_t microBatches);

  /// The plan, if its estimate is less than `limit`.
  std::optional<StagePlan> run(double limit);

private:
  struct Entry {
    double time = infinity; ///< of the longest stage, for a micro-batch
    uint16_t end = 0;       ///< of the first stage
    uint16_t replicas = 0;  ///< its number, in `allReplicas`
  };
  Entry &at(unsigned stages, unsigned begin, int64_t devices) {
    return entries[(stages * (numBlocks + 1) + begin) * (numDevices + 1) +
                   devices];
  }
  void extend(unsigned stages, double limit);
  double getTime(Stage stage, unsigned behind) const;

  const StageChain &chain;
  const Devices &devices;
  PlanShape shape;
  int64_t microBatches;
  unsigned numBlocks;
  int64_t numDevices;
  SmallVector<int64_t> allReplicas;
  std::vector<Entry> entries;
};
} // namespace

Search::Search(const StageChain &chain, const Devices &devices, PlanShape shape,
               int64_t microBatches)
    : chain(chain), devices(devices), shape(shape), microBatches(microBatches),
      numBlocks(chain.blocks.size()), numDevices(devices.count) {
  int64_t samples = devices.batch / microBatches;
  for (int64_t replicas = 1; replicas <= std::min(samples, numDevices);
       ++replicas)
    if (samples % replicas == 0 &&
        (!shape.replicas || replicas == shape.replicas))
      allReplicas.push_back(replicas);
}

/// Seconds of a micro-batch with its share of what a step ends with; infinity
/// if the stage does not fit.
double Search::getTime(Stage stage, unsigned behind) const {
  StageCost cost = getCost(chain, devices, stage, microBatches, behind);
  if (cost.getMemory() > devices.memory)
    return infinity;
  return cost.forward + cost.backward + cost.end / double(microBatches);
}

/// Finds the best `stages` stages from each block on, on each number of devices
/// at most, of those whose stages take less than `limit`.
void Search::extend(unsigned stages, double limit) {
  unsigned behind = stages - 1;
  for (unsigned begin = 0; begin < numBlocks; ++begin)
    for (auto [number, replicas] : llvm::enumerate(allReplicas))
      for (unsigned end = begin + 1; end <= numBlocks; ++end) {
        if (behind ? end == numBlocks : end != numBlocks)
          continue;
        double time = getTime({begin, end, replicas}, behind);
        if (time >= limit)
          continue;
        for (int64_t n = replicas; n <= numDevices; ++n) {
          double rest = behind ? at(behind, end, n - replicas).time : 0;
          double longest = std::max(time, rest);
          Entry &entry = at(stages, begin, n);
          if (longest < limit && longest < entry.time)
            entry = {longest, uint16_t(end), uint16_t(number)};
        }
      }
}

std::optional<StagePlan> Search::run(double limit) {
  unsigned most = std::min<int64_t>(numBlocks, numDevices);
  if (shape.stages)
    most = std::min<int64_t>(most, shape.stages);
  entries.assign(size_t(most + 1) * (numBlocks + 1) * (numDevices + 1), {});
  unsigned best = 0;
  for (unsigned stages = 1; stages <= most; ++stages) {
    double rounds = double(microBatches + stages - 1);
    extend(stages, limit / rounds);
    double estimate = at(stages, 0, numDevices).time * rounds;
    if (estimate < limit && (!shape.stages || stages == shape.stages))
      limit = estimate, best = stages;
  }
  if (!best)
    return std::nullopt;
  StagePlan plan{{}, microBatches, limit};
  int64_t rest = numDevices;
  for (unsigned begin = 0, stages = best; stages; --stages) {
    const Entry &entry = at(stages, begin, rest);
    int64_t replicas = allReplicas[entry.replicas];
    plan.stages.push_back({begin, entry.end, replicas});
    begin = entry.end;
    rest -= replicas;
  }
  return plan;
}

std::optional<StagePlan> bsr::planStages(const StageChain &chain,
                                         const Devices &devices,
                                         PlanShape shape) {
  std::optional<StagePlan> best;
  double limit = infinity;
  for (int64_t microBatches = 1; microBatches <= devices.batch;
       ++microBatches) {
    if (devices.batch % microBatches ||
        (shape.microBatches && microBatches != shape.microBatches))
      continue;
    if (auto plan = Search(chain, devices, shape, microBatches).run(limit)) {
      limit = plan->estimate;
      best = std::move(plan);
    }
  }
  return best;
}

SmallVector<unsigned> bsr::cutChain(const StageChain &chain, unsigned stages) {
  unsigned numBlocks = chain.blocks.size();
  // By number of stages and of blocks: the longest time and the bytes that
  // pass, and where the last stage begins.
  using Value = std::pair<double, double>;
  SmallVector<SmallVector<Value>> best(
      stages + 1, SmallVector<Value>(numBlocks + 1, {infinity, 0}));
  SmallVector<SmallVector<unsigned>> begins(
      stages + 1, SmallVector<unsigned>(numBlocks + 1, 0));
  best[0][0] = {0, 0};
  for (unsigned n = 1; n <= stages; ++n)
    for (unsigned end = n; end <= numBlocks; ++end) {
      double time = 0;
      for (unsigned begin = end; begin-- > n - 1;) {
        time += chain.blocks[begin].forward + chain.blocks[begin].backward;
        auto [longest, bytes] = best[n - 1][begin];
        if (begin)
          bytes += chain.cuts[begin - 1].forwardBytes +
                   chain.cuts[begin - 1].backwardBytes;
        Value value = {std::max(longest, time), bytes};
        if (value < best[n][end])
          best[n][end] = value, begins[n][end] = begin;
      }
    }
  SmallVector<unsigned> ends;
  for (unsigned n = stages, end = numBlocks; n; end = begins[n--][end])
    ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  return ends;
}
