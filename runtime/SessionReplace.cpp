// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pattern updates by methods of the caller's own.

#include "BlockNorm.h"
#include "Session.h"
#include "Status.h"

using namespace bsr;

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

bsr_status bsr_session_choose_absent(const bsr_session *session, int64_t index,
                                     int64_t numBarred, const int64_t *barred,
                                     int64_t count, int64_t *chosen) {
  return guarded([&] {
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
    chooseAbsent(pattern, barred, numBarred, count,
                 RandomStream(session->counters.seed, "pattern", pattern.name),
                 session->counters.pattern_updates + 1, session->scratch.marks,
                 chosen);
  });
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
    checkPattern(pattern, view(given.pattern), scratch);
    checkReplacement(pattern, chosenBy(given), indices(given.pattern));
  }
  int64_t areas = Memory::areasTaken(), steps = stepsLoaded();
  for (int64_t i = 0; i < count; ++i) {
    int64_t index = replacements[i].pattern;
    const Pattern &pattern = manifest().patterns[index];
    PatternChange change = replaceBlocks(pattern, chosenBy(replacements[i]),
                                         indices(index), scratch);
    storeIndices(index);
    zeroSlots(index, scratch.freed, std::max(change.pruned, change.regrown));
    histories[index].record(pattern, change, scratch);
    counters.blocks_pruned += change.pruned;
    counters.blocks_regrown += change.regrown;
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
