// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Adds up lines of metrics.

#include "Totals.h"

#include <algorithm>

using namespace sparse_opt::train;
using nlohmann::json;
using nlohmann::ordered_json;

/// The middle one of `values`, of which there is one at least.
static double median(std::vector<double> values) {
  auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Json>
void Totals::take(const Json &entry) {
  auto read = [&](const char *key) -> std::optional<double> {
    auto found = entry.find(key);
    if (found == entry.end() || !found->is_number())
      return std::nullopt;
    return found->template get<double>();
  };
  int64_t step = entry["step"];
  if (std::optional<double> loss = read("loss")) {
    if (step == 1)
      firstLoss = loss;
    if (step == steps)
      lastLoss = loss;
    if (std::optional<double> time = read("step_time"))
      stepTimes.push_back(*time);
    if (std::optional<double> flops = read("flops")) {
      trainingFlops += *flops;
      ++countedSteps;
    }
  }
  if (std::optional<double> heldOut = read("held_out")) {
    if (step == 0)
      firstHeldOut = heldOut;
    if (step == steps)
      lastHeldOut = heldOut;
    newestHeldOut = *heldOut;
  }
}

void Totals::record(const json &entry) { take(entry); }

void Totals::record(const ordered_json &entry) { take(entry); }

std::optional<double> Totals::stepTime() const {
  return stepTimes.empty() ? std::nullopt : std::optional(median(stepTimes));
}

std::optional<double> Totals::flops(int64_t done) const {
  return countedSteps == done ? std::optional(trainingFlops) : std::nullopt;
}
