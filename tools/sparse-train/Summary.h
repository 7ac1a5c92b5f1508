// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a run says of itself when it is done.

#ifndef BSR_TOOLS_SPARSETRAIN_SUMMARY_H
#define BSR_TOOLS_SPARSETRAIN_SUMMARY_H

#include "Data.h"
#include "Memory.h"
#include "Ranks.h"
#include "Session.h"
#include "Totals.h"

#include <nlohmann/json.hpp>
#include <string>

namespace sparse_opt::train {

/// All that the summary of a run is made of.
struct Summary {
  const Session &session;
  const Totals &totals;
  const Data &data;
  const Ranks &ranks;
  const Memory &memory;
  int64_t steps; // that are done
  int64_t tokensPerStep;

  /// The content of summary.json.
  nlohmann::ordered_json toJson() const;
  /// The lines that a run ends with.
  std::string describe() const;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_SUMMARY_H
