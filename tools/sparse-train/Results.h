// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the runs of a step return, summed.

#ifndef BSR_TOOLS_SPARSETRAIN_RESULTS_H
#define BSR_TOOLS_SPARSETRAIN_RESULTS_H

#include "Ranks.h"
#include "Scalar.h"
#include <map>
#include <string>

namespace sparse_opt::train {

/// The results of a step that are a number: its loss, and "accuracy" for
/// "metrics.accuracy".
class Results {
public:
  explicit Results(Session &session);

  /// Sums over runs.
  struct Sums {
    double loss = 0;
    std::map<std::string, double> others;

    /// Replaces sums of this process alone by their means over processes.
    void takeMeans(const Ranks &ranks);
  };

  /// Adds what the last run left.
  void addTo(Sums &sums) const;

private:
  Scalar loss;
  std::map<std::string, Scalar> others;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_RESULTS_H
