// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A picture of some training steps: when which kernel ran, and when means over
// processes were taken.

#ifndef BSR_TOOLS_SPARSETRAIN_TRACE_H
#define BSR_TOOLS_SPARSETRAIN_TRACE_H

#include "Ranks.h"
#include "Session.h"

#include <filesystem>
#include <nlohmann/json.hpp>

namespace sparse_opt::train {

/// Records kernels and reductions of this process, in the format of Chrome's
/// traces, which chrome://tracing and Perfetto show. Kernels are a row, "step",
/// and reductions another; times are those of the machine's clock, so that
/// traces of processes of one machine fit together.
class Trace {
public:
  /// Of `session`, a step compiled with timers.
  Trace(const Session &session, const Ranks &ranks);

  /// Adds all since the construction or the last call of this.
  void add();
  /// Writes trace-<rank>.json to `folder`.
  void write(const std::filesystem::path &folder) const;

  /// The traces of all processes in `folder`.
  static std::vector<std::filesystem::path>
  find(const std::filesystem::path &folder);

private:
  void addSpan(int64_t row, const std::string &name, const std::string &kind,
               int64_t began, int64_t ended, nlohmann::ordered_json details);

  const bsr_step *step;
  const Ranks &ranks;
  int64_t numRead = 0; // events of the step that were added
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TRACE_H
