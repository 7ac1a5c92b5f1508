// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A training run: the buffers of a step, its patterns, and what was counted.

#ifndef BSR_RUNTIME_SESSION_SESSION_H
#define BSR_RUNTIME_SESSION_SESSION_H

#include "device/Memory.h"
#include "pattern/Pattern.h"
#include "step/Step.h"
#include <optional>

namespace sparse_opt {
/// Which blocks a pattern has had, and which are new.
struct PatternHistory {
  uint64_t *ever;   // a bit for each block of the matrix: was it ever stored?
  uint64_t *newest; // a bit for each slot: was its block regrown by the last
                    // update?
  int64_t everStored = 0;
  /// Of the last update; the newest blocks are those of the one before it.
  int64_t pruned = 0, regrown = 0, newestBefore = 0, newestPruned = 0;

  static int64_t everWords(const Pattern &pattern) {
    return (pattern.allBlocks() + 63) / 64;
  }
  static int64_t newestWords(const Pattern &pattern) {
    return (pattern.slots + 63) / 64;
  }
  /// Adds an update, whose blocks and slots are in `scratch`.
  void record(const Pattern &pattern, const PatternChange &change,
              const PatternScratch &scratch);
  void addStored(int64_t block) {
    uint64_t &word = ever[block / 64], bit = uint64_t(1) << (block % 64);
    everStored += !(word & bit);
    word |= bit;
  }
};
} // namespace sparse_opt

struct bsr_session {
  bsr_session(const bsr_step &step, uint64_t seed,
              sparse_opt::Device &device = sparse_opt::hostDevice());
  /// One that shares the state of `source`, and trains it if it `trains`.
  bsr_session(const bsr_step &step, bsr_session &source, bool trains);

  const sparse_opt::Manifest &manifest() const { return step.manifest; }

  /// Fails unless patterns and state are the session's own.
  void requireOwner() const;

  /// Fails unless this process can run the stage that the step is.
  void requireStage() const;

  /// Fails unless there are as many processes as the state is sharded among.
  void requireProcesses() const;

  /// Fails unless the processor may touch the buffers.
  void requireHost() const;

  /// The memory of buffer `index`; fails as `requireHost`.
  void *hostData(int64_t index) const {
    requireHost();
    return buffers[index];
  }

  /// Of the processes that take means with this one, and have shares of the
  /// same state, which this is. A session without a communicator is the first.
  int32_t member() const;

  /// Where buffer `index` begins in what it is a share of, in bytes; 0 of one
  /// that is whole.
  int64_t shardOffset(int64_t index) const;

  /// All of buffer `index` where the processor may touch it: the buffer, or a
  /// copy that `copy` holds.
  void *readBuffer(int64_t index, std::vector<char> &copy) const;

  /// Calls `fill(data)`, which writes all of buffer `index` to `data`: to the
  /// buffer, or to a copy that is then written to the device.
  template <typename Fill>
  void fillBuffer(int64_t index, Fill fill) {
    if (device.isHost()) {
      fill(static_cast<char *>(buffers[index]));
      return;
    }
    std::vector<char> copy(size_t(manifest().buffers[index].bytes));
    fill(copy.data());
    device.write(buffers[index], copy.data(), int64_t(copy.size()));
  }

  /// Writes the indices of a pattern to the device, if that is not the host.
  void storeIndices(int64_t pattern);

  sparse_opt::PatternIndices indices(int64_t pattern) const;
  bsr_pattern_view view(int64_t pattern) const;

  /// The methods behind the C functions of these names.
  void initBuffer(int64_t index, const std::string &rule);
  void makePattern(int64_t pattern, int64_t blocks);
  void setPattern(int64_t pattern, const bsr_pattern_view &view);
  void takeLargest(int64_t pattern, int64_t blocks, bsr_norm norm,
                   bsr_type type, const void *dense);
  void scaleFanIn(int64_t pattern, bsr_fan_in fanIn);
  void requirePattern(int64_t pattern, const bsr_pattern_view &view) const;
  void checkPatterns() const;
  void updatePatterns(const bsr_pattern_update *updates);
  /// Gives each matrix of updates together the blocks that it keeps.
  void shareBlocks(std::vector<bsr_pattern_update> &updates) const;
  void setNewBlocks(int64_t pattern, bsr_new_blocks start);
  void replacePatterns(const bsr_replacement *replacements, int64_t count);

  /// Writes to `norms` by what the stored blocks of a pattern are ranked.
  void rankBlocks(int64_t pattern, bsr_norm norm, double *norms) const;

  /// Fails unless the last run left scores of the blocks of `pattern`.
  void requireScores(const sparse_opt::Pattern &pattern) const;

  /// The method behind the C function of this name.
  void sumScores(const int32_t *steps);

  /// Whether the next run updates, of a step that accumulates.
  bool appliesUpdate() const;

  /// Runs the step once, with scores of blocks or without, and counts it.
  void run(bool scores);

  /// Fails unless `pattern` is the index of a pattern that is not static.
  void requireDynamic(int64_t pattern) const;

  /// Makes BSR_MOST_BLOCKS their number; fails unless `pattern` has room for
  /// `blocks` blocks.
  void requireBlocks(const sparse_opt::Pattern &pattern, int64_t &blocks) const;

  /// Zeroes the slots of a pattern in which no block lies.
  void zeroUnusedSlots(int64_t pattern) const;

  /// Called wherever a pattern is another one than before.
  void patternsChanged();

  /// Makes the history of a pattern that of a checkpoint: bits as in
  /// PatternHistory.
  void loadHistory(int64_t pattern, std::string_view ever,
                   std::string_view newest);

  /// Makes the sums of scores of a pattern those of a checkpoint, f32, which
  /// may have none.
  void loadScores(int64_t pattern, std::string_view sums);

  /// Called where a pattern was made or set: its history begins with the
  /// blocks it has, or goes on with them if the step has run.
  void patternMade(int64_t pattern);

private:
  void updateOnHost(const bsr_pattern_update *updates);
  void updateOnDevice(const bsr_pattern_update *updates);

  bsr_session(const bsr_step &step, uint64_t seed, sparse_opt::Device &device,
              bsr_session *source, bool trains);

  /// Gives the scores of the last run to the source.
  void giveScores() const;

public:
  /// The memory to work with of a thread of an update.
  sparse_opt::PatternScratch &scratchOf(int thread) const {
    return thread ? moreScratch[size_t(thread) - 1] : scratch;
  }

  /// The eight bytes that, repeated, are what buffer `values` of `pattern`
  /// holds of a new block: the weight zeros, state the constant that it began
  /// with, or zeros.
  uint64_t bitsOfNew(const sparse_opt::Pattern &pattern, int32_t values) const;

  /// What buffer `values` of pattern `index` holds of a block that an update
  /// regrows.
  bsr_new_state stateOfNew(int64_t index, int32_t values) const;

  /// The mean of buffer `values` of pattern `index` over its blocks whose slots
  /// have no bit in `isNew`; nothing where there are none.
  std::optional<double> meanOfKept(int64_t index, int32_t values,
                                   const uint64_t *isNew) const;

  /// Gives the first `count` regrown blocks of `scratch` random values.
  void drawValues(int64_t index, const sparse_opt::PatternScratch &scratch,
                  int64_t count) const;

  /// Fills these slots of buffer `values` with `bits`, repeated.
  void fillSlots(int64_t pattern, int32_t values, const int32_t *slots,
                 int64_t count, uint64_t bits) const;

  /// Fills these slots of every buffer of values of `pattern`: with zeros, or,
  /// if they are of new blocks, with what each buffer holds of one.
  void fillSlots(int64_t pattern, const int32_t *slots, int64_t count,
                 bool isNew) const;

  /// Fills the slots of the new blocks of `change`, the first of those that
  /// `scratch` has as freed, and the slots that it leaves over.
  void resetSlots(int64_t pattern, const sparse_opt::PatternChange &change,
                  sparse_opt::PatternScratch &scratch) const;

  const std::shared_ptr<const bsr_step>
      owner; // of `step`, which may be unloaded
  const bsr_step &step;
  sparse_opt::Device &device;
  bsr_session *const source; // whose state this one shares, or null
  const bool trains;         // whether it trains the state of the source
  /// Of each buffer the one of `source` that it is, or -1.
  const std::vector<int64_t> shared;
  bsr_context context;
  sparse_opt::Memory area;     // of the device: what the step knows of
  std::vector<void *> buffers; // in it
  void *arena;
  void *room = nullptr; // for updates of patterns; null on the host
  int64_t roomBytes;
  std::unique_ptr<sparse_opt::Program> program; // of a step for a GPU
  sparse_opt::Memory ownArea; // of the host: what the step does not know of
  /// Index buffers as the host sees them, null for others: the buffers
  /// themselves, or copies of what `storeIndices` writes.
  std::vector<int32_t *> hostIndices;
  mutable sparse_opt::PatternScratch scratch;
  mutable std::vector<sparse_opt::PatternScratch>
      moreScratch;                                   // of further threads
  std::vector<sparse_opt::PatternHistory> histories; // of all patterns
  /// Of each pattern, on the host, for each stored block: does the update
  /// that is under way prune it?
  std::vector<uint8_t *> pruneFlags;
  /// What blocks of each pattern begin with that updates regrow.
  std::vector<bsr_new_blocks> newBlocks;
  bool hasScores = false; // whether those of the arena are the last run's
  bool hasSums = false;   // whether these, where summed, are sums
  /// Of each pattern, the scores that were summed since its last change; empty
  /// if none were.
  std::vector<std::vector<float>> scoreSums;
  std::vector<bool> hasPattern; // whether each pattern was made or set

  // The copy that `bsr_session_snapshot` keeps.
  sparse_opt::Memory copyArea;
  std::vector<void *> copies; // of the carried buffers, in their order
  std::vector<std::vector<float>> copiedSums; // and of scoreSums
  int64_t copiedSteps = 0;
  int64_t copiedVersion = 0;

  // Counts the changes of any pattern: a snapshot belongs to one set of them.
  int64_t patternVersion = 0;
  int64_t currentVersion() const {
    return source ? source->currentVersion() : patternVersion;
  }
  int64_t programVersion = -1; // of the patterns that the program last saw

  bsr_counters counters = {};
  std::string metadata;
  std::string stepDifference; // between the step and that of the checkpoint
};

#endif // BSR_RUNTIME_SESSION_SESSION_H
