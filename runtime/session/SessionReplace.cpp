// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pattern updates by methods of the caller's own.

#include "Session.h"
#include "UpdateThreads.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include "pattern/OneThread.h"
#include <cmath>

using namespace sparse_opt;

/// Fails unless `count`, that of numbers which `name` names, is `expected`.
static void requireCount(int64_t count, int64_t expected, const char *name,
                         const Pattern &pattern) {
  if (count != expected)
    fail(BSR_INVALID_ARGUMENT, "expected room for ", expected, " ", name,
         " of '", pattern.name, "', but got ", count);
}

void bsr_session::rankBlocks(int64_t index, bsr_norm norm,
                             double *norms) const {
  const Pattern &pattern = manifest().patterns[index];
  const Buffer &weight = manifest().buffers[pattern.weight];
  device.computeNorms(norm, weight.type, buffers[pattern.weight],
                      static_cast<const int32_t *>(
                          buffers[pattern.indices[BSR_SLOT - BSR_ROW_PTR]]),
                      pattern.blockRows * pattern.blockCols, view(index).blocks,
                      room, norms);
  checkNorms(pattern, indices(index), norms);
}

bsr_status bsr_session_norms(const bsr_session *session, int64_t index,
                             bsr_norm norm, int64_t count, double *norms) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(norms, "norms");
    session->requireDynamic(index);
    const Pattern &pattern = session->manifest().patterns[index];
    checkNorm(pattern, numberOf(norm));
    requireCount(count, session->view(index).blocks, "stored blocks", pattern);
    // A NaN is found before anything is written.
    session->rankBlocks(index, norm, session->scratch.norms);
    std::copy_n(session->scratch.norms, count, norms);
  });
}

bsr_status bsr_session_scores(const bsr_session *session, int64_t index,
                              int64_t count, float *scores) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(scores, "scores");
    session->requireDynamic(index);
    const Pattern &pattern = session->manifest().patterns[index];
    requireCount(count, pattern.allBlocks(), "blocks", pattern);
    session->requireScores(pattern);
    session->device.read(scores, session->buffers[pattern.scores],
                         count * int64_t(sizeof(float)));
  });
}

bsr_status bsr_session_stored(const bsr_session *session, int64_t index,
                              int64_t count, int64_t *stored) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(stored, "stored");
    requireIndex(index, int64_t(session->manifest().patterns.size()),
                 "patterns");
    const Pattern &pattern = session->manifest().patterns[index];
    bsr_pattern_view view = session->view(index);
    requireCount(count, view.blocks, "stored blocks", pattern);
    listStored(pattern, view.row_ptr, view.col_idx, stored);
  });
}

/// The pattern `index`. Fails unless the `numBarred` numbers of `barred` are of
/// its blocks, and rise, and leave `count` others for `chosen`.
static const Pattern &requireChoice(const bsr_session *session, int64_t index,
                                    int64_t numBarred, const int64_t *barred,
                                    int64_t count, const int64_t *chosen) {
  requireArgument(session, "session");
  requireArgument(barred, "barred");
  requireArgument(chosen, "chosen");
  session->requireDynamic(index);
  const Pattern &pattern = session->manifest().patterns[index];
  auto refuse = [&](const auto &...parts) {
    fail(BSR_INVALID_ARGUMENT, parts..., " for pattern '", pattern.name, "'");
  };
  if (numBarred < 0 || numBarred > pattern.allBlocks())
    refuse("expected at most ", pattern.allBlocks(),
           " blocks to leave out, but got ", numBarred);
  for (int64_t k = 0; k < numBarred; ++k)
    if (barred[k] < (k ? barred[k - 1] + 1 : 0) ||
        barred[k] >= pattern.allBlocks())
      refuse("expected rising numbers of blocks below ", pattern.allBlocks(),
             " to leave out, but got ", barred[k]);
  if (count < 0 || count > pattern.allBlocks() - numBarred)
    refuse("expected at most the ", pattern.allBlocks() - numBarred,
           " blocks that may be chosen, but got ", count);
  return pattern;
}

bsr_status bsr_session_choose_absent(const bsr_session *session, int64_t index,
                                     int64_t numBarred, const int64_t *barred,
                                     int64_t count, int64_t *chosen) {
  return guarded([&] {
    const Pattern &pattern =
        requireChoice(session, index, numBarred, barred, count, chosen);
    chooseAbsent(pattern, barred, numBarred, count,
                 RandomStream(session->counters.seed, "pattern", pattern.name),
                 session->counters.pattern_updates + 1, session->scratch.marks,
                 chosen);
  });
}

/// `takeLowest` into `taken`, which has no room for one more.
template <typename KeyAt>
static void copyLowest(int64_t items, int64_t count, KeyAt keyAt,
                       int64_t *taken) {
  std::vector<int64_t> places(size_t(count) + 1);
  takeLowest(items, count, keyAt, places.data());
  std::copy_n(places.data(), count, taken);
}

bsr_status bsr_session_choose_scored(const bsr_session *session, int64_t index,
                                     int64_t numBarred, const int64_t *barred,
                                     int64_t count, int64_t *chosen) {
  return guarded([&] {
    const Pattern &pattern =
        requireChoice(session, index, numBarred, barred, count, chosen);
    session->requireScores(pattern);
    std::vector<char> copy;
    const auto *scores =
        static_cast<const float *>(session->readBuffer(pattern.scores, copy));
    int64_t all = pattern.allBlocks();
    if (hasNaN(scores, all))
      for (int64_t block = 0, k = 0; block < all; ++block) {
        if (k < numBarred && barred[k] == block)
          ++k;
        else if (std::isnan(scores[block]))
          refuseNaNScore(pattern, block);
      }
    std::vector<uint32_t> keys(size_t(all), 0);
    for (int64_t block = 0; block < all; ++block)
      keys[size_t(block)] = ~keyOf(scores[block]);
    // What orders above every number is never chosen.
    for (int64_t k = 0; k < numBarred; ++k)
      keys[size_t(barred[k])] = ~uint32_t(0);
    copyLowest(
        all, count, [&](int64_t block) { return keys[size_t(block)]; }, chosen);
  });
}

/// An unsigned number that orders as `number`, which may be negative.
static uint64_t signedKeyOf(double number) {
  uint64_t key = keyOf(number + 0.0);
  return key ^ (-(key >> 63) | uint64_t(1) << 63);
}
static uint64_t signedKeyOf(int64_t number) {
  return uint64_t(number) ^ uint64_t(1) << 63;
}

/// Writes the places of the `count` numbers of the lowest keys.
template <typename T, typename KeyOf>
static void chooseLowest(int64_t size, const void *data, int64_t count,
                         KeyOf keyOf, int64_t *places) {
  auto *numbers = static_cast<const T *>(data);
  bool hasNaN = false;
  for (int64_t i = 0; i < size; ++i)
    hasNaN |= numbers[i] != numbers[i];
  if (hasNaN)
    fail(BSR_NOT_A_NUMBER, "expected numbers to choose from, but got NaN at ",
         std::find_if(numbers, numbers + size, [](T t) { return t != t; }) -
             numbers);
  copyLowest(
      size, count, [&](int64_t i) { return keyOf(numbers[i]); }, places);
}

/// Chooses the lowest numbers, or the highest, of any type that can be chosen
/// from.
static bsr_status choose(bool highest, bsr_type type, int64_t size,
                         const void *numbers, int64_t count, int64_t *places) {
  return guarded([&] {
    requireArgument(numbers, "numbers");
    requireArgument(places, "places");
    if (size < 0)
      fail(BSR_INVALID_ARGUMENT,
           "expected a number of numbers from 0, but got ", size);
    if (count < 0 || count > size)
      fail(BSR_INVALID_ARGUMENT, "expected a count of at most the ", size,
           " numbers to choose from, but got ", count);
    uint64_t turned = highest ? ~uint64_t(0) : 0;
    switch (numberOf(type)) {
    case BSR_F32:
      return chooseLowest<float>(
          size, numbers, count,
          [&](float n) { return keyOf(n) ^ uint32_t(turned); }, places);
    case BSR_F64:
      return chooseLowest<double>(
          size, numbers, count,
          [&](double n) { return signedKeyOf(n) ^ turned; }, places);
    case BSR_I64:
      return chooseLowest<int64_t>(
          size, numbers, count,
          [&](int64_t n) { return signedKeyOf(n) ^ turned; }, places);
    case BSR_UI64:
      return chooseLowest<uint64_t>(
          size, numbers, count, [&](uint64_t n) { return n ^ turned; }, places);
    default:
      fail(BSR_INVALID_ARGUMENT,
           "expected numbers of type f32, f64, i64 or ui64 to choose from, but "
           "got those of type ",
           numberOf(type));
    }
  });
}

bsr_status bsr_lowest(bsr_type type, int64_t size, const void *numbers,
                      int64_t count, int64_t *places) {
  return choose(/*highest=*/false, type, size, numbers, count, places);
}

bsr_status bsr_highest(bsr_type type, int64_t size, const void *numbers,
                       int64_t count, int64_t *places) {
  return choose(/*highest=*/true, type, size, numbers, count, places);
}

void bsr_session::replacePatterns(const bsr_replacement *replacements,
                                  int64_t count) {
  auto chosenBy = [](const bsr_replacement &given) {
    return ChosenBlocks{given.pruned, given.regrown, given.num_pruned,
                        given.num_regrown};
  };
  // Whatever can fail does so before the first change.
  std::vector<bool> isReplaced(manifest().patterns.size());
  for (int64_t i = 0; i < count; ++i) {
    const bsr_replacement &given = replacements[i];
    requireDynamic(given.pattern);
    const Pattern &pattern = manifest().patterns[given.pattern];
    if (isReplaced[given.pattern])
      fail(BSR_INVALID_ARGUMENT,
           "expected one update of each pattern, but got "
           "a second one of '",
           pattern.name, "'");
    isReplaced[given.pattern] = true;
  }
  forEachOnThreads(*this, count, [&](int64_t i, PatternScratch &own) {
    int64_t index = replacements[i].pattern;
    const Pattern &pattern = manifest().patterns[index];
    checkPattern(pattern, view(index), own);
    checkReplacement(pattern, chosenBy(replacements[i]), indices(index));
  });
  int64_t areas = Memory::areasTaken(), steps = stepsLoaded();
  auto replace = [&](int64_t i, PatternScratch &own) {
    int64_t index = replacements[i].pattern;
    const Pattern &pattern = manifest().patterns[index];
    PatternChange change =
        replaceBlocks(pattern, chosenBy(replacements[i]), indices(index), own);
    storeIndices(index);
    resetSlots(index, change, own);
    histories[index].record(pattern, change, own);
  };
  if (device.isHost()) {
    forEachOnThreads(*this, count, replace);
  } else {
    // The device has one room to work in.
    for (int64_t i = 0; i < count; ++i)
      replace(i, scratch);
  }
  for (int64_t i = 0; i < count; ++i) {
    const PatternHistory &history = histories[replacements[i].pattern];
    scoreSums[replacements[i].pattern].clear();
    counters.blocks_pruned += history.pruned;
    counters.blocks_regrown += history.regrown;
  }
  bool keepsScores = hasScores; // they are of all blocks, and still there
  patternsChanged();
  hasScores = keepsScores;
  ++counters.pattern_updates;
  counters.reallocations += Memory::areasTaken() - areas;
  counters.recompilations += stepsLoaded() - steps;
}

bsr_status bsr_session_replace(bsr_session *session,
                               const bsr_replacement *replacements,
                               int64_t count) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(replacements, "replacements");
    if (count < 0)
      fail(BSR_INVALID_ARGUMENT,
           "expected a number of replacements from 0, but got ", count);
    for (int64_t i = 0; i < count; ++i) {
      const bsr_replacement &given = replacements[i];
      if (given.num_pruned < 0 || given.num_regrown < 0)
        fail(BSR_INVALID_ARGUMENT,
             "expected numbers of blocks from 0, but got ", given.num_pruned,
             " to prune and ", given.num_regrown, " to regrow");
      if (given.num_pruned)
        requireArgument(given.pruned, "pruned");
      if (given.num_regrown)
        requireArgument(given.regrown, "regrown");
    }
    session->requireOwner();
    session->replacePatterns(replacements, count);
  });
}
