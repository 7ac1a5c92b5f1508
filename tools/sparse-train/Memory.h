// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that a run takes.

#ifndef BSR_TOOLS_SPARSETRAIN_MEMORY_H
#define BSR_TOOLS_SPARSETRAIN_MEMORY_H

#include "Ranks.h"
#include "Session.h"

#include <string>
#include <vector>

namespace sparse_opt::train {

/// What processes hold, in the order of their ranks, in bytes.
struct Memory {
  int64_t wholeState = 0; // moments and the like, if one had all of it
  std::vector<int64_t> state, session, peak;
};

/// Called by all processes together.
Memory measureMemory(const Session &session, const Ranks &ranks);

/// A line about `memory`.
std::string describe(const Memory &memory);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_MEMORY_H
