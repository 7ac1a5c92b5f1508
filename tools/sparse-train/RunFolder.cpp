// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes the files of a training run.

#include "RunFolder.h"
#include "Support.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

using namespace bsr;
using nlohmann::ordered_json;
namespace fs = std::filesystem;

RunFolder::RunFolder(const std::string &path) : path(path) {
  fs::create_directories(path);
}

bool RunFolder::holdsRun() const { return fs::exists(path / "metrics.jsonl"); }

void RunFolder::clear() const {
  fs::remove(path / "metrics.jsonl");
  fs::remove(path / "summary.json");
  removeOldCheckpoints(0);
}

void RunFolder::write(const char *name, const std::string &text) const {
  writeFile(path / name, name, {text});
}

std::vector<std::string> RunFolder::checkpoints() const {
  std::vector<std::string> files;
  for (const fs::directory_entry &entry : fs::directory_iterator(path)) {
    std::string name = entry.path().filename();
    if (name.rfind("checkpoint-", 0) == 0 &&
        entry.path().extension() == ".safetensors")
      files.push_back(entry.path());
  }
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

std::vector<ordered_json> RunFolder::openMetrics(int64_t last) {
  std::string file = path / "metrics.jsonl";
  std::vector<ordered_json> kept;
  std::string text;
  std::istringstream lines(holdsRun() ? readFile(file, "metrics") : "");
  for (std::string line; std::getline(lines, line);) {
    ordered_json entry = ordered_json::parse(line, nullptr, false);
    if (entry.is_discarded() || entry.value("step", last + 1) > last)
      break;
    kept.push_back(entry);
    text += line + "\n";
  }
  writeFile(file, "metrics", {text});
  metrics.open(file, std::ios::app);
  return kept;
}

void RunFolder::addMetrics(const ordered_json &entry) {
  metrics << entry.dump() << std::endl;
  if (!metrics)
    fail("expected metrics '", (path / "metrics.jsonl").string(),
         "' to be writable, but got: ", std::strerror(errno));
}
