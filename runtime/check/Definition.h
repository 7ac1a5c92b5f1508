// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The definition of prune and regrow, taken literally: what updates are
// compared with, of the processor and of GPUs. It shares nothing with either.

#ifndef BSR_RUNTIME_CHECK_DEFINITION_H
#define BSR_RUNTIME_CHECK_DEFINITION_H

#include "Check.h"
#include <functional>
#include <map>
#include <set>

namespace check {
using Rules = std::vector<bsr_pattern_update>;
using Place = std::pair<int64_t, int64_t>;

/// A matrix of a session, block by block.
struct Blocks {
  std::map<Place, int32_t> slots; // of the stored blocks, row by row

  Blocks(const Session &session, const Matrix &matrix, int64_t pattern);
};

/// Fills the weight and the moments of matrix `pattern`, of f32, with small
/// integers, so that there are ties and every sum is exact.
void fillSmall(const Session &session, const Matrix &matrix, int64_t pattern,
               Numbers &numbers);

/// Fills the scores of matrix `pattern` with a few numbers, of both signs and
/// infinite ones, so that there are ties; or with one only.
void fillScores(const Session &session, int64_t pattern, Numbers &numbers);

/// The norm of a block, of elements whose sums are exact.
double normOf(const std::vector<double> &block, bsr_norm norm);

/// A session whose updates are compared with the definition; its weights and
/// moments are of f32.
class Compared {
public:
  Compared(const Session &session, const std::vector<Matrix> &matrices);

  /// Updates once.
  void update(const Rules &rules);

private:
  struct Before {
    Blocks blocks;
    std::vector<float> values[3];
    std::vector<float> scores;
  };

  void shareBlocks(Rules &rules, const std::vector<Before> &before) const;
  void compare(size_t p, const bsr_pattern_update &rule, const Before &before,
               int64_t &allPruned, int64_t &allRegrown);
  void compareViews(size_t p) const;

  const Session &session;
  const std::vector<Matrix> &matrices;
  std::vector<std::set<Place>> ever, newest;
};

/// Updates random patterns four times, by any rules, in each of `rounds`
/// sessions, which `make` makes of matrices and a seed.
void compareRandomUpdates(
    int rounds,
    const std::function<Session(const std::vector<Matrix> &, uint64_t)> &make);
} // namespace check

#endif // BSR_RUNTIME_CHECK_DEFINITION_H
