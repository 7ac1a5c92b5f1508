// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files of one JSON object a line, added to as a run goes on.

#ifndef BSR_TOOLS_SPARSETRAIN_JSONLINES_H
#define BSR_TOOLS_SPARSETRAIN_JSONLINES_H

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bsr {

/// A file of lines, each of which has a "step".
class JsonLines {
public:
  /// Begins the file `path`, or goes on after its last line of step `last` or
  /// less: what follows is dropped. Returns the lines that stay.
  std::vector<nlohmann::ordered_json> open(const std::string &path,
                                           int64_t last);
  /// Adds a line, and flushes. Throws `Error` on failure.
  void add(const nlohmann::ordered_json &entry);
  /// Returns once the file is on the device.
  void flush() const;

private:
  std::string path;
  std::ofstream file;
};

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_JSONLINES_H
