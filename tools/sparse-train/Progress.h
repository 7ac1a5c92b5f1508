// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shows how far a long job is: a bar on a terminal, plain lines elsewhere.

#ifndef BSR_TOOLS_SPARSETRAIN_PROGRESS_H
#define BSR_TOOLS_SPARSETRAIN_PROGRESS_H

#include <chrono>
#include <cstdint>
#include <string>

namespace sparse_opt::train {

/// "1:02:03" or "2:03".
std::string formatTime(double seconds);

/// Progress of a job of `total` units, of which `first` were done before.
class Progress {
public:
  /// Off a terminal, a line is printed every `lineEvery` units.
  Progress(std::string label, int64_t total, int64_t lineEvery,
           int64_t first = 0);
  /// Ends the bar's line.
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  /// Shows that `done` units are done; `details` follow the count.
  void update(int64_t done, const std::string &details);

private:
  using Clock = std::chrono::steady_clock;

  std::string label;
  int64_t total, lineEvery, first;
  bool terminal;
  bool open = false;
  Clock::time_point start = Clock::now();
  Clock::time_point drawn;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_PROGRESS_H
