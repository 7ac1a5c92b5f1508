// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints a plan as a table.

#include "Report.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::formatv;

Report::Report(const StepParts &step, const StageChain &chain,
               const Devices &devices, const StagePlan &plan)
    : step(step), chain(chain), devices(devices), plan(plan) {
  for (auto [number, stage] : llvm::enumerate(plan.stages))
    costs.push_back(getCost(chain, devices, stage, plan.microBatches,
                            plan.stages.size() - 1 - number));
  timeline = simulate(costs, plan.microBatches, devices.schedule);
}

StringRef Report::getFirst(unsigned number) const {
  return step.parts[chain.blocks[plan.stages[number].begin].begin].name;
}

StringRef Report::getLast(unsigned number) const {
  return step.parts[chain.blocks[plan.stages[number].end - 1].end - 1].name;
}

/// The longest block over the mean.
static double getImbalance(const StageChain &chain) {
  double longest = 0, total = 0;
  for (const StageBlock &block : chain.blocks) {
    double time = block.forward + block.backward;
    longest = std::max(longest, time);
    total += time;
  }
  return total > 0 ? longest * double(chain.blocks.size()) / total : 1;
}

void bsr::printTable(const Report &report, llvm::raw_ostream &os) {
  const StagePlan &plan = report.plan;
  double state = 0;
  for (const StageBlock &block : report.chain.blocks)
    state += block.stateBytes;
  for (const SharedState &shared : report.chain.shared)
    state += shared.stateBytes;
  os << formatv("{0} parts with {1} of state, {2} blocks (the longest "
                "{3:f3} x the mean)\n",
                report.step.parts.size(), formatBytes(state),
                report.chain.blocks.size(), getImbalance(report.chain));
  for (const SharedState &shared : report.chain.shared)
    os << formatv("{0} is read by {1} blocks: their gradients are summed "
                  "where stages part them\n",
                  shared.name, shared.parts.size());
  os << "\n"
     << formatv("{0,5}  {1,7}  {2,7}  {3,10}  {4,11}  {5,11}  {6,11}  {7,11}  "
                "{8}\n",
                "stage", "devices", "samples", "forward ms", "backward ms",
                "memory", "sent", "reduced", "parts");
  int64_t used = 0;
  double sent = 0, reduced = 0;
  for (auto [number, stage] : llvm::enumerate(plan.stages)) {
    const StageCost &cost = report.costs[number];
    used += stage.replicas;
    sent += cost.sentBytes * double(stage.replicas);
    reduced += cost.reducedBytes * double(stage.replicas);
    os << formatv("{0,5}  {1,7}  {2,7}  {3,10:f3}  {4,11:f3}  {5,11}  {6,11}  "
                  "{7,11}  {8} "
                  ".. {9}\n",
                  number, stage.replicas,
                  report.devices.batch / plan.microBatches / stage.replicas,
                  cost.forward * 1e3, cost.backward * 1e3,
                  formatBytes(cost.getMemory()), formatBytes(cost.sentBytes),
                  formatBytes(cost.reducedBytes), report.getFirst(number),
                  report.getLast(number));
  }
  os << "\nsamples: of a device and a micro-batch; memory: of a device; "
        "sent, reduced: by a device in a step\n\n"
     << formatv("{0} stages on {1} of {2} devices, {3} micro-batches of {4} "
                "samples, {5}\n",
                plan.stages.size(), used, report.devices.count,
                plan.microBatches, report.devices.batch / plan.microBatches,
                report.devices.schedule == Schedule::GPipe ? "gpipe" : "1f1b")
     << formatv("predicted: {0:f3} ms a step (estimate {1:f3}); bubbles "
                "{2:f1} %; {3} sent, {4} reduced by all\n",
                report.timeline.seconds * 1e3, plan.estimate * 1e3,
                report.timeline.bubbles * 100, formatBytes(sent),
                formatBytes(reduced));
}
