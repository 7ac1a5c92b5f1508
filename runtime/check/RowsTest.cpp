// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions of rows on the caller's memory: which parts rows are computed in,
// and what is read and written of each.

#include "bsr/rows.h"
#include "Assertions.h"
#include <atomic>
#include <cstring>
#include <thread>

using namespace check;

namespace {
constexpr int64_t width = 3; // floats of a row
constexpr float marker = -1;

/// The rows of the functions that were called, in their order.
thread_local std::vector<int64_t> calls;
/// How many of their rows were zeros.
thread_local int64_t numZeros;

/// y = x * w, and adds the rows' sum to `total`.
template <int64_t rows>
int32_t multiply(bsr_context *context, void *const *buffers, void *arena) {
  if (int32_t status =
          bsr_check_context(context, BSR_CONTEXT_VERSION, BSR_HOST))
    return status;
  auto *w = static_cast<const float *>(buffers[0]);
  auto *x = static_cast<const float *>(buffers[1]);
  auto *y = static_cast<float *>(buffers[2]);
  auto *total = static_cast<float *>(buffers[3]);
  for (void *buffer : {buffers[0], buffers[1], buffers[2], arena})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer) % 64, 0u);
  std::memset(arena, 0xff, 128);
  calls.push_back(rows);
  for (int64_t i = 0; i != rows; ++i)
    numZeros += x[i * width] == 0;
  for (int64_t i = 0; i != rows * width; ++i) {
    y[i] = x[i] * w[0];
    total[0] += x[i];
  }
  return BSR_STEP_RAN;
}

int32_t refuse(bsr_context *context, void *const *, void *) {
  return bsr_check_context(context, 7, BSR_HOST);
}

const bsr_row_function whole[] = {
    {16, multiply<16>, 128}, {4, multiply<4>, 128}, {1, multiply<1>, 128}};
// The weight and the total are parts of one piece of memory.
constexpr int64_t totalOffset = 64;
const bsr_row_buffer buffers[] = {{0, 0, 0, 0},
                                  {width * 4, 0, 1, 0},
                                  {width * 4, 0, 2, 1},
                                  {0, totalOffset, 0, 0}};

struct Memory {
  explicit Memory(int64_t rows, int64_t offset = 0)
      : x(rows * width + 64), y(rows * width + 64, marker) {
    // At a line of memory, and `offset` floats behind that.
    auto align = [&](std::vector<float> &floats) {
      auto address = reinterpret_cast<uintptr_t>(floats.data());
      return floats.data() + (-address % 64) / 4 + offset;
    };
    given = align(x);
    made = align(y);
    for (int64_t i = 0; i != rows * width; ++i)
      given[i] = 1 + i % 7;
  }

  bsr_status run(int64_t rows, const bsr_row_function *functions = whole,
                 int64_t count = 3) {
    calls.clear();
    numZeros = 0;
    const bsr_row_kernel kernel = {functions, count, buffers, 4, 3};
    void *addresses[] = {shared, given, made};
    return bsr_run_rows(&kernel, addresses, rows, &missing);
  }
  float getTotal() const { return shared[totalOffset / 4]; }

  alignas(64) float shared[32] = {2};
  std::vector<float> x, y;
  float *given, *made;
  int64_t missing = 7;
};

void expectRight(Memory &memory, int64_t rows) {
  float sum = 0;
  for (int64_t i = 0; i != rows * width; ++i) {
    ASSERT_EQ(memory.made[i], 2 * memory.given[i]) << rows << " rows";
    sum += memory.given[i];
  }
  EXPECT_EQ(memory.made[rows * width], marker) << "written behind the end";
  EXPECT_EQ(memory.getTotal(), sum);
}

TEST(RowsTest, AnyNumberOfRowsIsComputed) {
  for (int64_t rows = 0; rows != 70; ++rows)
    for (int64_t offset : {0, 1}) {
      Memory memory(rows, offset);
      ASSERT_TRUE(succeeds(memory.run(rows)));
      EXPECT_EQ(memory.missing, -1);
      expectRight(memory, rows);
    }
}

TEST(RowsTest, PartsAreTheMostRowsThatFit) {
  using Calls = std::vector<int64_t>;
  auto callsOf = [](int64_t rows) {
    Memory memory(rows);
    EXPECT_TRUE(succeeds(memory.run(rows)));
    return calls;
  };
  EXPECT_EQ(callsOf(0), Calls());
  EXPECT_EQ(callsOf(3), Calls({1, 1, 1}));
  EXPECT_EQ(callsOf(4), Calls({4}));
  EXPECT_EQ(callsOf(38), Calls({16, 16, 4, 1, 1}));
  // More of the last than three are one of the function before, and zeros.
  const bsr_row_function two[] = {{16, multiply<16>, 128},
                                  {2, multiply<2>, 128}};
  Memory memory(23);
  ASSERT_TRUE(succeeds(memory.run(23, two, 2)));
  EXPECT_EQ(calls, Calls({16, 16}));
  EXPECT_EQ(numZeros, 9);
  expectRight(memory, 23);
  Memory six(6);
  ASSERT_TRUE(succeeds(six.run(6, two, 2)));
  EXPECT_EQ(calls, Calls({2, 2, 2}));
}

TEST(RowsTest, WhatIsNotLoadedIsAskedForFirst) {
  const bsr_row_function functions[] = {
      {16, multiply<16>, 128}, {4, nullptr, 0}, {1, nullptr, 0}};
  Memory memory(21);
  ASSERT_TRUE(succeeds(memory.run(21, functions)));
  EXPECT_EQ(memory.missing, 1);
  EXPECT_TRUE(calls.empty());
  EXPECT_EQ(memory.made[0], marker);
  ASSERT_TRUE(succeeds(memory.run(16, functions)));
  EXPECT_EQ(memory.missing, -1);
}

TEST(RowsTest, ThreadsCallAtOnce) {
  std::vector<std::thread> threads;
  for (int64_t rows : {5, 19, 40, 41})
    threads.emplace_back([rows] {
      for (int round = 0; round != 100; ++round) {
        Memory memory(rows, 1);
        ASSERT_TRUE(succeeds(memory.run(rows)));
        expectRight(memory, rows);
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(RowsTest, BadArgumentsAreRefused) {
  Memory memory(4);
  auto sentence = [](bsr_status status) {
    EXPECT_NE(status, BSR_OK);
    return std::string(bsr_last_error());
  };
  EXPECT_EQ(sentence(memory.run(-1)),
            "expected a function and rows, but got 3 functions and -1 rows");
  EXPECT_EQ(sentence(memory.run(4, whole, 0)),
            "expected a function and rows, but got 0 functions and 4 rows");
  const bsr_row_function rising[] = {{4, multiply<4>, 128},
                                     {16, multiply<16>, 128}};
  EXPECT_EQ(sentence(memory.run(4, rising, 2)),
            "expected functions of fewer and fewer rows, but got one of 16");
  const bsr_row_function other[] = {{4, refuse, 0}};
  EXPECT_EQ(
      sentence(memory.run(4, other, 1)),
      "expected a function for version 1 of a processor's context, but got "
      "one for 7");
  EXPECT_EQ(sentence(memory.run(4, nullptr, 1)),
            "expected argument 'functions' to point somewhere, but got null");
  auto sentenceOf = [&](const bsr_row_buffer *given, void *shared) {
    const bsr_row_kernel kernel = {whole, 3, given, 4, 3};
    void *addresses[] = {shared, memory.given, memory.made};
    return sentence(bsr_run_rows(&kernel, addresses, 4, &memory.missing));
  };
  EXPECT_EQ(
      sentenceOf(buffers, memory.shared + 1),
      "expected buffer 0, which has no rows, at a multiple of 64 bytes, but "
      "got another address");
  EXPECT_EQ(sentenceOf(buffers, nullptr),
            "expected argument 'addresses' to point somewhere, but got null");
  const bsr_row_buffer negative[] = {
      {-4, 0, 0, 0}, buffers[1], buffers[2], buffers[3]};
  EXPECT_EQ(sentenceOf(negative, memory.shared),
            "expected rows of some bytes, but got -4 of buffer 0");
  for (int32_t address : {-1, 3}) {
    const bsr_row_buffer outside[] = {
        buffers[0], {4, 0, address, 0}, buffers[2], buffers[3]};
    EXPECT_EQ(sentenceOf(outside, memory.shared),
              "expected buffer 1 at one of 3 addresses, but got number " +
                  std::to_string(address));
  }
  EXPECT_EQ(memory.made[0], marker);
}
} // namespace
