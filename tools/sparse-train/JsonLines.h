// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files of one JSON object a line, added to as a run goes on.

#ifndef BSR_TOOLS_SPARSETRAIN_JSONLINES_H
#define BSR_TOOLS_SPARSETRAIN_JSONLINES_H

#include "Files.h"

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace sparse_opt::train {

/// A file of lines, each of which has a "step".
class JsonLines {
public:
  /// Whether there is one line for a step, or any number.
  enum Kind { OneAStep, Any };

  /// Begins the file `path`, or goes on with its lines of step `last` or less:
  /// the others are dropped. Calls `visit` with each line that stays; no more
  /// than one is held at a time, however long the file is.
  ///
  /// Lines that cannot be read, and those of `OneAStep` that are out of order
  /// or stand twice, are not dropped: a copy of the file is kept then, as
  /// "<path>.damaged", and a warning says so. The line that a killed run was
  /// writing, which has no end, is none of these.
  void open(
      const std::string &path, int64_t last, Kind kind,
      const std::function<void(const nlohmann::json &)> &visit = [](auto &) {});
  /// Adds a line. Throws `Error` on failure.
  void add(const nlohmann::ordered_json &entry);
  /// Returns once the file is on the device.
  void flush() const { file.flush(); }

private:
  OutputFile file;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_JSONLINES_H
