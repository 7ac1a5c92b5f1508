// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the metrics of a run come to.

#ifndef BSR_TOOLS_SPARSETRAIN_TOTALS_H
#define BSR_TOOLS_SPARSETRAIN_TOTALS_H

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace sparse_opt::train {

/// What a summary says of the lines of the metrics, those of a run of `steps`
/// steps.
class Totals {
public:
  explicit Totals(int64_t steps) : steps(steps) {}

  /// Takes what the summary needs from a line of the metrics, which may be one
  /// of another program: what is no number there is passed over.
  void record(const nlohmann::json &entry);
  void record(const nlohmann::ordered_json &entry);

  /// The median of the steps' times.
  std::optional<double> stepTime() const;
  /// The floating-point operations of `done` steps, if all say theirs.
  std::optional<double> flops(int64_t done) const;
  /// Whether the first and the last losses are known.
  bool isWhole() const {
    return firstLoss && lastLoss && firstHeldOut && lastHeldOut;
  }

  /// Of the first step and the last; none if the metrics lack it.
  std::optional<double> firstLoss, lastLoss, firstHeldOut, lastHeldOut;
  double newestHeldOut = 0;

private:
  template <typename Json>
  void take(const Json &entry);

  int64_t steps;
  std::vector<double> stepTimes;
  /// Of as many steps.
  double trainingFlops = 0;
  int64_t countedSteps = 0;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TOTALS_H
