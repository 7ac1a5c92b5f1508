// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums of the scores of several steps: beside sums in doubles, on the processor
// and on a GPU, from a checkpoint on, and by which steps rules ask for them.

#include "Assertions.h"
#include "CheckpointFile.h"
#include "Sealed.h"
#include <algorithm>
#include <cmath>
#include <set>

using namespace check;

/// The first matrix is summed, the second is scored, the third is neither.
static const std::vector<Matrix> matrices = {
    {12, 18, 2, 3, 12, "f32", 0.5, true},
    {9, 8, 3, 1, 8, "f32", 0.5, true},
    {4, 4, 1, 1, 5}};
static const int32_t steps[] = {3, 1, 0};

static int64_t blocksOf(const Matrix &m) {
  return m.rows / m.blockRows * (m.cols / m.blockCols);
}

namespace {
/// A session of a step that leaves scores to the tests.
class Scored {
public:
  explicit Scored(uint64_t seed = 1, const char *device = "cpu")
      : step(load(manifestFor(device))), session(begin(step, device, seed)) {
    require(bsr_session_initialize(session.get()));
    for (size_t i = 0; i < matrices.size(); ++i)
      require(bsr_session_make_pattern(session.get(), int64_t(i),
                                       matrices[i].slots));
  }

  /// Runs, and has scores of the number `number`, of each scored matrix.
  std::vector<std::vector<float>> run(uint64_t number) {
    require(bsr_session_run_scores(session.get()));
    Numbers numbers(number);
    std::vector<std::vector<float>> all(matrices.size());
    for (size_t i = 0; i < matrices.size(); ++i) {
      if (!matrices[i].hasScores)
        continue;
      std::string name = "w" + std::to_string(i);
      for (int64_t block = 0; block < blocksOf(matrices[i]); ++block)
        all[i].push_back(float(numbers.below(1 << 20)) / 1024);
      require(bsr_session_write(
          session.get(),
          bsr_step_find_buffer(step.get(), BSR_SCORES, name.c_str()), 0,
          int64_t(4 * all[i].size()), all[i].data()));
    }
    return all;
  }

  bsr_status sum(const int32_t *given = steps, int64_t count = 3) {
    return bsr_session_sum_scores(session.get(), given, count);
  }

  std::vector<float> scores(int64_t pattern) const {
    std::vector<float> all(size_t(blocksOf(matrices[size_t(pattern)])));
    require(bsr_session_scores(session.get(), pattern, int64_t(all.size()),
                               all.data()));
    return all;
  }

  /// The numbers of the stored blocks.
  std::set<int64_t> stored(int64_t pattern) const {
    std::vector<int64_t> numbers(size_t(viewOf(session, pattern).blocks));
    require(bsr_session_stored(session.get(), pattern, int64_t(numbers.size()),
                               numbers.data()));
    return {numbers.begin(), numbers.end()};
  }

  bsr_status update(bsr_method method = BSR_RIGL) {
    bsr_pattern_update rule = {method, BSR_L1, 0.4, 0, 0, 0};
    bsr_pattern_update rules[] = {rule, rule, {BSR_SET, BSR_L1, 0, 0, 0, 0}};
    return bsr_session_update(session.get(), rules, 3);
  }

private:
  static Json manifestFor(const std::string &device) {
    Json manifest = makeManifest(matrices);
    if (device == "cuda") {
      manifest["chip"] = "sm_80";
      manifest["launches"] = Json::array();
    }
    return manifest;
  }

  static Session begin(const Step &step, const char *device, uint64_t seed) {
    bsr_session *made = nullptr;
    require(bsr_session_create(step.get(), device, seed, &made));
    return {made, bsr_session_destroy};
  }

  Step step;

public:
  Session session;
};
} // namespace

/// Sums of windows of three steps, and the updates behind them, are those of
/// doubles: scores are such that f32 holds their sums.
static void compareSums(const char *device) {
  Scored own(1, device);
  uint64_t number = 0;
  for (int update = 0; update < 4; ++update) {
    std::vector<double> sums(size_t(blocksOf(matrices[0])));
    std::vector<float> last;
    for (int step = 0; step < 3; ++step) {
      auto scores = own.run(++number);
      ASSERT_TRUE(succeeds(own.sum()));
      for (size_t block = 0; block < sums.size(); ++block)
        sums[block] += double(scores[0][block]);
      last = scores[1];
      std::vector<float> found = own.scores(0);
      ASSERT_TRUE(std::equal(sums.begin(), sums.end(), found.begin()));
      ASSERT_EQ(own.scores(1), last);
    }
    std::set<int64_t> before = own.stored(0);
    ASSERT_TRUE(succeeds(own.update()));
    std::vector<int64_t> absent, grown;
    for (int64_t block = 0; block < int64_t(sums.size()); ++block)
      if (!before.count(block))
        absent.push_back(block);
    std::sort(absent.begin(), absent.end(), [&](int64_t a, int64_t b) {
      return std::pair(-sums[size_t(a)], a) < std::pair(-sums[size_t(b)], b);
    });
    for (int64_t block : own.stored(0))
      if (!before.count(block))
        grown.push_back(block);
    ASSERT_EQ(grown.size(), 5u); // of 12 blocks 0.4
    absent.resize(grown.size());
    std::sort(absent.begin(), absent.end());
    ASSERT_EQ(grown, absent);
  }
}

TEST(ScoreSumsTest, AreThoseOfDoubles) { compareSums("cpu"); }

TEST(GPUTest, ScoreSumsAreThoseOfDoubles) { compareSums("cuda"); }

TEST(ScoreSumsTest, GoOnFromACheckpointBitForBit) {
  Folder folder;
  std::string path = folder.file("checkpoint");
  for (int saved = 0; saved <= 8; ++saved) {
    Scored whole, rest(999);
    for (int step = 1; step <= 8; ++step) {
      if (step == saved + 1) {
        ASSERT_TRUE(
            succeeds(bsr_session_save(whole.session.get(), path.c_str(), "")));
        ASSERT_TRUE(
            succeeds(bsr_session_load(rest.session.get(), path.c_str())));
        std::string again = folder.file("again");
        ASSERT_TRUE(
            succeeds(bsr_session_save(rest.session.get(), again.c_str(), "")));
        ASSERT_TRUE(readFile(again) == readFile(path));
      }
      for (Scored *own : {&whole, &rest}) {
        if (own == &rest && step <= saved)
          continue;
        own->run(uint64_t(step));
        ASSERT_TRUE(succeeds(own->sum()));
      }
      if (step > saved)
        ASSERT_EQ(rest.scores(0), whole.scores(0));
      if (step % 3)
        continue;
      ASSERT_TRUE(succeeds(whole.update()));
      if (step > saved) {
        ASSERT_TRUE(succeeds(rest.update()));
        ASSERT_EQ(rest.stored(0), whole.stored(0));
      }
    }
  }
}

TEST(ScoreSumsTest, AreInCheckpointsBetweenUpdatesAlone) {
  Folder folder;
  std::string path = folder.file("checkpoint");
  Scored own;
  auto names = [&] {
    require(bsr_session_save(own.session.get(), path.c_str(), ""));
    std::set<std::string> found;
    Json header = headerOf(readFile(path));
    for (const auto &item : header.items())
      if (item.key().find(".bsr.scores") != std::string::npos)
        found.insert(item.key());
    return found;
  };
  using Names = std::set<std::string>;
  int64_t bytes = countersOf(own.session).bytes;
  ASSERT_EQ(names(), Names());
  own.run(1);
  ASSERT_TRUE(succeeds(own.sum()));
  ASSERT_EQ(names(), Names({"w0.bsr.scores"}));
  ASSERT_EQ(countersOf(own.session).bytes - bytes, 4 * blocksOf(matrices[0]));
  // A file that was changed is refused, and nothing changes.
  std::string file = readFile(path);
  Json header = headerOf(file);
  header["w0.bsr.scores"]["shape"] = {6, 6};
  writeFile(path, sealed(withHeader(file, header)));
  std::vector<float> before = own.scores(0);
  ASSERT_EQ(int(bsr_session_load(own.session.get(), path.c_str())),
            int(BSR_INVALID_CHECKPOINT));
  ASSERT_NE(std::string(bsr_last_error()).find("'w0.bsr.scores'"),
            std::string::npos);
  ASSERT_EQ(own.scores(0), before);
  ASSERT_TRUE(succeeds(own.update()));
  ASSERT_EQ(names(), Names());
}

TEST(ScoreSumsTest, EndWhereThePatternChanges) {
  auto sumAfter = [](auto change) {
    Scored own;
    own.run(1);
    require(own.sum());
    change(own);
    auto scores = own.run(2);
    require(own.sum());
    return own.scores(0) == scores[0];
  };
  ASSERT_FALSE(sumAfter([](Scored &) {}));
  ASSERT_FALSE(sumAfter([](Scored &own) {
    // That of another matrix.
    require(bsr_session_make_pattern(own.session.get(), 1, 4));
  }));
  ASSERT_TRUE(sumAfter([](Scored &own) { require(own.update()); }));
  ASSERT_TRUE(sumAfter([](Scored &own) { require(own.update(BSR_SET)); }));
  ASSERT_TRUE(sumAfter([](Scored &own) {
    require(bsr_session_make_pattern(own.session.get(), 0, 4));
  }));
  ASSERT_TRUE(sumAfter([](Scored &own) {
    int64_t pruned = *own.stored(0).begin();
    bsr_replacement gone = {0, 1, 0, &pruned, nullptr};
    require(bsr_session_replace(own.session.get(), &gone, 1));
  }));
}

TEST(ScoreSumsTest, AreTakenBackWithASnapshot) {
  Scored own;
  own.run(1);
  ASSERT_TRUE(succeeds(own.sum()));
  ASSERT_TRUE(succeeds(bsr_session_snapshot(own.session.get())));
  std::vector<float> first = own.scores(0);
  own.run(2);
  ASSERT_TRUE(succeeds(own.sum()));
  ASSERT_TRUE(succeeds(bsr_session_restore(own.session.get())));
  auto scores = own.run(3);
  ASSERT_TRUE(succeeds(own.sum()));
  std::vector<float> found = own.scores(0);
  for (size_t block = 0; block < found.size(); ++block)
    ASSERT_EQ(found[block], first[block] + scores[0][block]);
}

TEST(ScoreSumsTest, OfNaNAreRefused) {
  Scored own;
  auto scores = own.run(1);
  int64_t absent = 0;
  while (own.stored(0).count(absent))
    ++absent;
  float nan = std::nanf("");
  own.run(2);
  auto *memory = static_cast<float *>(dataOf(own.session, 27));
  memory[absent] = nan;
  ASSERT_TRUE(succeeds(own.sum()));
  own.run(3);
  ASSERT_TRUE(succeeds(own.sum()));
  ASSERT_TRUE(fails(own.update(), BSR_NOT_A_NUMBER,
                    "expected a number as the score of block (" +
                        std::to_string(absent / 6) + ", " +
                        std::to_string(absent % 6) + ") of 'w0', but got NaN"));
}

TEST(ScoreSumsTest, NeedARunWithScores) {
  Scored own;
  const std::string needsRun =
      "expected an update by scores right after a run with scores, but got a "
      "plain run, a restore, a load or another update since for pattern 'w0'";
  ASSERT_TRUE(fails(own.sum(), BSR_INVALID_ARGUMENT, needsRun));
  own.run(1);
  ASSERT_TRUE(fails(own.sum(steps, 2), BSR_INVALID_ARGUMENT,
                    "expected a number of steps for each of 3 patterns, but "
                    "got 2"));
  ASSERT_TRUE(
      fails(own.sum(nullptr), BSR_INVALID_ARGUMENT,
            "expected argument 'steps' to point somewhere, but got null"));
  int32_t third[] = {2, 0, 2};
  ASSERT_TRUE(fails(own.sum(third), BSR_INVALID_ARGUMENT,
                    "expected a step that was compiled with scores of blocks, "
                    "but got one without for pattern 'w2'"));
  ASSERT_TRUE(succeeds(own.sum()));
  ASSERT_TRUE(
      fails(own.sum(), BSR_INVALID_ARGUMENT,
            "expected a run with scores since scores were summed, but got "
            "none"));
  require(bsr_session_run(own.session.get()));
  ASSERT_TRUE(fails(own.sum(), BSR_INVALID_ARGUMENT, needsRun));
}

namespace {
struct Rules {
  explicit Rules(const Json &group, int64_t steps, bool isFrozen = false) {
    bsr_sparsity *rules = nullptr;
    require(bsr_sparsity_create(group.dump().c_str(), nullptr, &rules));
    bsr_sparse_weight weight = {"w", 8, 8, 2, 2, 8, 0, isFrozen, 1, 0};
    bsr_status status = bsr_updates_create(rules, steps, 1, &weight, &updates);
    bsr_sparsity_destroy(rules);
    require(status);
  }
  ~Rules() { bsr_updates_destroy(updates); }

  bool isDue(int64_t step) const {
    bsr_pattern_update due;
    require(bsr_updates_due(updates, step, 1, &due));
    return due.method != BSR_STATIC;
  }
  int32_t scored(int64_t step) const {
    int32_t scored = -1;
    require(bsr_updates_scored(updates, step, 1, &scored));
    return scored;
  }

  bsr_updates *updates = nullptr;
};
} // namespace

TEST(ScoreSumsTest, AreOfTheStepsInFrontOfAnUpdate) {
  for (int64_t every : {1, 4, 7})
    for (int32_t span : {1, 2, 3, 9})
      for (const char *method : {"rigl", "set"})
        for (bool isFrozen : {false, true}) {
          bool scores = method == std::string("rigl");
          Json group = {{"method", method},
                        {"every", every},
                        {"begin", 8},
                        {"end", 40},
                        {"score_steps", scores ? span : 1}};
          Rules rules(group, 50, isFrozen);
          for (int64_t step = 1; step <= 60; ++step) {
            bool isBefore = false;
            for (int64_t later = step; later < step + span; ++later)
              isBefore |= rules.isDue(later);
            ASSERT_EQ(rules.scored(step),
                      isBefore && scores && !isFrozen ? span : 0)
                << step << " of " << group;
          }
        }
  Rules rules({{"method", "rigl"}, {"every", 2}}, 10);
  int32_t scored[2];
  ASSERT_TRUE(fails(
      bsr_updates_scored(rules.updates, 1, 2, scored), BSR_INVALID_ARGUMENT,
      "expected room for the 1 weights of these updates, but got 2"));
}

TEST(ScoreSumsTest, RulesRefuseOthers) {
  auto refuses = [](const Json &group, const std::string &sentence) {
    bsr_sparsity *rules = nullptr;
    ASSERT_TRUE(
        fails(bsr_sparsity_create(group.dump().c_str(), nullptr, &rules),
              BSR_INVALID_ARGUMENT, sentence));
  };
  refuses({{"method", "set"}, {"every", 2}, {"score_steps", 4}},
          "expected configuration key 'sparsity.score_steps' to be 1 for "
          "another method than rigl, which alone reads scores, but got 4");
  for (Json steps : {Json(0), Json(65537), Json("2")})
    refuses({{"method", "rigl"}, {"every", 2}, {"score_steps", steps}},
            "expected configuration key 'sparsity.score_steps' to be an "
            "integer from 1 to 65536, but got '" +
                (steps.is_string() ? steps.get<std::string>() : steps.dump()) +
                "'");
  for (std::string name : {"grad_accumulation_n", "gradient_acc"})
    refuses({{"method", "rigl"}, {"every", 2}, {name, 8}},
            "expected configuration key 'sparsity.score_steps', over which the "
            "norms of gradients are summed, but got 'sparsity." +
                name +
                "', which sums the gradients: these are dense, and no step "
                "stores them");
  Json nested = {
      {"method", "rigl"}, {"every", 2}, {"regrow", {{"score_steps", 3}}}};
  ASSERT_EQ(Rules(nested, 10).scored(4), 3);
}
