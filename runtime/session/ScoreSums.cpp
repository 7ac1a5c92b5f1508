// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of the scores of several steps.

#include "Session.h"
#include "UpdateThreads.h"
#include "base/Status.h"

using namespace sparse_opt;

void bsr_session::sumScores(const int32_t *steps) {
  const std::vector<Pattern> &patterns = manifest().patterns;
  auto isSummed = [&](int64_t i) {
    return steps[i] > 1 && !patterns[i].isStatic;
  };
  // Whatever can fail does so before the first change.
  int64_t count = int64_t(patterns.size());
  for (int64_t i = 0; i < count; ++i)
    if (isSummed(i))
      requireScores(patterns[i]);
  if (hasSums)
    fail(BSR_INVALID_ARGUMENT,
         "expected a run with scores since scores were summed, but got none");
  for (int64_t i = 0; i < count; ++i)
    if (isSummed(i))
      scoreSums[i].reserve(size_t(patterns[i].allBlocks()));
  auto sum = [&](int64_t i) {
    if (!isSummed(i))
      return;
    int32_t place = patterns[i].scores;
    std::vector<float> &sums = scoreSums[i];
    std::vector<char> copy;
    auto *scores = static_cast<float *>(readBuffer(place, copy));
    sums.resize(size_t(patterns[i].allBlocks()));
    for (size_t block = 0; block < sums.size(); ++block)
      scores[block] = sums[block] += scores[block];
    if (!device.isHost())
      device.write(buffers[place], scores, int64_t(copy.size()));
  };
  if (device.isHost()) {
    forEachOnThreads(*this, count,
                     [&](int64_t i, PatternScratch &) { sum(i); });
  } else {
    for (int64_t i = 0; i < count; ++i)
      sum(i);
  }
  hasSums = true;
}

void bsr_session::loadScores(int64_t pattern, std::string_view sums) {
  scoreSums[pattern].resize(sums.size() / sizeof(float));
  sums.copy(reinterpret_cast<char *>(scoreSums[pattern].data()), sums.size());
}

bsr_status bsr_session_sum_scores(bsr_session *session, const int32_t *steps,
                                  int64_t count) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(steps, "steps");
    int64_t patterns = int64_t(session->manifest().patterns.size());
    if (count != patterns)
      fail(BSR_INVALID_ARGUMENT, "expected a number of steps for each of ",
           patterns, " patterns, but got ", count);
    session->requireOwner();
    session->sumScores(steps);
  });
}
