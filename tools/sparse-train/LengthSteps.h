// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The step of a run, compiled for each length of sequences, on one state.

#ifndef BSR_TOOLS_SPARSETRAIN_LENGTHSTEPS_H
#define BSR_TOOLS_SPARSETRAIN_LENGTHSTEPS_H

#include "Data.h"
#include "Results.h"
#include "Scalar.h"
#include "Stages.h"
#include "Timers.h"

#include <list>
#include <map>
#include <memory>
#include <string>

namespace sparse_opt::train {

/// The step for batches of one length, what fills its batches, and the numbers
/// that it takes and returns.
struct LengthStep {
  /// Throws `Error` where `data` does not fit, or the step has no loss.
  LengthStep(SessionOfLength opened, const Data &data, const Config &config);
  LengthStep(const LengthStep &) = delete;

  const int64_t length; // `anyLength` of a run that has one step
  Session session;
  const std::unique_ptr<Batches> batches;
  const Scalar rate, seed, number, apply;
  const Results results;
  PhaseTimes phases;
  int64_t stepsHere = 0; // that this program trained with it
};

/// The steps of a run. All train the state of the first one, which is that of
/// the longest sequences.
class LengthSteps {
public:
  LengthSteps(std::vector<SessionOfLength> opened, const Data &data,
              const Config &config);
  /// Releases the one that has the state last.
  ~LengthSteps();

  /// The one that has the state, and reads, updates and saves it.
  LengthStep &first() { return steps.front(); }
  const LengthStep &first() const { return steps.front(); }
  std::list<LengthStep> &all() { return steps; }
  /// The one for training step `step`, counted from 0.
  LengthStep &at(int64_t step);
  /// Whether there are several.
  bool areSeveral() const { return steps.size() > 1; }

  /// The length of one of several between two texts; "" of a single one.
  std::string nameOf(const LengthStep &own, const char *before,
                     const char *behind) const;

  /// Tables of where the time of steps went that were compiled with timers, and
  /// that ran here, and a line about means over `ranks` since `before`.
  std::string describeTimes(const Ranks &ranks,
                            const bsr_communicator_counters &before) const;

  /// Gives each one the constants of the file `values` that are not of the
  /// state, and that no checkpoint has. Throws `Error` where the file lacks one
  /// that only steps behind the first take.
  void takeConstants(const std::string &values);

  /// What tells the code of steps behind the first from other code, by lengths.
  std::map<std::string, std::string> codes() const;

private:
  std::list<LengthStep> steps;
  const Lengths lengths;
  const uint64_t seed;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_LENGTHSTEPS_H
