// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes the files of a training run.

#include "RunFolder.h"
#include "Support.h"
#include "Tracker.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

using namespace bsr;
namespace fs = std::filesystem;

RunFolder::RunFolder(const std::string &path) : path(path) {
  fs::create_directories(path);
  // The system takes the lock back when the process ends, however it does.
  descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) != 0)
    fail("expected run folder '", path, "' to be ours alone, but got: ",
         errno == EWOULDBLOCK ? "another process that runs in it"
                              : std::strerror(errno));
}

RunFolder::~RunFolder() { close(descriptor); }

bool RunFolder::holdsRun() const { return Tracker::holdsRun(path); }

/// Calls `visit(path)` for every file of a checkpoint in `folder`, also
/// one that is unfinished or damaged.
template <typename Visit>
static void forEachCheckpointFile(const fs::path &folder, Visit visit) {
  for (const fs::directory_entry &entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().rfind("checkpoint-", 0) == 0)
      visit(entry.path());
}

void RunFolder::clear() const {
  std::vector<fs::path> files;
  forEachCheckpointFile(path,
                        [&](const fs::path &file) { files.push_back(file); });
  for (const fs::path &file : files)
    fs::remove(file);
  fs::remove(path / "summary.json");
  Tracker::clear(path);
}

void RunFolder::write(const char *name, const std::string &text) const {
  writeFile(path / name, name, {text});
}

std::vector<std::string> RunFolder::checkpoints() const {
  std::vector<std::string> files;
  forEachCheckpointFile(path, [&](const fs::path &file) {
    if (file.extension() == ".safetensors")
      files.push_back(file);
  });
  std::sort(files.begin(), files.end());
  return files;
}

std::string RunFolder::checkpoint(int64_t step) const {
  char name[64];
  std::snprintf(name, sizeof(name), "checkpoint-%09lld.safetensors",
                (long long)step);
  return path / name;
}

void RunFolder::removeOldCheckpoints(int64_t keep) const {
  std::vector<std::string> files = checkpoints();
  for (size_t i = 0; i + keep < files.size(); ++i)
    fs::remove(files[i]);
}

void RunFolder::setAsideAfter(const std::string &newest) const {
  std::vector<fs::path> later, unfinished;
  forEachCheckpointFile(path, [&](const fs::path &file) {
    if (file.extension() == ".tmp")
      unfinished.push_back(file);
    else if (file.extension() == ".safetensors" && file.string() > newest)
      later.push_back(file);
  });
  for (const fs::path &file : unfinished)
    fs::remove(file);
  for (const fs::path &file : later)
    fs::rename(file, file.string() + ".damaged");
}
