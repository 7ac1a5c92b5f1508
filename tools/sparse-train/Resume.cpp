// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Goes on from a checkpoint, but not in silence with another configuration.

#include "Resume.h"
#include "support/Error.h"
#include "support/Json.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

using namespace sparse_opt;
using namespace sparse_opt::train;
using nlohmann::json;
using nlohmann::ordered_json;

std::string train::describeRun(const Config &config, const Data &data) {
  ordered_json values = ordered_json::object();
  for (const auto &[key, value] : decidingValues(config))
    values[key] = value;
  return ordered_json{{"tokens", data.checksum()}, {"configuration", values}}
      .dump();
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

namespace {
/// The checkpoints of a folder, of which the newest that is intact is loaded.
class Candidates {
public:
  /// The step of what a process without a folder would load: any.
  static constexpr int64_t any = std::numeric_limits<int64_t>::max();
  static constexpr int64_t none = -1;

  Candidates(Session &session, const RunFolder *folder)
      : session(session), hasFolder(folder),
        left(folder ? folder->checkpoints()
                    : std::vector<RunFolder::Checkpoint>()),
        count(folder ? int64_t(left.size()) : any) {}

  int64_t size() const { return count; }

  /// Loads the newest one up to step `most` that is intact, and returns its
  /// step, or `none`.
  int64_t load(int64_t most) {
    if (!hasFolder)
      return any;
    for (; !left.empty(); left.pop_back(), isLoaded = false) {
      std::string reason = left.back().step > most ? whyNotShared()
                           : isLoaded              ? ""
                                                   : tryNewest();
      isLoaded = reason.empty();
      if (isLoaded)
        return left.back().step;
      reasons.push_back(reason);
    }
    return none;
  }

  /// The path of what is loaded; warns of what is newer.
  std::string takeLoaded() const {
    if (left.empty())
      return "";
    for (const std::string &reason : reasons)
      std::fprintf(stderr, "warning: %s; the run goes on from '%s'\n",
                   reason.c_str(), left.back().path.c_str());
    return left.back().path;
  }

  const std::vector<std::string> &whyNot() const { return reasons; }

private:
  std::string whyNotShared() const {
    return "expected all stages to have '" + left.back().path +
           "', but got one without an intact checkpoint of step " +
           std::to_string(left.back().step);
  }

  /// Loads the newest one that is left; returns what is wrong with it.
  std::string tryNewest() {
    const auto &[path, step] = left.back();
    std::string reason = session.load(path);
    if (!reason.empty())
      return reason;
    int64_t done = session.counters().steps / accumulateOf(session);
    // A smaller number, of one that was converted, makes no later one look old.
    if (done >= step)
      return "";
    return "expected checkpoint '" + path + "' to be of step " +
           std::to_string(step) + ", as its name says, but got step " +
           std::to_string(done);
  }

  Session &session;
  const bool hasFolder;
  std::vector<RunFolder::Checkpoint> left; // the newest last
  const int64_t count;
  bool isLoaded = false; // the newest that is left
  std::vector<std::string> reasons;
};
} // namespace

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

static std::string join(const std::vector<std::string> &words,
                        const char *between = ", ") {
  std::string text;
  for (const std::string &word : words)
    text += (text.empty() ? "" : between) + word;
  return text;
}

/// The steps of the checkpoints of `folder` in words.
static std::string describeSteps(const RunFolder *folder) {
  std::vector<std::string> steps;
  if (folder)
    for (const RunFolder::Checkpoint &each : folder->checkpoints())
      steps.push_back(std::to_string(each.step));
  return steps.empty() ? "none" : join(steps);
}

/// Fails since there is no checkpoint that all stages can load. `reasons`: what
/// is wrong with those of this process.
[[noreturn]] static void refuse(const std::vector<std::string> &reasons,
                                const RunFolder *folder, const Ranks &ranks,
                                int64_t stages) {
  if (stages == 1 && !reasons.empty())
    fail(reasons.front());
  std::string own = describeSteps(folder);
  std::vector<std::string> all;
  for (int64_t stage = 0; stage < stages; ++stage)
    all.push_back("stage " + std::to_string(stage) + ": " +
                  ranks.broadcast(own, stage));
  fail("expected all stages to have an intact checkpoint of the same step, but "
       "got of ",
       join(all, "; "));
}

std::string train::loadNewest(Session &session, const RunFolder *folder,
                              const Ranks &ranks, int64_t stages) {
  Candidates candidates(session, folder);
  std::vector<int64_t> sizes = ranks.gather(candidates.size());
  if (std::count(sizes.begin(), sizes.end(), 0)) {
    // Stages remove old ones when all have saved another: of one that has
    // nothing, others have the first, which it was about to save.
    for (int64_t size : sizes)
      if (size > 1 && size != Candidates::any)
        refuse({}, folder, ranks, stages);
    return "";
  }
  for (int64_t most = Candidates::any;;) {
    std::vector<int64_t> steps = ranks.gather(candidates.load(most));
    most = *std::min_element(steps.begin(), steps.end());
    if (most == Candidates::none)
      refuse(candidates.whyNot(), folder, ranks, stages);
    if (std::all_of(steps.begin(), steps.end(), [&](int64_t step) {
          return step == most || step == Candidates::any;
        }))
      return candidates.takeLoaded();
  }
}

void train::requireSameRun(const Session &session,
                           const std::string &checkpoint, const Config &config,
                           const Data &data, bool acceptChanges) {
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
  bool areSteps = changes.size() == 1 && changes[0].rfind("steps ", 0) == 0;
  if (!changes.empty() && !areSteps && !acceptChanges) {
    std::string all = join(changes);
    bool ofKeys = all.find(" (was ") != std::string::npos;
    fail("expected the run of checkpoint '", checkpoint, "', but got ", all,
         ofKeys ? "; --config " + config.run + "/config.yaml is the run's own"
                : "",
         "; --accept-changes goes on all the same");
  }
  if (!changes.empty())
    std::printf("note: the run goes on with %s\n",
                printable(join(changes)).c_str());
}
