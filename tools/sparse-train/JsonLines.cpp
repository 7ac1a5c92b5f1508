// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads, truncates and appends to files of JSON lines.

#include "JsonLines.h"
#include "Support.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sstream>
#include <unistd.h>

using namespace bsr;
using nlohmann::ordered_json;

/// What the file is called in messages: "metrics" for "run/metrics.jsonl".
static std::string nameOf(const std::string &path) {
  return std::filesystem::path(path).stem();
}

std::vector<ordered_json> JsonLines::open(const std::string &newPath,
                                          int64_t last) {
  path = newPath;
  std::vector<ordered_json> kept;
  std::string text;
  std::istringstream lines(
      std::filesystem::exists(path) ? readFile(path, nameOf(path)) : "");
  for (std::string line; std::getline(lines, line);) {
    ordered_json entry = ordered_json::parse(line, nullptr, false);
    if (!entry.is_object() || !entry["step"].is_number_integer() ||
        entry["step"] > last)
      break;
    kept.push_back(entry);
    text += line + "\n";
  }
  writeFile(path, nameOf(path), {text});
  file.open(path, std::ios::app);
  return kept;
}

[[noreturn]] static void failToWrite(const std::string &path, int reason) {
  fail("expected ", nameOf(path), " '", path,
       "' to be writable, but got: ", std::strerror(reason));
}

void JsonLines::add(const ordered_json &entry) {
  file << entry.dump() << std::endl;
  if (!file)
    failToWrite(path, errno);
}

void JsonLines::flush() const {
  int number = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  bool isFlushed = number >= 0 && fsync(number) == 0;
  int reason = errno;
  if (number >= 0)
    close(number);
  if (!isFlushed)
    failToWrite(path, reason);
}
