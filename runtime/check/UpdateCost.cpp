// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What pattern updates of BERT-Base's encoder cost: update-cost [BLOCK
// [MILLISECONDS]], for blocks of one size or of 1 and 16, as a share of a run
// of 10,000 steps of so many milliseconds.

#include "Check.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <omp.h>

using namespace check;

/// Milliseconds that `body` takes, each time after `prepare`: the least of five
/// calls, which other programs disturbed least.
template <typename Prepare, typename Body>
static double measure(Prepare prepare, Body body) {
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    prepare();
    auto start = std::chrono::steady_clock::now();
    body();
    auto time = std::chrono::steady_clock::now() - start;
    times.push_back(std::chrono::duration<double, std::milli>(time).count());
  }
  return *std::min_element(times.begin(), times.end());
}

/// The 48 matrices of the encoder, a tenth of the blocks stored.
static std::vector<Matrix> encoder(int64_t block) {
  std::vector<Matrix> matrices;
  for (int layer = 0; layer < 12; ++layer)
    for (auto [rows, cols] :
         {std::pair{768, 2304}, {768, 768}, {768, 3072}, {3072, 768}})
      matrices.push_back({rows, cols, block, block,
                          rows / block * (cols / block) / 10, "f32", 0.1,
                          true});
  return matrices;
}

static void print(int64_t block, double stepMilliseconds) {
  std::vector<Matrix> matrices = encoder(block);
  Step step = load(makeManifest(matrices));
  int64_t all = 0, stored = 0;
  for (const Matrix &m : matrices) {
    all += m.rows / block * (m.cols / block);
    stored += m.slots;
  }
  std::printf("blocks of %lldx%lld: %lld of %lld stored, in %zu matrices\n",
              (long long)block, (long long)block, (long long)stored,
              (long long)all, matrices.size());
  std::printf("  threads  part                                  ms\n");

  std::vector<int> teams = {1};
  if (int threads = omp_get_num_procs(); threads > 1)
    teams.push_back(threads);
  for (int threads : teams) {
    omp_set_num_threads(threads);
    Session session = start(step);
    for (size_t i = 0; i < matrices.size(); ++i) {
      require(
          bsr_session_make_pattern(session.get(), int64_t(i), BSR_MOST_BLOCKS));
      require(initBuffer(session, int64_t(9 * i), "normal(0.02)"));
    }
    Numbers numbers(1);
    auto line = [&](const char *part, double time) {
      std::printf("  %7d  %-32s %8.1f\n", threads, part, time);
    };
    // The scores lie one after the other.
    auto *scores = static_cast<float *>(
        dataOf(session, bsr_step_find_buffer(step.get(), BSR_SCORES, "w0")));
    auto fillScores = [&] {
      for (int64_t i = 0; i < all; ++i)
        scores[i] = float(numbers.below(1 << 24));
    };
    auto update = [&](bsr_method method, double drop) {
      std::vector<bsr_pattern_update> updates(matrices.size(),
                                              {method, BSR_L1, drop, 0, 0, 0});
      auto prepare = [&] {
        for (size_t i = 0; i < matrices.size(); ++i) // gmp: 2 % at a time
          updates[i].blocks =
              viewOf(session, int64_t(i)).blocks - matrices[i].slots / 50;
        if (method != BSR_RIGL)
          return;
        require(bsr_session_run_scores(session.get()));
        fillScores();
      };
      return measure(prepare, [&] {
        require(bsr_session_update(session.get(), updates.data(),
                                   int64_t(updates.size())));
      });
    };

    // Nothing to prune: norms are computed, and no more is done.
    double norms = update(BSR_SET, 0), set = update(BSR_SET, 0.5);
    double rigl = update(BSR_RIGL, 0.5), gmp = update(BSR_GMP, 0);
    line("check of patterns, norms", norms);
    line("set: selection, choice, views", set - norms);
    line("set: an update", set);
    line("rigl: an update", rigl);
    line("gmp: an update", gmp);
    for (auto [name, time] : {std::pair{"set", set}, {"rigl", rigl}})
      std::printf("  160 updates by %s take %.2f %% of 10,000 steps of %g ms\n",
                  name, 160 * time / (10000 * stepMilliseconds) * 100,
                  stepMilliseconds);
  }
}

int main(int argc, char **argv) {
  try {
    double milliseconds = argc > 2 ? std::atof(argv[2]) : 1000;
    for (int64_t block : {1, 16})
      if (argc < 2 || std::atoi(argv[1]) == block)
        print(block, milliseconds);
  } catch (const std::exception &error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}
