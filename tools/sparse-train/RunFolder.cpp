// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes the files of a training run.

#include "RunFolder.h"
#include "Files.h"
#include "Trace.h"
#include "Tracker.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/file.h>
#include <tuple>
#include <unistd.h>

using namespace sparse_opt;
using namespace sparse_opt::train;
namespace fs = std::filesystem;

static constexpr char configName[] = "config.yaml";
static constexpr char unfinishedConfigName[] = "config.yaml.tmp";
static constexpr char summaryName[] = "summary.json";

RunFolder::RunFolder(const std::string &path, bool mustExist) : path(path) {
  if (mustExist && !fs::is_directory(path))
    fail("expected run folder '", path, "' to hold a run, but got no folder");
  for (fs::path each = this->path; !each.empty() && !fs::exists(each);
       each = each.parent_path())
    made.push_back(each);
  fs::create_directories(path);
  // The system takes the lock back when the process ends, however it does.
  descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 || flock(descriptor, LOCK_EX | LOCK_NB) != 0)
    fail("expected run folder '", path, "' to be ours alone, but got: ",
         errno == EWOULDBLOCK ? "another process that runs in it"
                              : std::strerror(errno));
}

RunFolder::~RunFolder() { close(descriptor); }

std::string RunFolder::requireConfig(const std::string &path) {
  if (!fs::is_directory(path))
    fail("expected '", path, "' to be the folder of a run, but got ",
         fs::exists(path) ? "a file" : "no folder");
  fs::path config = fs::path(path) / configName;
  if (!fs::exists(config))
    fail("expected '", path,
         "' to be the folder of a run, but got one without "
         "a ",
         configName);
  return config;
}

namespace {
/// A file of a checkpoint: "checkpoint-<step>.safetensors<ending>", where the
/// ending is none, or that of one that is unfinished or damaged.
struct CheckpointFile {
  fs::path path;
  int64_t step;
  std::string ending;
};
} // namespace

/// The files of checkpoints in `folder` by their steps. Other names are the
/// user's.
static std::vector<CheckpointFile> findCheckpoints(const fs::path &folder) {
  constexpr std::string_view prefix = "checkpoint-", suffix = ".safetensors";
  std::vector<CheckpointFile> files;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder)) {
    std::string name = entry.path().filename();
    if (name.rfind(prefix, 0) != 0)
      continue;
    int64_t step;
    const char *end = name.data() + name.size();
    auto parsed = std::from_chars(name.data() + prefix.size(), end, step);
    if (parsed.ec != std::errc() || step < 0 || name[prefix.size()] == '-')
      continue;
    std::string rest(parsed.ptr, end);
    if (rest.rfind(suffix, 0) != 0)
      continue;
    std::string ending = rest.substr(suffix.size());
    if (ending.empty() || ending == ".tmp" || ending.rfind(".damaged", 0) == 0)
      files.push_back({entry.path(), step, ending});
  }
  std::sort(files.begin(), files.end(),
            [](const CheckpointFile &a, const CheckpointFile &b) {
              return std::tie(a.step, a.path) < std::tie(b.step, b.path);
            });
  return files;
}

std::vector<fs::path> RunFolder::files() const {
  std::vector<fs::path> files = EventFile::find(path);
  for (const CheckpointFile &file : findCheckpoints(path))
    files.push_back(file.path);
  for (const fs::path &trace : Trace::find(path))
    files.push_back(trace);
  std::vector<std::string> names = Tracker::files();
  names.insert(names.begin(), summaryName);
  for (const std::string &name : names)
    if (has(name.c_str()))
      files.push_back(path / name);
  return files;
}

void RunFolder::requireNoRun(const char *advice) const {
  if (std::vector<fs::path> found = files(); !found.empty())
    fail("expected run folder '", path.string(), "' to hold no run, but got ",
         found.back().filename(), " (", advice, ")");
}

bool RunFolder::holdsRun() const {
  return has(configName) || has(unfinishedConfigName) || fs::is_empty(path) ||
         !files().empty();
}

void RunFolder::clear() const {
  for (const fs::path &file : files())
    fs::remove(file);
}

void RunFolder::abandon(bool isOurs) const {
  std::error_code ignored;
  if (isOurs && files().empty())
    fs::remove(path / configName, ignored);
  for (const fs::path &folder : made)
    fs::remove(folder, ignored); // if it is empty
}

bool RunFolder::has(const char *name) const {
  return fs::exists(fs::symlink_status(path / name));
}

void RunFolder::write(const char *name, const std::string &text) const {
  writeFile(path / name, name, {text});
}

bool RunFolder::holdsConfig() const { return has(configName); }

void RunFolder::writeConfig(const Config &config) const {
  fs::path file = path / configName;
  std::string text = toYAML(config);
  if (!has(configName))
    return write(configName, text);
  std::string there = readFile(file, configName), meaning;
  try {
    meaning = toYAML(readConfig(file, {}));
  } catch (const Error &) {
    // It means nothing.
  }
  if (meaning == text)
    return;
  // What a run wrote reads as it is written.
  if (there != meaning) {
    std::string aside = nameAside(file, "old");
    writeFile(aside, configName, {there});
    std::printf("note: '%s', which another program wrote, is kept as '%s'\n",
                file.c_str(), aside.c_str());
  }
  write(configName, text);
}

std::vector<RunFolder::Checkpoint> RunFolder::checkpoints() const {
  std::vector<Checkpoint> found;
  for (const CheckpointFile &file : findCheckpoints(path))
    if (file.ending.empty())
      found.push_back({file.path, file.step});
  return found;
}

std::string RunFolder::checkpoint(int64_t step) const {
  char name[64];
  std::snprintf(name, sizeof(name), "checkpoint-%09lld.safetensors",
                (long long)step);
  return path / name;
}

void RunFolder::removeOldCheckpoints(const std::string &newest,
                                     int64_t keep) const {
  std::vector<Checkpoint> found = checkpoints();
  auto last =
      std::find_if(found.begin(), found.end(),
                   [&](const Checkpoint &each) { return each.path == newest; });
  for (int64_t i = 0; i <= last - found.begin() - keep; ++i)
    fs::remove(found[size_t(i)].path);
}

void RunFolder::setAsideAfter(const std::string &newest) const {
  bool isLater = newest.empty();
  for (const CheckpointFile &file : findCheckpoints(path)) {
    if (file.ending == ".tmp")
      fs::remove(file.path);
    else if (file.ending.empty() && isLater)
      fs::rename(file.path, nameAside(file.path, "damaged"));
    isLater |= file.path == newest;
  }
}
