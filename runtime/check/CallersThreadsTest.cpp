// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels on the threads of a caller: parallel regions, their loops and
// barriers.

#include "threads/CallersThreads.h"
#include "Check.h"
#include <algorithm>
#include <atomic>
#include <dlfcn.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <thread>

namespace {

using Range = std::pair<uint64_t, uint64_t>; // begin, end

/// The library, which no other test loads, with the OpenMP runtime of this
/// program as the caller's.
class CallersThreadsTest : public testing::Test {
protected:
  void SetUp() override {
    std::filesystem::path fake = check::fakePath();
    std::string path = fake.parent_path() / "libbsr_threads.so.1";
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    use = find<decltype(bsr_threads_use)>("bsr_threads_use");
    setNumThreads = find<decltype(omp_set_num_threads)>("omp_set_num_threads");
    fork = find<decltype(__kmpc_fork_call)>("__kmpc_fork_call");
    barrier = find<decltype(__kmpc_barrier)>("__kmpc_barrier");
    number =
        find<decltype(__kmpc_global_thread_num)>("__kmpc_global_thread_num");
    divide =
        find<decltype(__kmpc_for_static_init_8u)>("__kmpc_for_static_init_8u");
  }
  void TearDown() override { dlclose(library); }

  template <typename Function>
  Function *find(const char *name) {
    return reinterpret_cast<Function *>(dlsym(library, name));
  }

  /// Calls `body` on each of `count` threads.
  template <typename Body>
  void run(int count, Body body) {
    setNumThreads(count);
    fork(
        nullptr, 1,
        [](int32_t *thread, int32_t *, void *shared) {
          (*static_cast<Body *>(shared))(*thread);
        },
        &body);
  }

  void *library = nullptr;
  decltype(bsr_threads_use) *use;
  decltype(omp_set_num_threads) *setNumThreads;
  decltype(__kmpc_fork_call) *fork;
  decltype(__kmpc_barrier) *barrier;
  decltype(__kmpc_global_thread_num) *number;
  decltype(__kmpc_for_static_init_8u) *divide;
};

TEST_F(CallersThreadsTest, RegionsAreOnAsManyThreadsAsAsked) {
  ASSERT_EQ(use(RTLD_DEFAULT), 1);
  for (int count : {1, 2, 3, 7}) {
    std::atomic<int> calls[8] = {};
    std::atomic<bool> agrees = true;
    run(count, [&](int32_t thread) {
      ++calls[thread];
      agrees = agrees && number(nullptr) == thread;
    });
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(calls[i], i < count) << count;
    EXPECT_TRUE(agrees);
  }
}

TEST_F(CallersThreadsTest, LoopsAreDividedWithoutGapsOrOverlaps) {
  ASSERT_EQ(use(RTLD_DEFAULT), 1);
  for (int count : {1, 2, 3, 7})
    for (uint64_t trips : {0, 1, 2, 5, 7, 100}) {
      std::vector<Range> ranges(count);
      std::atomic<int> last = 0;
      run(count, [&](int32_t thread) {
        int32_t isLast = 0;
        uint64_t lower = 0, upper = trips - 1;
        int64_t stride = 1;
        divide(nullptr, thread, 34, &isLast, &lower, &upper, &stride, 1, 0);
        ranges[thread] = {lower, upper + 1};
        last += isLast;
      });
      uint64_t at = 0, least = trips, most = 0;
      for (auto [begin, end] : ranges) {
        ASSERT_EQ(begin, at) << count << " threads, " << trips << " trips";
        ASSERT_GE(end, begin);
        least = std::min(least, end - begin);
        most = std::max(most, end - begin);
        at = end;
      }
      ASSERT_EQ(at, trips);
      ASSERT_LE(most - least, 1u);
      ASSERT_EQ(last, trips > 0);
    }
}

TEST_F(CallersThreadsTest, BarriersWaitForAll) {
  ASSERT_EQ(use(RTLD_DEFAULT), 1);
  std::atomic<int> arrived = 0;
  std::atomic<bool> isWhole = true;
  run(5, [&](int32_t thread) {
    for (int round = 1; round <= 100; ++round) {
      ++arrived;
      barrier(nullptr, thread);
      isWhole = isWhole && arrived == 5 * round;
      barrier(nullptr, thread);
    }
  });
  EXPECT_TRUE(isWhole);
}

TEST_F(CallersThreadsTest, ThreadsThatCallAtOnceHaveTeamsOfTheirOwn) {
  ASSERT_EQ(use(RTLD_DEFAULT), 1);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> callers;
  for (int count : {1, 2, 3})
    callers.emplace_back([&, count] {
      for (int round = 0; round < 50; ++round) {
        std::atomic<int> calls = 0;
        run(count, [&](int32_t thread) {
          ++calls;
          barrier(nullptr, thread);
          wrong += calls != count;
        });
        wrong += number(nullptr) != 0;
      }
    });
  for (std::thread &caller : callers)
    caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(CallersThreadsTest, WithoutARuntimeRegionsAreOnOneThread) {
  std::unique_ptr<void, int (*)(void *)> other(
      dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL), dlclose);
  ASSERT_EQ(use(other.get()), 0);
  int calls = 0;
  run(4, [&](int32_t thread) {
    calls += 1 + thread;
    barrier(nullptr, thread);
  });
  EXPECT_EQ(calls, 1);
}

TEST_F(CallersThreadsTest, MoreThanOneSharedAddressIsRefused) {
  auto region = [](int32_t *, int32_t *, void *) {};
  EXPECT_DEATH(
      fork(nullptr, 2, region, nullptr),
      "error: expected a parallel region to share one address, but got 2");
}

} // namespace
