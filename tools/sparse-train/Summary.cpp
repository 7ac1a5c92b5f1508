// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers what a summary says.

#include "Summary.h"
#include "DescribeStep.h"
#include "Host.h"
#include "Timers.h"

#include <cstdio>
#include <optional>

using namespace sparse_opt;
using namespace sparse_opt::train;
using nlohmann::ordered_json;

/// `value`, or null where there is none.
static ordered_json orNull(const std::optional<double> &value) {
  return value ? ordered_json(*value) : ordered_json();
}

/// `value` in words.
static std::string inWords(const std::optional<double> &value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", value.value_or(0));
  return value ? text : "unknown";
}

ordered_json Summary::toJson() const {
  bsr_counters counters = session.counters();
  std::optional<double> stepTime = totals.stepTime(), rate;
  if (stepTime)
    rate = tokensPerStep / *stepTime;
  ordered_json lengths;
  std::vector<double> rates;
  for (const auto &[length, own] : totals.lengths()) {
    rates.insert(rates.end(), own.tokensPerSecond.begin(),
                 own.tokensPerSecond.end());
    lengths[std::to_string(length)] = {
        {"steps", own.stepTimes.size()},
        {"median_step_time", median(own.stepTimes)},
        {"tokens_per_s", median(own.tokensPerSecond)}};
  }
  if (!rates.empty())
    rate = median(rates);
  Blocks blocks = countBlocks(session);
  ordered_json summary = {
      {"step", bsr_step_name(session.step())},
      {"target_cpu", bsr_step_target_cpu(session.step())},
      {"steps", steps},
      {"loss_start", orNull(totals.firstLoss)},
      {"loss_end", orNull(totals.lastLoss)},
      {"held_out_start", orNull(totals.firstHeldOut)},
      {"held_out_end", orNull(totals.lastHeldOut)},
      {"unigram_entropy", orNull(data.unigramEntropy())},
      {"median_step_time", orNull(stepTime)},
      {"tokens_per_s", orNull(rate)},
      {"training_flops", orNull(totals.flops(steps))},
      {"peak_memory", peakMemory()},
      {"sparse_products", countSparseProducts(session.step())},
      {"dense_products", bsr_step_num_products(session.step(), "dense")},
      {"left_dense", bsr_step_num_left_dense(session.step())},
      {"blocks_stored", blocks.stored},
      {"blocks", blocks.all},
      {"static_patterns", blocks.staticPatterns},
      {"pattern_updates", counters.pattern_updates},
      {"blocks_pruned", counters.blocks_pruned},
      {"blocks_regrown", counters.blocks_regrown},
      {"recompilations", counters.recompilations},
      {"reallocations", counters.reallocations}};
  if (!lengths.is_null())
    summary["lengths"] = lengths;
  if (ranks.areJoined()) {
    // Of rank 0, since this program began.
    bsr_communicator_counters reduced = ranks.counters();
    summary["processes"] = ranks.size();
    summary["reductions"] = reduced.reductions;
    summary["bytes_reduced"] = reduced.bytes_reduced;
    summary["bytes_sent"] = reduced.bytes_sent;
    summary["buckets"] = reduced.buckets;
    summary["reduction_time"] = reduced.nanoseconds * 1e-9;
    summary["reduction_wait_time"] = reduced.waited_nanoseconds * 1e-9;
    summary["reduction_hidden"] = orNull(hiddenShare(reduced));
    summary["state_bytes"] = memory.state;
    summary["state_bytes_in_one"] = memory.wholeState;
    summary["session_bytes"] = memory.session;
    summary["peak_memory_of_each"] = memory.peak;
  }
  return summary;
}

std::string Summary::describe() const {
  bsr_counters counters = session.counters();
  std::optional<double> entropy = data.unigramEntropy();
  char text[512];
  std::string ofLengths;
  for (const auto &[length, own] : totals.lengths()) {
    std::snprintf(text, sizeof(text),
                  "length %lld: %zu steps, median %.1f ms, %.0f tokens/s\n",
                  (long long)length, own.stepTimes.size(),
                  median(own.stepTimes) * 1e3, median(own.tokensPerSecond));
    ofLengths += text;
  }
  std::snprintf(
      text, sizeof(text),
      "held-out loss %s at the start, %s at the end%s%s\n"
      "median step %.1f ms, peak memory %.0f MiB\n"
      "%lld pattern updates: %lld blocks pruned, %lld regrown, "
      "%lld recompilations, %lld reallocations\n",
      inWords(totals.firstHeldOut).c_str(), inWords(totals.lastHeldOut).c_str(),
      entropy ? "; unigram entropy " : "",
      entropy ? inWords(entropy).c_str() : "",
      totals.stepTime().value_or(0) * 1e3, peakMemory() / 1048576.0,
      (long long)counters.pattern_updates, (long long)counters.blocks_pruned,
      (long long)counters.blocks_regrown, (long long)counters.recompilations,
      (long long)counters.reallocations);
  return text + ofLengths + (ranks.size() > 1 ? train::describe(memory) : "");
}
