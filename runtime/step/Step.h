// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A compiled step: its manifest, validated, and its entry points.

#ifndef BSR_RUNTIME_STEP_STEP_H
#define BSR_RUNTIME_STEP_STEP_H

#include "base/Manifest.h"
#include "support/InitRule.h"
#include <memory>

namespace sparse_opt {

/// The rule `text`; nothing if it is none, or none for elements of `type`.
std::optional<InitRule> parseInitRule(std::string_view text, bsr_type type);

/// Parses and validates a manifest; `where` names it in messages.
Manifest parseManifest(const char *text, const std::string &where);

/// How many steps this thread has loaded.
int64_t stepsLoaded();

} // namespace sparse_opt

struct bsr_step {
  /// The caller's hold, until it unloads the step. Sessions have their own: the
  /// last one to let go unloads it.
  std::shared_ptr<bsr_step> self;
  sparse_opt::Manifest manifest;
  const char *manifestText;
  using Run = int32_t(bsr_context *context, void *const *buffers, void *arena);
  Run *run;
  /// The same with scores of blocks; null if there are none.
  Run *runScores;
  /// Of each timer, nanoseconds and launches; null if there are none.
  int64_t (*timers)[2];
  /// bsr_step_trace_events; null if there are none.
  const int64_t (*events)[2];
  /// The kernels of a step for a GPU, which has no `run`; or null.
  const char *ptx;
  const void *cubin; // their machine code for the manifest's chip; or null
  std::unique_ptr<void, int (*)(void *)> library;
};

#endif // BSR_RUNTIME_STEP_STEP_H
