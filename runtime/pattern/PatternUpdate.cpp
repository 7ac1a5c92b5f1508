// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prunes the blocks of the lowest norm and regrows others in their slots.

#include "OneThread.h"
#include "Pattern.h"
#include "base/Status.h"

using namespace sparse_opt;

int32_t bsr_method_reads_scores(bsr_method method) {
  return method == BSR_RIGL;
}

int32_t bsr_method_has_drop(bsr_method method) {
  return method == BSR_SET || method == BSR_RIGL;
}

int64_t sparse_opt::countPruned(const Pattern &pattern,
                                const bsr_pattern_update &rule,
                                int64_t blocks) {
  if (rule.method == BSR_STATIC)
    return 0;
  if (rule.method == BSR_GMP)
    return std::max<int64_t>(blocks - rule.blocks, 0);
  int64_t count = int64_t(rule.drop * double(blocks) + 0.5);
  return rule.allow_return ? count
                           : std::min(count, pattern.allBlocks() - blocks);
}

UpdateRow sparse_opt::describeUpdate(const Pattern &pattern,
                                     const bsr_pattern_update &rule,
                                     int64_t blocks) {
  UpdateRow row = {};
  row.elements = uint32_t(pattern.blockRows * pattern.blockCols);
  row.rows = uint32_t(pattern.gridRows());
  row.cols = uint32_t(pattern.gridCols());
  row.blocks = uint32_t(blocks);
  row.count = uint32_t(countPruned(pattern, rule, blocks));
  bool regrows = bsr_method_has_drop(rule.method);
  row.regrowth = bsr_method_reads_scores(rule.method) ? Regrowth::Scores
                 : regrows                            ? Regrowth::Ranks
                                                      : Regrowth::None;
  row.returns = regrows && rule.allow_return;
  row.rounds = UpdateRow::roundsOf(uint64_t(blocks));
  return row;
}

void sparse_opt::drawRanks(const Pattern &pattern, const UpdateRow &row,
                           uint64_t seed, int64_t update, uint64_t *marks,
                           int64_t *ranks) {
  int64_t barred = row.blocks - (row.returns ? row.count : 0);
  chooseRanks(pattern.allBlocks() - barred, row.count,
              RandomStream(seed, "pattern", pattern.name), update, marks,
              ranks);
}

namespace {
/// A pattern of the host and what its update works with, step by step.
class Update {
public:
  Update(const Pattern &pattern, UpdateRow row, const PatternIndices &indices,
         PatternScratch &scratch, uint8_t *flags)
      : row(row), team(this->row), pattern(pattern), indices(indices),
        scratch(scratch), flags(flags) {
    setViews(this->row, indices);
    this->row.norms = placeOf(scratch.norms);
    this->row.stored = placeOf(scratch.stored);
    this->row.kept = placeOf(scratch.kept);
    this->row.keptSlots = placeOf(scratch.keptSlots);
    this->row.flags = placeOf(flags);
    this->row.chosen = placeOf(row.returns ? scratch.chosen : scratch.regrown);
    this->row.fresh = placeOf(scratch.regrown);
    this->row.pruned = placeOf(scratch.pruned);
    this->row.freed = placeOf(scratch.freed);
    this->row.result = placeOf(&result);
  }
  /// One whose blocks somebody else has chosen.
  Update(const Pattern &pattern, const PatternIndices &indices,
         PatternScratch &scratch)
      : Update(pattern,
               describeUpdate(pattern, {}, indices.rowPtr[pattern.gridRows()]),
               indices, scratch, scratch.flags) {
    listStored(team);
    std::fill_n(flags, row.blocks, 0);
  }

  /// Prunes block `k` of the row view.
  void prune(int64_t k) { flags[k] = true; }

  /// Replaces the pruned blocks by those of `numbers`.
  PatternChange replace(const int64_t *numbers, int64_t regrown) {
    std::copy_n(numbers, regrown, scratch.regrown);
    auto pruned = int64_t(splitStored(team));
    if (regrown > pruned)
      findFree(pruned, regrown);
    int64_t kept = row.blocks - pruned;
    mergeStored(team, uint64_t(kept), uint64_t(regrown));
    makeViews(team, uint64_t(kept + regrown));
    return {pruned, regrown};
  }

  UpdateRow row;
  UpdateResult result = {};
  OneThread team;

private:
  /// Puts the lowest slots without a block behind those that pruned ones free.
  void findFree(int64_t pruned, int64_t regrown) {
    std::fill_n(scratch.marks, pattern.slots / 64 + 1, 0);
    std::for_each_n(indices.slot, row.blocks, [&](int32_t slot) {
      scratch.marks[slot / 64] |= uint64_t(1) << (slot % 64);
    });
    int64_t freed = pruned;
    for (int64_t slot = 0; freed < regrown; ++slot)
      if (!(scratch.marks[slot / 64] >> (slot % 64) & 1))
        scratch.freed[freed++] = int32_t(slot);
  }

  const Pattern &pattern;
  const PatternIndices &indices;
  PatternScratch &scratch;
  uint8_t *flags;
};
} // namespace

void sparse_opt::choosePruned(const Pattern &pattern,
                              const bsr_pattern_update &rule,
                              const PatternIndices &indices,
                              PatternScratch &scratch, uint8_t *flags) {
  UpdateRow row =
      describeUpdate(pattern, rule, indices.rowPtr[pattern.gridRows()]);
  Update state(pattern, row, indices, scratch, flags);
  if (row.count)
    choosePruned(state.team);
}

PatternChange sparse_opt::updatePattern(const Pattern &pattern,
                                        const bsr_pattern_update &rule,
                                        uint8_t *flags, float *scores,
                                        uint64_t seed, int64_t update,
                                        const PatternIndices &indices,
                                        PatternScratch &scratch) {
  UpdateRow row =
      describeUpdate(pattern, rule, indices.rowPtr[pattern.gridRows()]);
  if (!row.count)
    return {0, 0};
  row.scores = placeOf(scores);
  Update state(pattern, row, indices, scratch, flags);
  if (row.regrowth == Regrowth::Ranks)
    drawRanks(pattern, row, seed, update, scratch.marks,
              atPlace<int64_t>(state.row.chosen));
  changePattern(state.team);
  return {int64_t(state.result.numPruned), int64_t(state.result.numRegrown)};
}

PatternChange sparse_opt::followDevice(const Pattern &pattern,
                                       const int32_t *pruned, int64_t numPruned,
                                       const int64_t *regrown,
                                       int64_t numRegrown,
                                       const PatternIndices &indices,
                                       PatternScratch &scratch) {
  Update state(pattern, indices, scratch);
  std::for_each_n(pruned, numPruned, [&](int32_t k) { state.prune(k); });
  return state.replace(regrown, numRegrown);
}

/// Fails unless the `count` numbers of `blocks` of `pattern`, which are to be
/// `purpose`, rise and are each stored, or each absent.
static void checkChosen(const Pattern &pattern, const int64_t *blocks,
                        int64_t count, bool isStored, const char *purpose,
                        const PatternIndices &indices) {
  int64_t before = -1;
  for (int64_t k = 0; k < count; ++k) {
    int64_t block = blocks[k];
    if (block <= before || block >= pattern.allBlocks())
      fail(BSR_INVALID_ARGUMENT, "expected rising numbers below ",
           pattern.allBlocks(), " of the blocks of '", pattern.name, "' to ",
           purpose, ", but got ", block,
           k ? " behind " + std::to_string(before) : "");
    before = block;
    int64_t r = block / pattern.gridCols(), c = block % pattern.gridCols();
    if (std::binary_search(indices.colIdx + indices.rowPtr[r],
                           indices.colIdx + indices.rowPtr[r + 1],
                           c) != isStored)
      fail(BSR_INVALID_ARGUMENT, "expected ",
           isStored ? "a stored block" : "an absent block", " of '",
           pattern.name, "' to ", purpose, ", but got block (", r, ", ", c,
           "), which is ", isStored ? "absent" : "stored");
  }
}

void sparse_opt::checkReplacement(const Pattern &pattern,
                                  const ChosenBlocks &chosen,
                                  const PatternIndices &indices) {
  checkChosen(pattern, chosen.pruned, chosen.numPruned, /*isStored=*/true,
              "prune", indices);
  checkChosen(pattern, chosen.regrown, chosen.numRegrown, /*isStored=*/false,
              "regrow", indices);
  int64_t blocks =
      indices.rowPtr[pattern.gridRows()] - chosen.numPruned + chosen.numRegrown;
  if (blocks > pattern.mostBlocks())
    fail(BSR_INVALID_ARGUMENT, "expected an update to leave '", pattern.name,
         "' at most the ", pattern.mostBlocks(),
         " blocks that it has slots for, but got ", blocks);
}

PatternChange sparse_opt::replaceBlocks(const Pattern &pattern,
                                        const ChosenBlocks &chosen,
                                        const PatternIndices &indices,
                                        PatternScratch &scratch) {
  Update state(pattern, indices, scratch);
  const int64_t *next = chosen.pruned, *end = next + chosen.numPruned;
  for (int64_t k = 0; next != end; ++k)
    if (scratch.stored[k] == *next) {
      state.prune(k);
      ++next;
    }
  return state.replace(chosen.regrown, chosen.numRegrown);
}
