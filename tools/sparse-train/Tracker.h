// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a run records of itself.

#ifndef BSR_TOOLS_SPARSETRAIN_TRACKER_H
#define BSR_TOOLS_SPARSETRAIN_TRACKER_H

#include "Config.h"
#include "JsonLines.h"
#include "Session.h"
#include "TensorBoard.h"

#include <filesystem>

namespace sparse_opt::train {

/// The numbers of a line of metrics by the names that TensorBoard has for them:
/// those of one kind are together.
Scalars scalarsOf(const nlohmann::ordered_json &entry);

/// Writes into the folder of a run
///
///     metrics.jsonl          one line a step: everything that was measured
///     events.out.tfevents.*  the same for TensorBoard, the pictures, and the
///                            distributions of the weights they are of
///     patterns.jsonl         pictures of a few patterns, now and then
///     sessions.jsonl         one line for each program that worked on the run:
///                            its first step, when, where, which versions
///
/// A resumed run drops the lines behind its checkpoint; what TensorBoard has of
/// these steps is declared void. Of a file with lines that cannot be read a
/// copy is kept, see JsonLines.
class Tracker {
public:
  /// Begins with the session as it is, of a run of `steps` steps of which
  /// `done` are done, by `settings`. Calls `visit` with each line of the
  /// metrics that was there and stays.
  Tracker(const std::filesystem::path &folder, const Session &session,
          int64_t steps, int64_t done, const std::vector<KeyValue> &settings,
          const std::function<void(const nlohmann::json &)> &visit);

  /// Adds a line to the metrics.
  void add(const nlohmann::ordered_json &entry);

  /// Adds what is known of the patterns to `entry`. To be called before the
  /// first step, with null, and after each update, with what it did to each
  /// pattern.
  void describePatterns(nlohmann::ordered_json &entry,
                        const std::vector<bsr_pattern_update> *updates);

  /// Returns once the lines are on the device: a checkpoint that survives a
  /// power cut finds those of its steps.
  void flush() const;

  /// The names of the files but for those of TensorBoard, the metrics last.
  static std::vector<std::string> files();

private:
  void draw(int64_t step);
  std::vector<double> valuesOf(const bsr_pattern_info &info) const;

  const Session &session;
  int64_t steps;
  JsonLines metrics, pictures;
  EventFile events;
  /// Pictures are drawn when another eighth of the run is over.
  int64_t nextPicture = 0;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TRACKER_H
