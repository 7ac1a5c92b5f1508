// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The training loop: batches, rates, pattern updates, metrics, checkpoints.

#include "Train.h"
#include "../Version.h"
#include "Agreement.h"
#include "Compile.h"
#include "Data.h"
#include "DescribeStep.h"
#include "FirstValues.h"
#include "Host.h"
#include "LengthSteps.h"
#include "Memory.h"
#include "PatternStatistics.h"
#include "PatternUpdates.h"
#include "Progress.h"
#include "Ranks.h"
#include "Rate.h"
#include "Resume.h"
#include "RunFolder.h"
#include "Session.h"
#include "Stages.h"
#include "StopSignal.h"
#include "Summary.h"
#include "Task.h"
#include "Totals.h"
#include "Trace.h"
#include "Tracker.h"
#include "support/Error.h"
#include "support/Hash.h"
#include "support/Random.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

using namespace sparse_opt;
using namespace sparse_opt::train;
using nlohmann::json;
using nlohmann::ordered_json;

/// The stream of the random numbers that a step asks for.
static constexpr uint64_t stepSeedStream = 2;

static bool isDue(int64_t step, int64_t every) {
  return every && step % every == 0;
}

static double secondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
}

/// Fails unless `loss`, which `name` names, is a finite number.
static double requireFinite(double loss, const char *name, int64_t step) {
  if (!std::isfinite(loss))
    fail("expected the ", name, " step ", step, " to be finite, but got ",
         loss);
  return loss;
}

static bool isResumed(Existing existing) {
  return existing == Existing::Resume || existing == Existing::ResumeChanged;
}

namespace {
/// A run from its first step or checkpoint to its summary.
class Run {
public:
  /// Only the first process of a stage, or of all if there are none, has a
  /// `folder`.
  Run(const Config &given, const RunFolder *folder, Existing existing,
      bool timers, int64_t traceSteps, const Ranks &ranks)
      : config(given), folder(folder), ranks(ranks), traceSteps(traceSteps),
        place(given, ranks), data(Data::read(given)), steps(open()),
        session(steps.first().session), runs(countRuns(config, place, session)),
        allWeights(listWeights(session, ranks, place)),
        patternUpdates(config.sparsity.rules(), config.steps, session,
                       allWeights),
        agreement(ranks, config.checkpointMinutes), totals(config.steps) {
    if (runs > 1 && !session.findRole("apply"))
      fail("expected the step to have an argument with role 'apply', which "
           "accumulate ",
           config.accumulate, " needs, but got none");
    for (LengthStep &own : steps.all()) {
      const bsr_step *step = own.session.step();
      if (timers && !bsr_step_num_timers(step))
        fail("expected a step compiled with --timers, but got '",
             config.step.all().at(own.length), "', which has none");
      ranks.requireSame({"step"}, {xxh64(bsr_step_name(step))});
      ranks.requireSame({"compilation of the step"},
                        {xxh64(bsr_step_manifest_text(step))}, place.stages);
      ranks.join(own.session);
    }
    std::string checkpoint = begin(existing);
    requireSameState(/*andBuffers=*/true);
    if (traceSteps && traceSteps >= config.steps - done())
      fail("expected --trace to be less than the ", config.steps - done(),
           " steps to run, but got ", traceSteps);
    // All of them go on from here: from now on files may change.
    ranks.requireSame({"newest checkpoint"}, {uint64_t(done())});
    if (!folder)
      return;
    if (existing == Existing::Overwrite)
      folder->clear();
    if (isResumed(existing))
      folder->setAsideAfter(checkpoint);
    // A run that was killed after it had saved had no time to.
    if (!checkpoint.empty())
      folder->removeOldCheckpoints(checkpoint, config.checkpointKeep);
    folder->writeConfig(given);
    tracker.emplace(folder->folder(), session, config.steps, done(),
                    decidingValues(config),
                    [&](const json &entry) { totals.record(entry); });
  }

  /// Trains to the end, or until a signal, which it returns; else 0.
  int train() {
    rememberStopSignals();
    bool wasDone = done() == config.steps;
    train::describe(session, patternUpdates);
    if (wasDone)
      std::printf("note: all %lld steps of the run are done; with --set "
                  "steps=N it goes on\n",
                  (long long)config.steps);
    if (done() == 0) {
      ordered_json entry = {{"step", 0}};
      measureHeldOut(entry);
      if (folder)
        tracker->describePatterns(entry, nullptr);
      measure(entry);
    }
    {
      Progress progress("train", config.steps, config.logEvery, done());
      while (done() < config.steps && !signal) {
        std::string details = trainStep();
        if (trace && traced < traceSteps) {
          trace->add();
          if (++traced == traceSteps)
            trace->write(config.run);
        }
        // The first run finds cold memory and no threads.
        if (LengthStep &own = steps.at(done() - 1); ++own.stepsHere == 1)
          bsr_step_reset_timers(own.session.step());
        if (++stepsHere == 1) {
          reducedBefore = ranks.counters();
          if (traceSteps)
            trace.emplace(steps, ranks);
        }
        progress.update(done(), details);
      }
    }
    if (done() < config.steps) {
      describeStop();
      return signal;
    }
    Memory memory = measureMemory(session, ranks);
    if (folder)
      summarize(wasDone, memory);
    std::printf("%s", steps.describeTimes(ranks, reducedBefore).c_str());
    return 0;
  }

  /// Whether a step was trained.
  bool hasTrained() const { return stepsHere > 0; }

  /// Runs the first training step twice, and prints what is known then.
  void trainDry() {
    train::describe(session, patternUpdates);
    describeWeights(session);
    double all = 0, bytes = 0; // seconds of the run; of memory
    std::string times;
    if (steps.areSeveral())
      session.snapshot();
    for (LengthStep &own : steps.all()) {
      double loss = 0, time = 0, batchTime = 0;
      // The first run finds cold memory and no threads, the second one other
      // weights.
      for (bool isFirst : {true, false}) {
        auto start = std::chrono::steady_clock::now();
        double sum = runBatches(own, 0, learningRate(config, 0, sparsity()),
                                false, batchTime)
                         .loss;
        time = secondsSince(start);
        if (isFirst)
          loss = requireFinite(sum / double(runs), "loss of", 1);
      }
      if (steps.areSeveral())
        session.restore();
      std::string name = steps.nameOf(own, "length ", ": ");
      std::printf("%sloss %.4f of the first batch\n", name.c_str(), loss);
      char line[128];
      std::snprintf(line, sizeof line,
                    "step: %.3g ms, measured when it ran for the second time\n",
                    time * 1e3);
      times += name + line;
      all += time * config.lengths.expected(config.steps, own.length);
      bytes += double(own.session.counters().bytes);
    }
    std::printf(
        "memory: %.3g MiB of the step, at most %.0f MiB of the process\n"
        "%s"
        "run: about %s for %lld steps, without what is between them: updates "
        "of patterns, held-out losses, checkpoints\n"
        "dry run: nothing is written, the weights are gone\n",
        bytes / 1048576.0, peakMemory() / 1048576.0, times.c_str(),
        formatTime(all).c_str(), (long long)config.steps);
  }

private:
  /// Opens the session, once all processes are known to have the same
  /// configuration: before they compile, and before they do together what it
  /// asks for. The step says the task if the configuration does not.
  LengthSteps open() {
    ranks.requireSame({"version", "configuration",
                       config.task == "arrays" ? "data" : "token file"},
                      {xxh64(tools::describeVersion("sparse-train")),
                       xxh64(sharedConfiguration()), data.checksum()});
    std::vector<SessionOfLength> opened = openSessions(config, ranks);
    config.task = chooseTask(opened.front().session, config);
    return LengthSteps(std::move(opened), data, config);
  }

  /// All that must be the same everywhere for processes to call each other in
  /// the same order.
  std::string sharedConfiguration() const {
    std::string text;
    for (const auto &[key, value] : decidingValues(config))
      text += key + ": " + value + "\n";
    for (int64_t number : {config.steps, config.heldOutEvery,
                           config.heldOutBatches, config.checkpointEvery})
      text += std::to_string(number) + "\n";
    return text;
  }

  /// Begins the run, or goes on with it from the newest checkpoint that all
  /// stages have, whose path it returns.
  std::string begin(Existing existing) {
    patternUpdates.startBlocks(session);
    std::string checkpoint;
    if (isResumed(existing))
      checkpoint = resume(existing == Existing::ResumeChanged);
    steps.takeConstants(config.values);
    if (!checkpoint.empty())
      return checkpoint;
    FirstValues values(config.values, session);
    patternUpdates.requireValues(session, values);
    session.initialize();
    patternUpdates.initialize(session, values);
    values.write(session);
    patternUpdates.scaleFirstValues(session);
    // Those of a stage make the same, of the same seed.
    if (place.stages == 1)
      ranks.copyState(session);
    return "";
  }

  /// Loads the checkpoint that the run goes on from, and returns its path; ""
  /// if there is none yet.
  std::string resume(bool acceptChanges) {
    std::string checkpoint = loadNewest(session, folder, ranks, place.stages);
    if (folder && checkpoint.empty()) {
      if (!folder->holdsRun())
        fail("expected run folder '", config.run,
             "' to hold a run, but got none");
      std::printf("note: the run has no checkpoint yet; it begins again\n");
    } else if (folder) {
      requireSameRun(session, checkpoint, config, data, steps.codes(),
                     acceptChanges);
    }
    // That of the stage; all processes take part in all.
    std::string own;
    for (int64_t stage = 0; stage < place.stages; ++stage)
      if (std::string text = ranks.broadcast(checkpoint, stage);
          stage == place.stage)
        own = text;
    if (!folder && !own.empty())
      if (std::string reason = session.load(own); !reason.empty())
        fail(reason);
    return own;
  }

  /// Fails unless processes that ought to have the same, have the same.
  void requireSameState(bool andBuffers) const {
    if (place.replicas > 1)
      ranks.requireSameState(session, andBuffers, place.stages);
  }

  /// Steps that are done.
  int64_t done() const { return session.counters().steps / config.accumulate; }

  /// The floating-point operations of a training step of `own` with the blocks
  /// that are stored now, of all processes that run this stage; none if the
  /// compiler did not count them.
  std::optional<double> countFlops(const LengthStep &own, bool scores) const {
    double run = double(own.session.flops(/*scores=*/false));
    if (run < 0)
      return std::nullopt;
    return double(place.replicas) *
           (double(runs - 1) * run + double(own.session.flops(scores)));
  }

  int64_t tokensPerStep(const LengthStep &own) const {
    return own.batches->tokensPerBatch() * config.accumulate;
  }

  /// Sets every argument but the batch for the micro-batch `micro` of step
  /// `step`, both counted from 0.
  void setArguments(const LengthStep &own, int64_t step, int64_t micro,
                    double stepRate) {
    own.rate.set(stepRate);
    own.seed.set(int32_t(SplitMix64(config.seed, stepSeedStream,
                                    step * config.accumulate + micro)
                             .below(uint64_t(1) << 31)));
    own.number.set(step);
  }

  /// Runs the step, with scores of blocks if these are needed; `isLast`: for
  /// the last time before its update.
  void runStep(LengthStep &own, bool isLast, bool scores = false) {
    own.apply.set(isLast);
    if (scores)
      own.session.runScores();
    else
      own.session.run();
  }

  /// Adds the mean loss on the held-out batches of the first step, and that of
  /// its other results, to `entry`, and the losses of further steps; the state
  /// is left as it was.
  void measureHeldOut(ordered_json &entry) {
    session.snapshot();
    for (LengthStep &own : steps.all()) {
      Results::Sums means = measureHeldOut(own);
      bool isFirst = &own == &steps.first();
      entry["held_out" + (isFirst ? "" : "_" + std::to_string(own.length))] =
          means.loss;
      if (isFirst)
        for (const auto &[name, mean] : means.others)
          entry["held_out_" + name] = mean;
    }
  }

  /// The mean results of the step `own` on the held-out batches. Leaves the
  /// state as the session's snapshot has it.
  Results::Sums measureHeldOut(LengthStep &own) {
    Results::Sums sums;
    // Means are taken over processes and micro-batches: each has its share of
    // batches, or, where that is not the same for all, all of them.
    int64_t micros = session.microBatches(), all = place.replicas * micros;
    bool areShared = config.heldOutBatches % all == 0;
    int64_t count = config.heldOutBatches / (areShared ? all : 1);
    for (int64_t run = 0; run < count; ++run) {
      for (int64_t micro = 0; micro < micros; ++micro) {
        own.session.select(micro);
        own.batches->fillHeldOut(
            areShared ? place.microBatch(run * micros + micro) : run,
            config.heldOutBatches);
        setArguments(own, done(), 0, 0);
      }
      runStep(own, /*isLast=*/runs == 1);
      own.results.addTo(sums);
      session.restore();
    }
    if (runs > 1 && session.accumulates())
      sums.takeMeans(ranks);
    sums.loss = requireFinite(sums.loss / count, "held-out loss after", done());
    for (auto &[name, sum] : sums.others)
      sum /= count;
    return sums;
  }

  /// The share of the elements of weights with patterns that is not stored, if
  /// the rate depends on it.
  double sparsity() const {
    return config.rateSparsityRule == "none"
               ? 0
               : 1 - storedShare(session, ranks, place, allWeights);
  }

  /// Runs the batches of training step `step` by `own`, the last one with
  /// `scores` of blocks or without, and returns the sums of their results. Adds
  /// the time that it took to make them to `batchTime`.
  Results::Sums runBatches(LengthStep &own, int64_t step, double stepRate,
                           bool scores, double &batchTime) {
    Results::Sums sums;
    for (int64_t run = 0; run < runs; ++run) {
      auto batchStart = std::chrono::steady_clock::now();
      for (int64_t i = 0; i < session.microBatches(); ++i) {
        int64_t micro = place.microBatch(run * session.microBatches() + i);
        own.session.select(i);
        own.batches->fillTrain(step, micro);
        setArguments(own, step, micro, stepRate);
      }
      batchTime += secondsSince(batchStart);
      bool isLast = run == runs - 1;
      // The last run's results are means already.
      if (isLast && run && session.accumulates())
        sums.takeMeans(ranks);
      runStep(own, isLast, isLast && scores);
      own.results.addTo(sums);
    }
    return sums;
  }

  /// One step and what is due after it. Returns a line about it.
  std::string trainStep() {
    int64_t step = done();
    LengthStep &own = steps.at(step);
    double stepRate = learningRate(config, step, sparsity());
    double batchTime = 0;
    bool scores = patternUpdates.needScores(step + 1);
    std::optional<double> flops = countFlops(own, scores);
    auto start = std::chrono::steady_clock::now();
    own.phases.start();
    Results::Sums sums = runBatches(own, step, stepRate, scores, batchTime);
    double time = secondsSince(start);
    double stepLoss = sums.loss / runs;
    ++step;
    requireFinite(stepLoss, "loss of", step);
    if (scores)
      patternUpdates.sumScores(session, step);

    ordered_json entry = {{"step", step},
                          {"loss", stepLoss},
                          {"lr", stepRate},
                          {"step_time", time},
                          {"tokens_per_s", tokensPerStep(own) / time},
                          {"batch_time", batchTime}};
    if (steps.areSeveral())
      entry["length"] = own.length;
    if (flops)
      entry["flops"] = *flops;
    if (own.phases.known()) {
      entry["forward_backward_time"] = own.phases.forwardBackward();
      entry["optimizer_time"] = own.phases.optimizer();
    }
    for (const auto &[name, sum] : sums.others)
      entry[name] = sum / runs;
    // The numbers of an update are drawn by how many there were: a stage takes
    // part in those of other stages' groups, and changes nothing. It may have
    // no patterns.
    bool isUpdate = patternUpdates.areDue(step, /*anywhere=*/place.stages > 1);
    if (isUpdate && bsr_step_num_patterns(session.step())) {
      start = std::chrono::steady_clock::now();
      patternUpdates.update(session, step);
      entry["update_time"] = secondsSince(start);
      if (folder) {
        std::vector<bsr_pattern_update> due = patternUpdates.due(step);
        tracker->describePatterns(entry, &due);
      }
    }
    if (isUpdate)
      requireSameState(/*andBuffers=*/false);
    if (isDue(step, config.heldOutEvery) || step == config.steps) {
      measureHeldOut(entry);
      entry["peak_memory"] = peakMemory();
      entry["recompilations"] = session.counters().recompilations;
    }
    measure(entry);
    Agreement::Decision decision = agreement.afterStep();
    signal = decision.signal;
    if (isDue(step, config.checkpointEvery) || step == config.steps ||
        decision.saves || signal) {
      requireSameState(/*andBuffers=*/true);
      save(step);
      agreement.hasSaved();
    }

    char line[160];
    std::snprintf(line, sizeof(line),
                  "%s  loss %.4f  held-out %.4f  %.1f ms  %.0f tokens/s",
                  steps.nameOf(own, "  length ", "").c_str(), stepLoss,
                  totals.newestHeldOut, time * 1e3, tokensPerStep(own) / time);
    return line;
  }

  /// Saves the checkpoint after `step` steps. Old ones go when all stages have
  /// it: until then one that is killed leaves a step that all have.
  void save(int64_t step) {
    std::string path = folder ? folder->checkpoint(step) : "";
    if (folder) {
      tracker->flush();
      session.save(path, describeRun(config, data, steps.codes()));
    } else if (session.isSharded()) {
      session.save("", "");
    }
    if (place.stages > 1)
      ranks.wait();
    if (folder)
      folder->removeOldCheckpoints(path, config.checkpointKeep);
  }

  /// Says, where standard output may be gone, what ended the run.
  void describeStop() const {
    if (ranks.isFirst())
      std::fprintf(stderr,
                   "note: %s ended the run after step %lld of %lld; with "
                   "--resume it goes on from '%s'\n",
                   nameOfStopSignal(signal), (long long)done(),
                   (long long)config.steps, folder->checkpoint(done()).c_str());
  }

  void measure(const ordered_json &entry) {
    if (!folder)
      return;
    tracker->add(entry);
    totals.record(entry);
  }

  /// Prints the summary, and writes it: unless the run was done before, and its
  /// metrics say less than the summary that was written then.
  void summarize(bool wasDone, const Memory &memory) const {
    Summary summary = {session,
                       totals,
                       data,
                       ranks,
                       memory,
                       done(),
                       tokensPerStep(steps.first())};
    if (totals.isWhole() || !wasDone || !folder->has("summary.json"))
      folder->write("summary.json", summary.toJson().dump(2) + "\n");
    std::printf("%s", summary.describe().c_str());
  }

  Config config; // with the task
  const RunFolder *folder;
  const Ranks &ranks;
  const int64_t traceSteps;
  std::optional<Trace> trace;
  int64_t traced = 0, stepsHere = 0;
  bsr_communicator_counters reducedBefore = {};
  const Place place;
  Data data;
  LengthSteps steps;
  Session &session;   // of the first of them, which has the state
  const int64_t runs; // of a training step
  const std::vector<WeightShape> allWeights;
  PatternUpdates patternUpdates;
  std::optional<Tracker> tracker;
  Agreement agreement;
  int signal = 0; // that ends the run
  Totals totals;
};
} // namespace

int train::runTraining(const Config &config, Existing existing, bool timers,
                       int64_t traceSteps, const Ranks &ranks) {
  Place place(config, ranks);
  std::optional<RunFolder> folder;
  std::string path = config.run;
  if (place.stages > 1)
    path += "/stage-" + std::to_string(place.stage);
  if (place.replica == 0)
    folder.emplace(path, /*mustExist=*/isResumed(existing));
  Config own = config;
  own.isLaterStage = place.stage > 0;
  std::optional<Run> run;
  bool hadConfig = !folder || folder->holdsConfig();
  try {
    // Written before the step is compiled, which may take long: what is killed
    // meanwhile is a run, and can be resumed.
    if (folder && existing == Existing::Refuse) {
      folder->requireNoRun();
      folder->writeConfig(config);
    }
    run.emplace(own, folder ? &*folder : nullptr, existing, timers, traceSteps,
                ranks);
  } catch (...) {
    if (folder)
      folder->abandon(!hadConfig);
    throw;
  }
  try {
    int signal = run->train();
    return signal ? 128 + signal : 0;
  } catch (...) {
    // Without a step that was trained there is nothing to go on from.
    if (folder && !run->hasTrained() && !isResumed(existing)) {
      folder->clear();
      folder->abandon(!hadConfig);
    }
    throw;
  }
}

void train::runDry(const Config &config, const Ranks &ranks) {
  Config own = config;
  own.isLaterStage = Place(config, ranks).stage > 0;
  Run(own, /*folder=*/nullptr, Existing::Refuse, /*timers=*/false,
      /*traceSteps=*/0, ranks)
      .trainDry();
}
