// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A training run: the buffers of a step, its patterns, and what was counted.

#ifndef BSR_RUNTIME_SESSION_H
#define BSR_RUNTIME_SESSION_H

#include "Memory.h"
#include "Pattern.h"
#include "Step.h"

struct bsr_session {
  bsr_session(const bsr_step &step, uint64_t seed);

  const bsr::Manifest &manifest() const { return step.manifest; }

  bsr::PatternIndices indices(int64_t pattern) const;
  bsr_pattern_view view(int64_t pattern) const;

  /// The methods behind the C functions of these names.
  void initBuffer(int64_t index, const std::string &rule);
  void makePattern(int64_t pattern, int64_t blocks);
  void setPattern(int64_t pattern, const bsr_pattern_view &view);
  void checkPatterns() const;
  int64_t updatePatterns(double drop);

  /// Fails unless `pattern` is the index of a pattern that is not static.
  void requireDynamic(int64_t pattern) const;

  /// Zeroes the slots of a pattern in which no block lies.
  void zeroUnusedSlots(int64_t pattern);

  /// Zeroes slot `slot` of every buffer of values of `pattern`.
  void zeroSlot(const bsr::Pattern &pattern, int64_t slot);

  const bsr_step &step;
  bsr::Memory area;
  std::vector<void *> buffers;
  void *arena;
  mutable bsr::PatternScratch scratch;
  std::vector<bool> hasPattern; // whether each pattern was made or set

  // The copy that `bsr_session_snapshot` keeps.
  bsr::Memory copyArea;
  std::vector<void *> copies; // of the carried buffers, in their order
  int64_t copiedSteps = 0;
  int64_t copiedVersion = 0;

  // Counts the changes of any pattern: a snapshot belongs to one set of them.
  int64_t patternVersion = 0;

  bsr_counters counters = {};
  int64_t stepsLoadedBefore;
  std::string metadata;
  bool sameStep = false;
};

#endif // BSR_RUNTIME_SESSION_H
