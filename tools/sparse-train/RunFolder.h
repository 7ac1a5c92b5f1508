// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder of a training run: the checkpoints, and what was measured.

#ifndef BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H
#define BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H

#include "Config.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sparse_opt::train {

/// See `train` for what the folder holds. Other files may lie in it: only what
/// a run wrote, by its name, is ever removed or replaced.
class RunFolder {
public:
  /// Keeps other processes from running in the folder `path`, which is made if
  /// there is none and it need not exist.
  RunFolder(const std::string &path, bool mustExist);
  ~RunFolder();
  RunFolder(const RunFolder &) = delete;
  RunFolder &operator=(const RunFolder &) = delete;

  /// The configuration of the run in the folder `path`; fails if that is none.
  static std::string requireConfig(const std::string &path);

  /// Fails if the folder holds anything of a run; `advice` says what to do.
  void requireNoRun(const char *advice = "pass --resume or --overwrite") const;
  /// Whether a run began in the folder, if only to compile its step. The folder
  /// of one that did not even come to that is empty.
  bool holdsRun() const;
  /// Removes the run that the folder holds.
  void clear() const;
  /// Of a run that did not begin, removes the configuration, if it `isOurs`,
  /// and the folders that were made for it. Never fails.
  void abandon(bool isOurs) const;
  const std::filesystem::path &folder() const { return path; }
  /// Whether the file `name` is there.
  bool has(const char *name) const;
  /// Writes the file `name`.
  void write(const char *name, const std::string &text) const;
  bool holdsConfig() const;
  /// Writes config.yaml, unless one that says the same is there: the user's
  /// own. One that is the user's and says something else is set aside.
  void writeConfig(const Config &config) const;

  /// A checkpoint, and the number in its name.
  struct Checkpoint {
    std::string path;
    int64_t step;
  };

  /// The checkpoints, oldest first.
  std::vector<Checkpoint> checkpoints() const;
  /// Where the checkpoint after `step` steps lies.
  std::string checkpoint(int64_t step) const;
  /// Of the checkpoints up to `newest`, removes all but the newest `keep`.
  void removeOldCheckpoints(const std::string &newest, int64_t keep) const;
  /// Leaves no checkpoint but those up to `newest` ("" for none): renames the
  /// others to "<name>.damaged", and removes what a killed run left unfinished.
  void setAsideAfter(const std::string &newest) const;

private:
  /// The files of a run, without the configuration; that of the metrics is the
  /// last one.
  std::vector<std::filesystem::path> files() const;

  std::filesystem::path path;
  std::vector<std::filesystem::path> made; // folders, the innermost first
  int descriptor;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_RUNFOLDER_H
