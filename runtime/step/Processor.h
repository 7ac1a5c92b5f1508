// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the processor can run.

#ifndef BSR_RUNTIME_STEP_PROCESSOR_H
#define BSR_RUNTIME_STEP_PROCESSOR_H

#include <string>

namespace sparse_opt {

/// Whether this processor, and the system on it, has the feature that LLVM
/// calls `name`. No feature that this does not know is there.
bool hasFeature(const std::string &name);

} // namespace sparse_opt

#endif // BSR_RUNTIME_STEP_PROCESSOR_H
