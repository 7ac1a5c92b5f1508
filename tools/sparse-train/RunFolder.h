// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder of a training run: the checkpoints, and what was measured.

#ifndef BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H
#define BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H

#include <cstdint>
#include <filesystem>
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
  const std::filesystem::path &folder() const { return path; }
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

private:
  std::filesystem::path path;
  int descriptor;
};

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H
