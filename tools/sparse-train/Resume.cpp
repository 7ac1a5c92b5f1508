// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Goes on from a checkpoint, but not in silence with another configuration.

#include "Resume.h"
#include "support/Error.h"
#include "support/Json.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

using namespace bsr;
using namespace bsr::train;
using nlohmann::json;
using nlohmann::ordered_json;

std::string train::describeRun(const Config &config, const Data &data) {
  ordered_json values = ordered_json::object();
  for (const auto &[key, value] : decidingValues(config))
    values[key] = value;
  return ordered_json{{"tokens", data.checksum()}, {"configuration", values}}
      .dump();
}

/// Loads the newest intact one of `checkpoints`, which are in order, and
/// returns it.
static std::string loadNewest(Session &session,
                              const std::vector<std::string> &checkpoints) {
  std::vector<std::string> reasons;
  for (auto path = checkpoints.rbegin(); path != checkpoints.rend(); ++path) {
    std::string reason = session.load(*path);
    if (reason.empty()) {
      for (const std::string &each : reasons)
        std::fprintf(stderr, "warning: %s; the run goes on from '%s'\n",
                     each.c_str(), path->c_str());
      return *path;
    }
    reasons.push_back(reason);
  }
  fail(reasons.front());
}

/// What differs between the run that wrote the loaded checkpoint, as its
/// metadata says, and this one.
static std::vector<std::string>
findChanges(const Session &session, const Config &config, const Data &data) {
  std::string text = describeRun(config, data);
  json now = json::parse(text);
  // A checkpoint that no run wrote says nothing of one.
  if (!session.metadata().empty())
    text = session.metadata();
  json then = parseJson(text);
  if (!then.is_object())
    then = json::object();

  std::vector<std::string> changes;
  if (then["tokens"] != now["tokens"])
    changes.push_back(config.task == "arrays"
                          ? "other data '" + config.data + "'"
                          : "another token file '" + config.tokens + "'");
  if (std::string difference = session.stepDifference(); !difference.empty())
    changes.push_back("another compilation of the step '" + config.step +
                      "' (" + difference + ")");

  // Checkpoints of before the configuration was in them say nothing of it. A
  // key that is younger than a checkpoint had what is its default.
  json &values = then["configuration"];
  if (!values.is_object())
    return changes;
  for (const auto &[key, value] : decidingValues(Config()))
    if (now["configuration"].contains(key)) // not where there are groups
      values.emplace(key, value);
  std::vector<std::string> keys; // in the order of the table
  for (const auto &[key, value] : decidingValues(config))
    keys.push_back(key);
  for (auto &item : values.items())
    if (!now["configuration"].contains(item.key()))
      keys.push_back(item.key());
  for (const std::string &key : keys) {
    const json &value = values[key];
    auto found = now["configuration"].find(key);
    bool isKnown = found != now["configuration"].end();
    if (!isKnown || *found != value)
      changes.push_back(
          key + " " + (isKnown ? found->get<std::string>() : "unknown") +
          " (was " + (value.is_string() ? value.get<std::string>() : "none") +
          ")");
  }
  return changes;
}

static std::string join(const std::vector<std::string> &words) {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : ", ") + word;
  return text;
}

/// The micro-batches of a step of the run that wrote the loaded checkpoint.
static int64_t accumulateOf(const Session &session) {
  auto run = parseJson(session.metadata());
  if (!run.is_object() || !run["configuration"].is_object() ||
      !run["configuration"]["accumulate"].is_string())
    return Config().accumulate;
  std::string text = run["configuration"]["accumulate"];
  return std::max(1, std::atoi(text.c_str()));
}

bool train::resume(Session &session, const RunFolder &folder,
                   const Config &config, const Data &data, bool acceptChanges) {
  std::vector<std::string> checkpoints = folder.checkpoints();
  if (checkpoints.empty()) {
    if (!folder.holdsRun())
      fail("expected run folder '", config.run,
           "' to hold a run, but got none");
    std::printf("note: the run has no checkpoint yet; it begins again\n");
    folder.setAsideAfter("");
    return false;
  }

  std::string newest = loadNewest(session, checkpoints);
  bsr_counters counters = session.counters();
  if (counters.seed != uint64_t(config.seed))
    fail("expected configuration key 'seed' to be that of the checkpoint (",
         counters.seed, "), but got ", config.seed);
  // The runtime counts runs; what a step is may not change.
  int64_t accumulate = accumulateOf(session);
  if (config.accumulate != accumulate)
    fail("expected configuration key 'accumulate' to be that of the checkpoint "
         "(",
         accumulate, "), but got ", config.accumulate);
  int64_t done = counters.steps / accumulate;
  if (done > config.steps)
    fail("expected configuration key 'steps' to be at least those of the "
         "checkpoint (",
         done, "), but got ", config.steps);
  std::vector<std::string> changes = findChanges(session, config, data);
  if (!changes.empty() && !acceptChanges) {
    std::string all = join(changes);
    bool ofKeys = all.find(" (was ") != std::string::npos;
    fail("expected the run of checkpoint '", newest, "', but got ", all,
         ofKeys ? "; --config " + config.run + "/config.yaml is the run's own"
                : "",
         "; --accept-changes goes on all the same");
  }
  if (!changes.empty())
    std::printf("note: the run goes on with %s\n", join(changes).c_str());
  folder.setAsideAfter(newest);
  // A run that was killed after its last step had no time to.
  folder.removeOldCheckpoints(config.checkpointKeep);
  return true;
}
