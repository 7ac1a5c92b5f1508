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
    own.push_back({info.name, info.rows, info.cols, bool(info.is_static),
                   !weight.carried});
  }
  std::vector<WeightShape> weights;
  for (int64_t stage = 0; stage < place.stages; ++stage) {
    // Without stages all processes have the same.
    std::string text = own.dump();
    if (place.stages > 1)
      text = ranks.broadcast(std::move(text), stage);
    for (const auto &entry : nlohmann::json::parse(text)) {
      WeightShape weight{entry[0], entry[1], entry[2],
                         entry[3], entry[4], stage};
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

Session train::openSession(const Config &config, const Ranks &ranks) {
  Place place(config, ranks);
  bool isStage = place.stages > 1;
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
    std::string path = compileStep(compiled, target);
    if (!place.replica)
      ranks.wait();
    Session session(path, device, config.seed);
    if (isStage)
      requireStages(session, place.stages);
    return session;
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
