// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The threads that update patterns side by side.

#ifndef BSR_RUNTIME_SESSION_UPDATETHREADS_H
#define BSR_RUNTIME_SESSION_UPDATETHREADS_H

#include "Session.h"
#include <exception>
#include <omp.h>

namespace sparse_opt {

/// Calls `body(i, scratch)` for each i below `size`, on several threads with a
/// scratch each. Fails as the first i that does.
template <typename Body>
void forEachOnThreads(const bsr_session &session, int64_t size, Body body) {
  int64_t failed = size;
  std::exception_ptr error;
#pragma omp parallel for schedule(dynamic)                                     \
    num_threads(int(session.moreScratch.size()) + 1)
  for (int64_t i = 0; i < size; ++i) {
    try {
      body(i, session.scratchOf(omp_get_thread_num()));
    } catch (...) {
#pragma omp critical
      if (i < failed) {
        failed = i;
        error = std::current_exception();
      }
    }
  }
  if (error)
    std::rethrow_exception(error);
}

} // namespace sparse_opt

#endif // BSR_RUNTIME_SESSION_UPDATETHREADS_H
