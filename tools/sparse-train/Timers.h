// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the time of a step goes.

#ifndef BSR_TOOLS_SPARSETRAIN_TIMERS_H
#define BSR_TOOLS_SPARSETRAIN_TIMERS_H

#include "bsr/runtime.h"

#include <string>

namespace bsr {

/// Tables of what `step`, compiled with timers, took since it was loaded or its
/// timers were reset: by kind of work, then the kernels that took the most.
std::string describeTimers(const bsr_step *step);

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_TIMERS_H
