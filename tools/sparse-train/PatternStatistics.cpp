// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the metrics say of the patterns, which the runtime records.

#include "PatternStatistics.h"

#include <numeric>
#include <set>

using namespace sparse_opt;
using namespace sparse_opt::train;

static std::vector<bsr_recorded_pattern> readPatterns(const Session &session) {
  std::vector<bsr_recorded_pattern> patterns;
  for (int64_t i = 0; i < bsr_step_num_patterns(session.step()); ++i) {
    bsr_pattern_info info;
    bsr_step_pattern(session.step(), i, &info);
    patterns.push_back({info.name,
                        info.rows,
                        info.block_rows,
                        info.block_cols,
                        session.statistics(i),
                        /*is_updated=*/0,
                        {}});
  }
  return patterns;
}

void train::describePatterns(const Session &session,
                             const std::vector<bsr_pattern_update> *updates,
                             OrderedJson &entry) {
  std::vector<bsr_recorded_pattern> patterns = readPatterns(session);
  for (size_t i = 0; updates && i < patterns.size(); ++i) {
    patterns[i].update = (*updates)[i];
    patterns[i].is_updated = (*updates)[i].method != BSR_STATIC;
  }
  const char *text;
  if (bsr_record_patterns(int64_t(patterns.size()), patterns.data(),
                          updates != nullptr, &text) != BSR_OK)
    fail(bsr_last_error());
  entry.update(OrderedJson::parse(text));
}

double train::storedShare(const Session &session, const Ranks &ranks,
                          const Place &place,
                          const std::vector<WeightShape> &allWeights) {
  // What an earlier stage has is counted there.
  std::set<std::string> own;
  for (const WeightShape &weight : allWeights)
    if (weight.stage == place.stage)
      own.insert(weight.name);
  int64_t stored = 0, all = 0;
  for (const bsr_recorded_pattern &pattern : readPatterns(session))
    if (own.count(pattern.name)) {
      int64_t block = pattern.block_rows * pattern.block_cols;
      stored += block * pattern.statistics.blocks;
      all += block * pattern.statistics.all_blocks;
    }
  if (place.stages > 1) {
    // The first processes have a stage each.
    auto addStages = [&](int64_t number) {
      std::vector<int64_t> numbers = ranks.gather(number);
      return std::accumulate(numbers.begin(), numbers.begin() + place.stages,
                             int64_t(0));
    };
    stored = addStages(stored);
    all = addStages(all);
  }
  return all ? double(stored) / double(all) : 1;
}
