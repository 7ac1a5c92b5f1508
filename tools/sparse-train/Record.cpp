// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads lines of measurements, and writes the files of a run.

#include "Record.h"
#include "Host.h"
#include "JsonLines.h"
#include "RunFolder.h"
#include "TensorBoard.h"
#include "Tracker.h"
#include "support/Error.h"
#include "support/Json.h"
#include "support/Keys.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <iostream>
#include <limits>

using namespace sparse_opt;
using namespace sparse_opt::train;
using nlohmann::ordered_json;

/// Whether a key of such characters alone is YAML without quotes.
static bool isWordPart(unsigned char c) {
  return std::isalnum(c) || c == '_' || c == '.';
}

void train::record(const std::string &path, int64_t done) {
  RunFolder folder(path, /*mustExist=*/done > 0);
  if (!done)
    folder.requireNoRun("name another, or say how many steps are done");
  JsonLines metrics, pictures, sessions;
  EventFile events;
  bool isOpen = false;
  int64_t last = done ? done : -1;
  for (std::string text; std::getline(std::cin, text);) {
    ordered_json line = ordered_json::parse(text, nullptr, false);
    auto holds = [&](const char *key) {
      return line.is_object() && line.contains(key) && line[key].is_object();
    };
    bool isConfig = holds("config"), isSummary = holds("summary");
    bool isStep = line.is_object() && line.contains("step") &&
                  line["step"].is_number_integer();
    if (!isOpen && !isConfig)
      folder.abandon(/*isOurs=*/false);
    if (isOpen ? !isSummary && (!isStep || line["step"] <= last) : !isConfig)
      fail("expected ",
           isOpen ? "a line with a step after " + std::to_string(last) +
                        ", or the summary"
                  : "a line with the config",
           ", but got '", excerpt(text), "'");
    if (isConfig && !isOpen) {
      std::vector<std::pair<std::string, std::string>> settings;
      std::string yaml;
      for (const auto &[key, value] : line["config"].items()) {
        settings.emplace_back(key, value.dump());
        bool isWord =
            !key.empty() && std::all_of(key.begin(), key.end(), isWordPart);
        yaml += (isWord ? key : ordered_json(key).dump()) + ": " +
                value.dump() + "\n";
      }
      folder.write("config.yaml", yaml);
      metrics.open(folder.folder() / "metrics.jsonl", last,
                   JsonLines::OneAStep);
      pictures.open(folder.folder() / "patterns.jsonl", last, JsonLines::Any);
      sessions.open(folder.folder() / "sessions.jsonl",
                    std::numeric_limits<int64_t>::max(), JsonLines::Any);
      ordered_json session = {{"step", done}};
      session.update(describeHost());
      sessions.add(session);
      events.open(folder.folder(), last + 1);
      events.addSettings(settings);
      isOpen = true;
      std::printf("ready\n");
      std::fflush(stdout);
    } else if (isStep) {
      last = line["step"];
      metrics.add(line);
      events.add(last, scalarsOf(line));
    } else {
      folder.write("summary.json", line["summary"].dump(2) + "\n");
    }
  }
  if (isOpen)
    metrics.flush();
  else
    folder.abandon(/*isOurs=*/false);
}
