// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder of a training run: what was measured, and the checkpoints.

#ifndef BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H
#define BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bsr {

/// See `train` for what the folder holds.
class RunFolder {
public:
  /// Makes the folder if there is none, and keeps other processes from running
  /// in it.
  explicit RunFolder(const std::string &path);
  ~RunFolder();
  RunFolder(const RunFolder &) = delete;
  RunFolder &operator=(const RunFolder &) = delete;

  /// True if a run has begun in the folder.
  bool holdsRun() const;
  /// Removes the run that the folder holds.
  void clear() const;
  /// Writes the file `name`.
  void write(const char *name, const std::string &text) const;

  /// The checkpoints, oldest first.
  std::vector<std::string> checkpoints() const;
  /// Where the checkpoint after `step` steps lies.
  std::string checkpoint(int64_t step) const;
  /// Removes all but the newest `keep` checkpoints.
  void removeOldCheckpoints(int64_t keep) const;
  /// Leaves no checkpoint but those up to `newest` ("" for none): renames the
  /// others to "<name>.damaged", and removes what a killed run left unfinished.
  void setAsideAfter(const std::string &newest) const;

  /// Begins the metrics, or goes on after the line of step `last`: what follows
  /// is dropped. Returns the lines that stay.
  std::vector<nlohmann::ordered_json> openMetrics(int64_t last);
  /// Adds a line to the metrics.
  void addMetrics(const nlohmann::ordered_json &entry);
  /// Returns once the metrics are on the device: a checkpoint that survives a
  /// power cut finds the lines of its steps.
  void flushMetrics() const;

private:
  std::filesystem::path path;
  int descriptor;
  std::ofstream metrics;
};

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H
