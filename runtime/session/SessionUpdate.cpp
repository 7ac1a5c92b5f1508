// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pattern updates of a training run, and what is known of them.

#include "DeviceUpdate.h"
#include "Session.h"
#include "UpdateThreads.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include <algorithm>
#include <cmath>
#include <mutex>

using namespace sparse_opt;

/// Fails unless `rule` can be an update of pattern `index`.
static void checkRule(const bsr_session &session, int64_t index,
                      const bsr_pattern_update &rule) {
  const Pattern &pattern = session.manifest().patterns[index];
  auto refuse = [&](const auto &...parts) {
    fail(BSR_INVALID_ARGUMENT, parts..., " for pattern '", pattern.name, "'");
  };
  if (int32_t method = numberOf(rule.method); method < 0 || method > BSR_GMP)
    refuse("expected a method from 0 to ", int(BSR_GMP), ", but got ", method);
  checkNorm(pattern, numberOf(rule.norm));
  if (bsr_method_has_drop(rule.method) && !(rule.drop >= 0 && rule.drop <= 1))
    refuse("expected a drop fraction in [0, 1], but got ", rule.drop);
  if (rule.method == BSR_GMP && rule.blocks < 0)
    refuse("expected a number of blocks from 0, but got ", rule.blocks);
  if (rule.together && (rule.together < 0 || rule.method != BSR_GMP))
    refuse("expected 0 but for gmp, or a number above it, of updates together, "
           "but got ",
           rule.together);
  if (bsr_method_reads_scores(rule.method))
    session.requireScores(pattern);
}

void bsr_session::requireScores(const Pattern &pattern) const {
  auto refuse = [&](const char *what) {
    fail(BSR_INVALID_ARGUMENT, what, " for pattern '", pattern.name, "'");
  };
  if (pattern.scores < 0)
    refuse("expected a step that was compiled with scores of blocks, but got "
           "one without");
  if (!hasScores)
    refuse("expected an update by scores right after a run with scores, but "
           "got a plain run, a restore, a load or another update since");
}

bool sparse_opt::hasNaN(const float *data, int64_t size) {
  bool found = false;
  for (int64_t i = 0; i < size; ++i)
    found |= data[i] != data[i];
  return found;
}

/// Fails if one of the scores that an update may look at is NaN.
static void checkScores(const Pattern &pattern, const bsr_pattern_update &rule,
                        const float *scores, const PatternIndices &indices) {
  int64_t cols = pattern.gridCols();
  for (int64_t r = 0; r < pattern.gridRows(); ++r) {
    if (!hasNaN(scores + r * cols, cols))
      continue;
    const int32_t *stored = indices.colIdx + indices.rowPtr[r];
    const int32_t *end = indices.colIdx + indices.rowPtr[r + 1];
    for (int64_t c = 0; c < cols; ++c)
      if (std::isnan(scores[r * cols + c]) &&
          (rule.allow_return || !std::binary_search(stored, end, c)))
        refuseNaNScore(pattern, r * cols + c);
  }
}

/// Calls `body(index, scratch)` for each pattern that `updates` change, on
/// several threads. Fails as the first of the patterns that do.
template <typename Body>
static void forEachUpdated(const bsr_session &session,
                           const bsr_pattern_update *updates, Body body) {
  const std::vector<Pattern> &patterns = session.manifest().patterns;
  forEachOnThreads(session, int64_t(patterns.size()),
                   [&](int64_t i, PatternScratch &scratch) {
                     if (!patterns[i].isStatic &&
                         updates[i].method != BSR_STATIC)
                       body(i, scratch);
                   });
}

void bsr_session::updateOnHost(const bsr_pattern_update *updates) {
  auto scoresOf = [&](int64_t i) {
    return bsr_method_reads_scores(updates[i].method)
               ? static_cast<float *>(buffers[manifest().patterns[i].scores])
               : nullptr;
  };
  forEachUpdated(*this, updates, [&](int64_t i, PatternScratch &scratch) {
    const Pattern &pattern = manifest().patterns[i];
    checkPattern(pattern, view(i), scratch);
    rankBlocks(i, updates[i].norm, scratch.norms);
    if (const float *scores = scoresOf(i))
      checkScores(pattern, updates[i], scores, indices(i));
    choosePruned(pattern, updates[i], indices(i), scratch, pruneFlags[i]);
  });
  forEachUpdated(*this, updates, [&](int64_t i, PatternScratch &scratch) {
    const Pattern &pattern = manifest().patterns[i];
    PatternChange change = updatePattern(
        pattern, updates[i], pruneFlags[i], scoresOf(i), counters.seed,
        counters.pattern_updates + 1, indices(i), scratch);
    resetSlots(i, change, scratch);
    histories[i].record(pattern, change, scratch);
  });
}

void bsr_session::updateOnDevice(const bsr_pattern_update *updates) {
  DeviceUpdate update(*this, updates);
  update.start();
  forEachUpdated(*this, updates, [&](int64_t i, PatternScratch &scratch) {
    checkPattern(manifest().patterns[i], view(i), scratch);
  });
  update.requireNumbers();
  update.run();
  std::mutex inRoom;
  forEachUpdated(*this, updates, [&](int64_t i, PatternScratch &scratch) {
    PatternChange change = update.follow(i, scratch);
    if (newBlocks[i].values || newBlocks[i].state) {
      // The device has one room to work in.
      std::lock_guard<std::mutex> lock(inRoom);
      resetSlots(i, change, scratch);
    }
    histories[i].record(manifest().patterns[i], change, scratch);
  });
}

void bsr_session::updatePatterns(const bsr_pattern_update *given) {
  // Whatever can fail does so before the first change.
  for (size_t i = 0; i < manifest().patterns.size(); ++i)
    if (!manifest().patterns[i].isStatic)
      checkRule(*this, int64_t(i), given[i]);
  const bsr_pattern_update *updates = given;
  std::vector<bsr_pattern_update> shared;
  if (std::any_of(given, given + manifest().patterns.size(),
                  [](const auto &update) { return update.together != 0; })) {
    shared.assign(given, given + manifest().patterns.size());
    shareBlocks(shared);
    updates = shared.data();
  }
  int64_t areas = Memory::areasTaken(), steps = stepsLoaded();
  if (device.isHost())
    updateOnHost(updates);
  else
    updateOnDevice(updates);
  patternsChanged();
  ++counters.pattern_updates;
  for (size_t i = 0; i < manifest().patterns.size(); ++i) {
    if (manifest().patterns[i].isStatic || updates[i].method == BSR_STATIC)
      continue;
    scoreSums[i].clear();
    counters.blocks_pruned += histories[i].pruned;
    counters.blocks_regrown += histories[i].regrown;
  }
  counters.reallocations += Memory::areasTaken() - areas;
  counters.recompilations += stepsLoaded() - steps;
}

void PatternHistory::record(const Pattern &pattern, const PatternChange &change,
                            const PatternScratch &scratch) {
  pruned = change.pruned;
  regrown = change.regrown;
  newestBefore = newestPruned = 0;
  for (int64_t word = 0; word < newestWords(pattern); ++word)
    newestBefore += __builtin_popcountll(newest[word]);
  for (int64_t k = 0; k < pruned; ++k)
    newestPruned += newest[scratch.freed[k] / 64] >> scratch.freed[k] % 64 & 1;
  std::fill_n(newest, newestWords(pattern), 0);
  for (int64_t k = 0; k < regrown; ++k) {
    newest[scratch.freed[k] / 64] |= uint64_t(1) << scratch.freed[k] % 64;
    addStored(scratch.regrown[k]);
  }
}

void bsr_session::patternMade(int64_t index) {
  storeIndices(index);
  hasPattern[index] = true;
  patternsChanged();
  scoreSums[index].clear();
  const Pattern &pattern = manifest().patterns[index];
  PatternHistory &history = histories[index];
  if (!counters.steps && !counters.pattern_updates) {
    std::fill_n(history.ever, PatternHistory::everWords(pattern), 0);
    history.everStored = 0;
  }
  std::fill_n(history.newest, PatternHistory::newestWords(pattern), 0);
  history.pruned = history.regrown = 0;
  history.newestBefore = history.newestPruned = 0;
  bsr_pattern_view own = view(index);
  for (int64_t r = 0; r < pattern.gridRows(); ++r)
    for (int32_t k = own.row_ptr[r]; k < own.row_ptr[r + 1]; ++k)
      history.addStored(r * pattern.gridCols() + own.col_idx[k]);
}

void bsr_session::loadHistory(int64_t index, std::string_view ever,
                              std::string_view newest) {
  const Pattern &pattern = manifest().patterns[index];
  PatternHistory &history = histories[index];
  std::fill_n(history.ever, PatternHistory::everWords(pattern), 0);
  ever.copy(reinterpret_cast<char *>(history.ever), ever.size());
  history.everStored = 0;
  for (int64_t word = 0; word < PatternHistory::everWords(pattern); ++word)
    history.everStored += __builtin_popcountll(history.ever[word]);
  patternMade(index);
  newest.copy(reinterpret_cast<char *>(history.newest), newest.size());
}

/// The most blocks between two neighbours of `pointers`.
static int64_t mostBetween(const int32_t *pointers, int64_t size) {
  int64_t most = 0;
  for (int64_t i = 0; i < size; ++i)
    most = std::max<int64_t>(most, pointers[i + 1] - pointers[i]);
  return most;
}

bsr_status bsr_session_update(bsr_session *session,
                              const bsr_pattern_update *updates,
                              int64_t count) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(updates, "updates");
    int64_t patterns = int64_t(session->manifest().patterns.size());
    if (count != patterns)
      fail(BSR_INVALID_ARGUMENT, "expected an update for each of ", patterns,
           " patterns, but got ", count);
    session->requireOwner();
    session->updatePatterns(updates);
  });
}

bsr_status bsr_session_statistics(const bsr_session *session, int64_t index,
                                  bsr_pattern_statistics *statistics) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(statistics, "statistics");
    session->requireOwner();
    const auto &patterns = session->manifest().patterns;
    requireIndex(index, int64_t(patterns.size()), "patterns");
    const Pattern &pattern = patterns[index];
    const PatternHistory &history = session->histories[index];
    bsr_pattern_view view = session->view(index);
    *statistics = {view.blocks,
                   pattern.allBlocks(),
                   pattern.isStatic ? view.blocks : history.everStored,
                   mostBetween(view.row_ptr, pattern.gridRows()),
                   mostBetween(view.col_ptr, pattern.gridCols()),
                   history.pruned,
                   history.regrown,
                   history.newestBefore,
                   history.newestPruned};
  });
}

double bsr_drop_fraction(bsr_schedule schedule, double drop, double t) {
  t = std::min(std::max(t, 0.0), 1.0);
  switch (schedule) {
  case BSR_LINEAR:
    return drop * (1 - t);
  case BSR_COSINE:
    return drop * cosHalfPi(t) * cosHalfPi(t);
  default:
    return drop;
  }
}
