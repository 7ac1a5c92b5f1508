// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The search of stages, against all plans of small chains.

#include "bsr/Partition/StagePlan.h"
#include <gtest/gtest.h>
#include <random>

using namespace mlir;
using namespace mlir::bsr;

/// A chain of `count` blocks of random costs.
static StageChain createChain(std::mt19937 &random, unsigned count) {
  std::uniform_real_distribution<double> number(0.1, 1.0);
  StageChain chain;
  for (unsigned i = 0; i < count; ++i) {
    double state = 1e6 * number(random);
    chain.blocks.push_back({i, i + 1, 1e-3 * number(random),
                            2e-3 * number(random), 1e5 * number(random), state,
                            state / 3});
    if (i)
      chain.cuts.push_back({1e4 * number(random), 1e4 * number(random)});
  }
  chain.shared.push_back({"shared", 3e5, 1e5, {0, count - 1}});
  return chain;
}

static Devices createDevices(double memory) {
  Devices devices;
  devices.count = 5;
  devices.memory = memory;
  devices.flops = 1;
  devices.bandwidth = 2e7;
  devices.latency = 1e-5;
  devices.batch = 12;
  return devices;
}

namespace {
/// The least estimate of all plans of a shape, or infinity: every number of
/// micro-batches, every way to cut, every number of replicas.
class AllPlans {
public:
  AllPlans(const StageChain &chain, const Devices &devices, PlanShape shape)
      : chain(chain), devices(devices), shape(shape) {}

  double find() {
    for (microBatches = 1; microBatches <= devices.batch; ++microBatches)
      if (devices.batch % microBatches == 0 &&
          isWanted(microBatches, shape.microBatches))
        extend(0, devices.count);
    return least;
  }

private:
  static bool isWanted(int64_t number, int64_t wanted) {
    return !wanted || number == wanted;
  }
  void extend(unsigned begin, int64_t rest) {
    if (begin == chain.blocks.size()) {
      if (isWanted(stages.size(), shape.stages))
        rate();
      return;
    }
    for (unsigned end = begin + 1; end <= chain.blocks.size(); ++end)
      for (int64_t replicas = 1; replicas <= rest; ++replicas)
        if (devices.batch / microBatches % replicas == 0 &&
            isWanted(replicas, shape.replicas)) {
          stages.push_back({begin, end, replicas});
          extend(end, rest - replicas);
          stages.pop_back();
        }
  }
  void rate() {
    double longest = 0;
    for (auto [number, stage] : llvm::enumerate(stages)) {
      StageCost cost = getCost(chain, devices, stage, microBatches,
                               stages.size() - 1 - number);
      if (cost.getMemory() > devices.memory)
        return;
      longest =
          std::max(longest, getEstimate(cost, microBatches, stages.size()));
    }
    least = std::min(least, longest);
  }

  const StageChain &chain;
  const Devices &devices;
  PlanShape shape;
  int64_t microBatches = 1;
  SmallVector<Stage> stages;
  double least = INFINITY;
};
} // namespace

TEST(PartitionTest, TheSearchFindsTheBestOfAllPlans) {
  std::mt19937 random(1);
  unsigned plans = 0, none = 0, cut = 0;
  // Half of them are those of any shape.
  const PlanShape shapes[] = {{},        {},        {},        {},
                              {2, 0, 0}, {0, 2, 0}, {0, 0, 4}, {2, 2, 3}};
  for (unsigned i = 0; i < 60; ++i) {
    StageChain chain = createChain(random, 2 + i % 4);
    for (double memory : {1.2e6, 2e6, 4e6, 1e9})
      for (Schedule schedule :
           {Schedule::GPipe, Schedule::OneForwardOneBackward}) {
        Devices devices = createDevices(memory);
        devices.schedule = schedule;
        PlanShape shape = shapes[random() % std::size(shapes)];
        double least = AllPlans(chain, devices, shape).find();
        std::optional<StagePlan> plan = planStages(chain, devices, shape);
        ASSERT_EQ(plan.has_value(), std::isfinite(least));
        if (!plan) {
          ++none;
          continue;
        }
        ++plans;
        cut += plan->stages.size() > 1;
        EXPECT_NEAR(plan->estimate, least, 1e-12);
        // The plan is one, and costs what it says.
        unsigned begin = 0;
        int64_t used = 0;
        double longest = 0;
        for (auto [number, stage] : llvm::enumerate(plan->stages)) {
          EXPECT_EQ(stage.begin, begin);
          begin = stage.end;
          used += stage.replicas;
          if (shape.replicas) {
            EXPECT_EQ(stage.replicas, shape.replicas);
          }
          StageCost cost = getCost(chain, devices, stage, plan->microBatches,
                                   plan->stages.size() - 1 - number);
          EXPECT_LE(cost.getMemory(), memory);
          longest = std::max(longest, getEstimate(cost, plan->microBatches,
                                                  plan->stages.size()));
        }
        EXPECT_EQ(begin, chain.blocks.size());
        EXPECT_LE(used, devices.count);
        if (shape.stages) {
          EXPECT_EQ(int64_t(plan->stages.size()), shape.stages);
        }
        if (shape.microBatches) {
          EXPECT_EQ(plan->microBatches, shape.microBatches);
        }
        EXPECT_NEAR(longest, least, 1e-12);
      }
  }
  // All kinds are there.
  EXPECT_GT(plans, 100u);
  EXPECT_GT(none, 10u);
  EXPECT_GT(cut, 50u);
}

TEST(PartitionTest, MoreOfAMachineIsNeverSlower) {
  std::mt19937 random(2);
  for (unsigned i = 0; i < 20; ++i) {
    StageChain chain = createChain(random, 6);
    auto getEstimates = [&](auto set, ArrayRef<double> amounts) {
      double last = INFINITY;
      for (double amount : amounts) {
        Devices devices = createDevices(3e6);
        set(devices, amount);
        std::optional<StagePlan> plan = planStages(chain, devices);
        double now = plan ? plan->estimate : INFINITY;
        EXPECT_LE(now, last + 1e-15);
        last = now;
      }
      EXPECT_TRUE(std::isfinite(last));
    };
    getEstimates([](Devices &d, double x) { d.memory = x; },
                 {1e6, 1.5e6, 2e6, 3e6, 5e6, 1e7, 1e8});
    getEstimates([](Devices &d, double x) { d.bandwidth = x; },
                 {1e6, 5e6, 2e7, 1e8, 1e10});
    getEstimates([](Devices &d, double x) { d.count = int64_t(x); },
                 {1, 2, 3, 4, 6, 8, 12});
  }
}

TEST(PartitionTest, BlocksAreBalancedAndKeepWhatTheyAreMadeOf) {
  std::mt19937 random(3);
  StageChain parts = createChain(random, 400);
  StageChain merged = mergeBlocks(parts, 32);
  ASSERT_EQ(merged.blocks.size(), 32u);
  ASSERT_EQ(merged.cuts.size(), 31u);
  auto sum = [](const StageChain &chain, auto get) {
    double total = 0;
    for (const StageBlock &block : chain.blocks)
      total += get(block);
    return total;
  };
  auto time = [](const StageBlock &b) { return b.forward + b.backward; };
  auto state = [](const StageBlock &b) { return b.stateBytes; };
  EXPECT_NEAR(sum(merged, time), sum(parts, time), 1e-9);
  EXPECT_NEAR(sum(merged, state), sum(parts, state), 1e-3);
  double longest = 0;
  unsigned begin = 0;
  for (auto [number, block] : llvm::enumerate(merged.blocks)) {
    longest = std::max(longest, time(block));
    EXPECT_EQ(block.begin, begin);
    begin = block.end;
    if (begin != 400) { // a cut is the one that was there
      EXPECT_EQ(merged.cuts[number].forwardBytes,
                parts.cuts[begin - 1].forwardBytes);
    }
  }
  EXPECT_LT(longest * 32 / sum(merged, time), 1.6);
  ASSERT_EQ(merged.shared.size(), 1u);
  EXPECT_EQ(merged.shared[0].parts, (SmallVector<unsigned>{0, 31}));
  // In one block nothing is shared.
  StageChain one = mergeBlocks(parts, 1);
  EXPECT_TRUE(one.shared.empty());
  EXPECT_NEAR(one.blocks[0].stateBytes, sum(parts, state) + 3e5, 1e-3);
}

TEST(PartitionTest, EqualStagesFillThePipelineOnce) {
  // Both schedules take (m + s - 1) times a micro-batch of a stage.
  SmallVector<StageCost> costs(4);
  for (StageCost &cost : costs)
    cost.forward = 1, cost.backward = 2, cost.end = 0.5;
  for (Schedule schedule : {Schedule::GPipe, Schedule::OneForwardOneBackward}) {
    Timeline timeline = simulate(costs, 8, schedule);
    EXPECT_DOUBLE_EQ(timeline.seconds, 3 * (8 + 3) + 0.5);
    EXPECT_NEAR(timeline.bubbles, 3.0 / 11, 1e-12);
    // No stage does two things at once, and none before it can.
    for (auto [number, stage] : llvm::enumerate(timeline.stages)) {
      EXPECT_EQ(stage.size(), 16u);
      for (size_t i = 1; i < stage.size(); ++i)
        EXPECT_GE(stage[i].begin, stage[i - 1].end);
      EXPECT_GE(stage[0].begin, double(number));
    }
  }
}
