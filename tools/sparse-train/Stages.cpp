// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What each of several processes trains: a stage of a step, on a share of the
// micro-batches.

#include "Stages.h"
#include "Compile.h"
#include "support/Error.h"
#include "support/Json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace sparse_opt;
using namespace sparse_opt::train;

/// The number that `config` gives the option `name` of the compiler; 1 if it
/// gives none.
static int64_t optionOf(const Config &config, const std::string &name) {
  for (const std::string &option : config.compileOptions)
    if (option.rfind(name + "=", 0) == 0)
      return std::max(std::atoll(option.c_str() + name.size() + 1), 1LL);
  return 1;
}

Place::Place(const Config &config, const Ranks &ranks)
    : stages(optionOf(config, "--stages")), stage(ranks.rank() % stages),
      replicas(ranks.size() / stages), replica(ranks.rank() / stages) {
  if (ranks.size() % stages)
    fail("expected a multiple of --stages of compile.options, ", stages,
         ", of processes, but got ", ranks.size());
  int64_t together = replicas * optionOf(config, "--micro-batches");
  if (config.accumulate % together)
    fail("expected accumulate, the micro-batches of a training step, to be a "
         "multiple of the ",
         together,
         stages == 1 && together == replicas
             ? " processes"
             : " that the processes run at a time",
         ", but got ", config.accumulate);
}

std::vector<WeightShape> train::listWeights(const Session &session,
                                            const Ranks &ranks,
                                            const Place &place) {
  nlohmann::json own = nlohmann::json::array();
  for (int64_t i = 0; i < bsr_step_num_patterns(session.step()); ++i) {
    bsr_pattern_info info;
    bsr_step_pattern(session.step(), i, &info);
    bsr_buffer_info weight;
    bsr_step_buffer(session.step(), info.weight, &weight);
    own.push_back({info.name, info.rows, info.cols, info.extents,
                   bool(info.is_static), !weight.carried});
  }
  std::vector<WeightShape> weights;
  for (int64_t stage = 0; stage < place.stages; ++stage) {
    // Without stages all processes have the same.
    std::string text = own.dump();
    if (place.stages > 1)
      text = ranks.broadcast(std::move(text), stage);
    for (const auto &entry : nlohmann::json::parse(text)) {
      WeightShape weight{entry[0], entry[1], entry[2], entry[3],
                         entry[4], entry[5], stage};
      if (std::none_of(weights.begin(), weights.end(), [&](const auto &known) {
            return known.name == weight.name;
          }))
        weights.push_back(std::move(weight));
    }
  }
  return weights;
}

/// Fails unless the step of `session` is one of `stages`.
static void requireStages(const Session &session, int64_t stages) {
  auto manifest = parseJson(bsr_step_manifest_text(session.step()));
  int64_t own = manifest.value("stages", int64_t(1));
  if (own != stages)
    fail("expected step '", bsr_step_name(session.step()), "' to be one of ",
         stages,
         " stages, as --stages of compile.options says, but got one of ", own);
}

/// What `buffer` begins with, in words.
static std::string describeInit(const Buffer &buffer) {
  return buffer.init.empty() ? "no rule" : buffer.init;
}

/// Fails unless the steps of `session` and `source` take the same numbers of
/// each call, and let parameters and state begin with the same.
static void requireSameCalls(const Session &session, const Session &source) {
  for (const char *role : {"lr", "seed", "step", "apply"})
    if (!session.findRole(role) != !source.findRole(role))
      fail("expected ", source.findRole(role) ? "an" : "no",
           " argument of role '", role, "', as the source has it, but got ",
           session.findRole(role) ? "one" : "none");
  for (const Buffer &buffer : session.buffers())
    if (const Buffer *other = source.find(buffer.name);
        other && buffer.carried && buffer.init != other->init)
      fail("expected '", buffer.name, "' to begin with ", describeInit(*other),
           ", but got ", describeInit(buffer));
  if (session.microBatches() != source.microBatches())
    fail("expected runs of ", source.microBatches(),
         " micro-batches, as the source has them, but got ",
         session.microBatches());
}

/// The session of the step in the library `path` for batches of `length`, on
/// the state of `source`.
static Session shareState(const std::string &path, int64_t length,
                          SessionOfLength &source) {
  try {
    Session session(path, source.session);
    requireSameCalls(session, source.session);
    return session;
  } catch (const Error &error) {
    fail(error.sentence, ": the step for length ", length,
         " has to train what that for length ", source.length, " does");
  }
}

std::vector<SessionOfLength> train::openSessions(const Config &config,
                                                 const Ranks &ranks) {
  Place place(config, ranks);
  bool isStage = place.stages > 1;
  if (isStage && config.step.haveLengths())
    fail("expected configuration key 'step' to be one file beside --stages of "
         "compile.options, but got one for each of ",
         describe(config.step.lengths()));
  Config compiled = config;
  std::vector<std::string> &options = compiled.compileOptions;
  if (isStage)
    options.push_back("--stage=" + std::to_string(place.stage));
  if (constexpr char option[] = "--data-parallel";
      (isStage ? place.replicas > 1 : ranks.areJoined()) &&
      std::find(options.begin(), options.end(), option) == options.end())
    options.push_back(option);
  if (config.shardState && place.replicas > 1)
    options.push_back("--shard-state=" + std::to_string(place.replicas));
  auto open = [&](const std::string &device) {
    // What the first process of a stage compiles, the others find.
    std::string target = Session::targetOf(device);
    if (place.replica)
      ranks.wait();
    std::map<int64_t, std::string> paths = compileSteps(compiled, target);
    if (!place.replica)
      ranks.wait();
    std::vector<SessionOfLength> sessions;
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
      auto [length, library] = *path;
      sessions.push_back(
          {length, sessions.empty()
                       ? Session(library, device, config.seed)
                       : shareState(library, length, sessions.front())});
      if (isStage)
        requireStages(sessions.back().session, place.stages);
    }
    return sessions;
  };
  if (config.device != "auto")
    return open(config.device);
  if (ranks.areJoined())
    return open("cpu");
  try {
    return open("cuda");
  } catch (const Error &error) {
    std::printf("device cpu, not cuda: %s\n", error.sentence.c_str());
    return open("cpu");
  }
}

int64_t train::countRuns(const Config &config, const Place &place,
                         const Session &session) {
  int64_t together = place.replicas * session.microBatches();
  if (config.accumulate % together)
    fail("expected accumulate, the micro-batches of a training step, to be a "
         "multiple of the ",
         together, " that a run of the step goes through, but got ",
         config.accumulate);
  return config.accumulate / together;
}
