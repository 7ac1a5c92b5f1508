// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which buffers of a step are those of another one's state.

#ifndef BSR_RUNTIME_SESSION_SHAREDSTATE_H
#define BSR_RUNTIME_SESSION_SHAREDSTATE_H

#include "base/Manifest.h"

namespace sparse_opt {

/// Of each buffer of `step` the buffer of `source`, a step with a state, that
/// it is, or -1; all are -1 without a source. Fails where the step cannot share
/// that state, or train it if it `trains`.
std::vector<int64_t> findShared(const Manifest &step, const Manifest *source,
                                bool trains);

} // namespace sparse_opt

#endif // BSR_RUNTIME_SESSION_SHAREDSTATE_H
