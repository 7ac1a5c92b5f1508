// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the processor can run.

#ifndef BSR_RUNTIME_STEP_PROCESSOR_H
#define BSR_RUNTIME_STEP_PROCESSOR_H

#include <string>
#include <vector>

namespace sparse_opt {

/// Whether this processor, and the system on it, has the feature that LLVM
/// calls `name`. No feature that this does not know is there.
bool hasFeature(const std::string &name);

/// Asks the system to permit the registers of AMX to all threads of this
/// process. Returns 0, or an error number.
int permitTiles();

/// What keeps this process from running code that needs `features`, as the end
/// of a sentence about that code; empty if nothing does. Code with tiles of AMX
/// has their permission then.
std::string findObstacle(const std::vector<std::string> &features,
                         bool (*has)(const std::string &) = hasFeature,
                         int (*permit)() = permitTiles);

} // namespace sparse_opt

#endif // BSR_RUNTIME_STEP_PROCESSOR_H
