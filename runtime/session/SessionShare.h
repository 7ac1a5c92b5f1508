// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which buffers a session has in common with another.

#ifndef BSR_RUNTIME_SESSION_SESSIONSHARE_H
#define BSR_RUNTIME_SESSION_SESSIONSHARE_H

#include "Session.h"

namespace bsr {

/// Of each buffer of a step the buffer of `source` that it is, or -1; all are
/// -1 without a source. Fails where the step cannot share its state, or train
/// it if it `trains`.
std::vector<int64_t> findShared(const Manifest &step, const bsr_session *source,
                                bool trains);

} // namespace bsr

#endif // BSR_RUNTIME_SESSION_SESSIONSHARE_H
