// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions of rows on a GPU, on the caller's memory and stream. These tests
// need a driver of NVIDIA's, or that of the tests.

#include "Assertions.h"
#include "bsr/rows.h"
#include "device/CudaDevice.h"
#include "device/Memory.h"
#include "step/Step.h"
#include "support/CudaDriver.h"
#include <numeric>
#include <thread>

using namespace check;
namespace cuda = sparse_opt::cuda;

namespace {
constexpr int64_t width = 3;         // floats of a row
constexpr int64_t planBytes = 64;    // of one float
constexpr int64_t sharedFloats = 32; // the pattern, and the total behind it
constexpr int64_t totalFloat = 16;
constexpr float marker = -1;

/// The manifest of y = x (p + 1)^2 of so many rows, which adds the sum of x to
/// `total`: the first number behind the plan, which is p + 1, is x (p + 1).
Json manifestOf(int64_t rows) {
  auto buffer = [](const char *name, const char *kind, Json shape,
                   bool carried) {
    return Json{{"name", name},
                {"kind", kind},
                {"type", "f32"},
                {"shape", shape},
                {"carried", carried}};
  };
  auto launch = [](const char *kernel, const char *when, int64_t threads,
                   Json arguments) {
    return Json{{"kernel", kernel},
                {"when", when},
                {"grid", {1, 1, 1}},
                {"block", {threads, 1, 1}},
                {"arguments", arguments}};
  };
  auto bufferAt = [](int64_t index) { return Json{{"buffer", index}}; };
  auto arenaAt = [](int64_t place) { return Json{{"arena", place}}; };
  int64_t count = rows * width;
  Json manifest = makeManifest({});
  manifest["buffers"] = {buffer("p", "dense", {16}, false),
                         buffer("x", "dense", {rows, width}, false),
                         buffer("y", "output", {rows, width}, false),
                         buffer("total", "dense", {16}, true)};
  manifest["chip"] = "sm_80";
  manifest["arena_bytes"] = planBytes + count * 4;
  manifest["plan_bytes"] = planBytes;
  manifest["launches"] = {
      launch("plan", "pattern", 1, {bufferAt(0), arenaAt(0)}),
      launch("scale", "step", count,
             {bufferAt(1), arenaAt(0), arenaAt(planBytes)}),
      launch("scale", "step", count,
             {arenaAt(planBytes), arenaAt(0), bufferAt(2)}),
      launch("sum", "step", 1,
             {bufferAt(1), bufferAt(3), Json{{"number", count}}})};
  return manifest;
}

using Function =
    std::unique_ptr<bsr_gpu_function, void (*)(bsr_gpu_function *)>;

Function loadFunction(const Json &manifest, const char *device = "cuda") {
  Step step = load(manifest);
  bsr_gpu_function *function = nullptr;
  require(bsr_gpu_function_load(device, step.get(), &function));
  return {function, bsr_gpu_function_unload};
}

class GPURowsTest : public testing::Test {
protected:
  GPURowsTest() {
    for (int64_t rows : {16, 4, 1})
      loaded.push_back(loadFunction(manifestOf(rows)));
    for (size_t i = 0; i < loaded.size(); ++i) {
      EXPECT_EQ(bsr_gpu_function_plan_bytes(loaded[i].get()), planBytes);
      functions.push_back({sizes[i], loaded[i].get(), area.cut(planBytes), 0});
    }
    write(shared, std::vector<float>(sharedFloats, 0.0f));
    setPattern(1);
    driver.check(driver.cuStreamCreate(&stream, cuda::nonBlockingStream),
                 "a stream");
  }
  ~GPURowsTest() override { driver.cuStreamDestroy_v2(stream); }

  void write(float *to, const std::vector<float> &numbers) {
    gpu.write(to, numbers.data(), int64_t(numbers.size()) * 4);
    std::vector<float> read(numbers.size()); // waits for it
    gpu.read(read.data(), to, int64_t(numbers.size()) * 4);
  }
  std::vector<float> read(const float *from, int64_t count) {
    driver.check(driver.cuStreamSynchronize(stream), "the GPU to work");
    std::vector<float> numbers(static_cast<size_t>(count));
    gpu.read(numbers.data(), from, count * 4);
    return numbers;
  }
  /// Changes the pattern in place, which callers say of plans or not.
  void setPattern(float p) { write(shared, {p}); }
  void forgetPlans() {
    for (bsr_gpu_row_function &function : functions)
      function.has_plans = 0;
  }

  bsr_status launch(int64_t rows, int64_t offset = 0) {
    const bsr_gpu_row_kernel kernel = {
        functions.data(), int64_t(functions.size()), buffers, 4, numAddresses};
    void *addresses[] = {shared, x + offset, y + offset};
    return bsr_launch_rows(&kernel, addresses, rows, work, &workBytes, stream,
                           &missing);
  }

  /// Launches so many rows, and compares what comes of them.
  void expectRight(int64_t rows, int64_t offset, float p) {
    std::vector<float> given(size_t(rows * width + offset));
    std::iota(given.begin(), given.end(), 1.0f);
    write(x, given);
    write(y, std::vector<float>(size_t(rows * width + offset + 1), marker));
    write(shared + totalFloat, {0});
    workBytes = 0;
    ASSERT_TRUE(succeeds(launch(rows, offset)));
    ASSERT_LE(workBytes, mostWork);
    ASSERT_TRUE(succeeds(launch(rows, offset)));
    ASSERT_EQ(missing, -1);
    expectMade(given, rows, offset, p);
  }
  void expectMade(const std::vector<float> &given, int64_t rows, int64_t offset,
                  float p) {
    std::vector<float> made = read(y + offset, rows * width + 1);
    float sum = 0;
    for (int64_t i = 0; i != rows * width; ++i) {
      float number = given[size_t(offset + i)];
      ASSERT_EQ(made[size_t(i)], number * (p + 1) * (p + 1))
          << rows << " rows, number " << i;
      sum += number;
    }
    EXPECT_EQ(made.back(), marker) << "written behind the end";
    EXPECT_EQ(read(shared + totalFloat, 1)[0], sum);
  }

  static constexpr int64_t sizes[] = {16, 4, 1}, mostRows = 80, mostWork = 4096;
  sparse_opt::Device &gpu = sparse_opt::findDevice("cuda");
  const cuda::Driver &driver = cuda::Driver::get();
  // Of what the tests themselves ask of the driver.
  sparse_opt::CurrentContext current =
      static_cast<sparse_opt::CudaDevice &>(gpu).makeCurrent();
  sparse_opt::Memory area{gpu, 1 << 16, "a test"};
  float *shared = cutFloats(sharedFloats), *x = cutFloats(mostRows * width),
        *y = cutFloats(mostRows * width);
  void *work = area.cut(mostWork);
  std::vector<Function> loaded;
  std::vector<bsr_gpu_row_function> functions;
  bsr_row_buffer buffers[4] = {{0, 0, 0, 0},
                               {width * 4, 0, 1, 0},
                               {width * 4, 0, 2, 1},
                               {0, totalFloat * 4, 0, 0}};
  int64_t numAddresses = 3, workBytes = 0, missing = 7;
  cuda::Stream stream = nullptr;

private:
  float *cutFloats(int64_t count) {
    return static_cast<float *>(area.cut(count * 4));
  }
};
} // namespace

TEST_F(GPURowsTest, AnyNumberOfRowsIsComputed) {
  for (int64_t rows : {0, 1, 2, 3, 4, 5, 11, 15, 16, 17, 31, 38, 70})
    for (int64_t offset : {0, 1})
      expectRight(rows, offset, 1);
  // More of the last than three are one of the function before, and zeros.
  functions.erase(functions.begin() + 1);
  expectRight(23, 0, 1);
}

TEST_F(GPURowsTest, PlansAreMadeWhenPatternsHaveChanged) {
  expectRight(21, 0, 1);
  for (const bsr_gpu_row_function &function : functions)
    EXPECT_EQ(function.has_plans, 1);
  // The caller says that they have: else they are those of before.
  setPattern(2);
  expectRight(21, 0, 1);
  forgetPlans();
  expectRight(21, 0, 2);
  // A function that was not needed until now makes its own.
  setPattern(3);
  forgetPlans();
  expectRight(16, 0, 3);
  EXPECT_EQ(functions[1].has_plans, 0);
  expectRight(4, 0, 3);
}

TEST_F(GPURowsTest, GraphsOfTheCallerFindThePatternAsItIs) {
  expectRight(22, 1, 1);
  cuda::Graph graph = nullptr;
  cuda::GraphExec exec = nullptr;
  driver.check(driver.cuStreamBeginCapture_v2(stream, 0), "a graph");
  ASSERT_TRUE(succeeds(launch(22, 1)));
  driver.check(driver.cuStreamEndCapture(stream, &graph), "a graph");
  driver.check(driver.cuGraphInstantiateWithFlags(&exec, graph, 0), "a graph");
  // Nothing was computed.
  EXPECT_EQ(read(shared + totalFloat, 1)[0], float(22 * 3 * (22 * 3 + 3)) / 2);
  for (float p : {1.0f, 4.0f}) {
    setPattern(p);
    std::vector<float> given(22 * width + 1);
    std::iota(given.begin(), given.end(), p);
    write(x, given);
    write(y, std::vector<float>(22 * width + 2, marker));
    write(shared + totalFloat, {0});
    driver.check(driver.cuGraphLaunch(exec, stream), "a graph");
    expectMade(given, 22, 1, p);
  }
  driver.check(driver.cuGraphExecDestroy(exec), "a graph");
  driver.check(driver.cuGraphDestroy(graph), "a graph");
}

TEST_F(GPURowsTest, WhatIsNotThereIsAskedForFirst) {
  functions[1].function = nullptr;
  write(y, {marker});
  workBytes = mostWork;
  ASSERT_TRUE(succeeds(launch(21)));
  EXPECT_EQ(missing, 1);
  ASSERT_TRUE(succeeds(launch(16)));
  EXPECT_EQ(missing, -1);
  EXPECT_NE(read(y, 1)[0], marker);
  // What the arena has but the plan, and copies of x and y.
  write(y, {marker});
  for (auto [rows, offset, bytes] :
       {std::array<int64_t, 3>{16, 0, 192}, {16, 1, 3 * 192}, {15, 0, 192}}) {
    workBytes = 0;
    functions[1].function = loaded[1].get();
    ASSERT_TRUE(succeeds(launch(rows, offset)));
    EXPECT_EQ(workBytes, bytes) << rows << " rows at " << offset;
  }
  EXPECT_EQ(read(y, 1)[0], marker);
}

TEST_F(GPURowsTest, ThreadsKeepTheContextsThatTheyHave) {
  std::thread([&] {
    cuda::Context context = nullptr;
    workBytes = mostWork;
    ASSERT_TRUE(succeeds(launch(5)));
    loadFunction(manifestOf(2)).reset();
    driver.check(driver.cuCtxGetCurrent(&context), "a context");
    EXPECT_FALSE(context);
  }).join();
  read(y, 1);
}

/// Whether the driver is that of the tests, which does what variables of the
/// environment say.
static bool isOfTests(const cuda::Driver &driver) {
  return driver.describe(cuda::Ordinal(0)).find("PTX interpreter") == 0;
}

TEST_F(GPURowsTest, ContextsOfOthersAreLeftAsTheyAre) {
  if (!isOfTests(driver) && driver.countDevices() < 2)
    GTEST_SKIP() << "expected a second GPU, but got one alone";
  setenv("FAKE_DRIVER_DEVICES", "2", 1);
  cuda::Context theirs = nullptr;
  driver.check(driver.cuDevicePrimaryCtxRetain(&theirs, 1), "a context");
  Step step = load(manifestOf(16));
  bsr_session *session = nullptr;
  // What is created, used and ended in threads that have another context.
  auto inTheirs = [&](auto body) {
    std::thread([&] {
      driver.check(driver.cuCtxSetCurrent(theirs), "a context");
      body();
      cuda::Context now = nullptr;
      driver.check(driver.cuCtxGetCurrent(&now), "a context");
      EXPECT_EQ(now, theirs);
    }).join();
  };
  testing::internal::CaptureStderr();
  std::vector<float> p(16, 1.0f), given(16 * width), made(given.size());
  std::iota(given.begin(), given.end(), 1.0f);
  inTheirs([&] {
    ASSERT_TRUE(succeeds(bsr_session_create(step.get(), "cuda", 1, &session)));
  });
  inTheirs([&] {
    ASSERT_TRUE(succeeds(bsr_session_initialize(session)));
    ASSERT_TRUE(succeeds(bsr_session_write(session, 0, 0, 64, p.data())));
    ASSERT_TRUE(succeeds(
        bsr_session_write(session, 1, 0, 16 * width * 4, given.data())));
  });
  inTheirs([&] { ASSERT_TRUE(succeeds(bsr_session_run(session))); });
  inTheirs([&] {
    ASSERT_TRUE(
        succeeds(bsr_session_read(session, 2, 0, 16 * width * 4, made.data())));
  });
  for (size_t i = 0; i != given.size(); ++i)
    EXPECT_EQ(made[i], 4 * given[i]);
  inTheirs([&] { bsr_session_destroy(session); });
  inTheirs([&] { loadFunction(manifestOf(2)).reset(); });
  // The driver of the tests says of calls that have not the GPU's context.
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  driver.cuDevicePrimaryCtxRelease_v2(1);
  unsetenv("FAKE_DRIVER_DEVICES");
}

TEST_F(GPURowsTest, LongCompilationsAreAnnounced) {
  Step step = load(manifestOf(16));
  bsr_gpu_function *function = nullptr;
  auto saysOnLoad = [&] {
    testing::internal::CaptureStderr();
    EXPECT_TRUE(succeeds(bsr_gpu_function_load("cuda", step.get(), &function)));
    bsr_gpu_function_unload(function);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(saysOnLoad(), "");
  std::string longer = step->ptx + std::string(2 << 20, '\n');
  step->ptx = longer.c_str();
  EXPECT_EQ(saysOnLoad(),
            "the driver compiles the kernels of step 'made', 2 MiB of PTX, "
            "which takes seconds the first time: sparse-compile does so ahead "
            "where ptxas is installed\n");
}

TEST_F(GPURowsTest, ClustersNeedRoom) {
  if (!isOfTests(driver))
    GTEST_SKIP() << "expected the driver of the tests, but got another";
  Json manifest = manifestOf(16);
  manifest["chip"] = "sm_90a";
  for (Json &launch : manifest["launches"]) {
    launch["grid"] = {2, 1, 1};
    launch["cluster"] = {2, 1, 1};
  }
  loadFunction(manifest).reset();
  setenv("FAKE_DRIVER_CLUSTERS", "0", 1);
  Step step = load(manifest);
  bsr_gpu_function *function = nullptr;
  EXPECT_TRUE(fails(
      bsr_gpu_function_load("cuda", step.get(), &function), BSR_DEVICE_ERROR,
      "expected a GPU with room for 2 thread blocks of 0 bytes of shared "
      "memory side by side, a cluster of 'plan', but got PTX interpreter, "
      "sm_90, CUDA 13.0 without: compile the step with --target=sm_90, which "
      "has none"));
  EXPECT_FALSE(function);
  unsetenv("FAKE_DRIVER_CLUSTERS");
}

TEST_F(GPURowsTest, BadArgumentsAreRefused) {
  auto refuses = [&](const std::string &sentence,
                     bsr_status status = BSR_INVALID_ARGUMENT,
                     int64_t rows = 4) {
    workBytes = mostWork;
    EXPECT_TRUE(fails(launch(rows), status, sentence));
  };
  refuses("expected a function and rows, but got 3 functions and -1 rows",
          BSR_INVALID_ARGUMENT, -1);
  buffers[1].row_bytes = 8;
  refuses("expected 4 rows of buffer 1 to have 48 bytes, but got rows of 8");
  buffers[1].row_bytes = width * 4;
  std::swap(functions[1].plans, functions[2].plans);
  functions[1].plans = nullptr;
  refuses("expected 64 bytes for plans at a multiple of 64, but got none");
  functions[1].plans = shared + 1;
  refuses("expected 64 bytes for plans at a multiple of 64, but got another "
          "address");
  functions[1].plans = functions[0].plans;
  work = nullptr;
  refuses("expected work memory at a multiple of 64 bytes, but got none");
  work = shared + 1;
  refuses("expected work memory at a multiple of 64 bytes, but got another "
          "address");
  Json more = manifestOf(4);
  more["buffers"].push_back(more["buffers"][0]);
  more["buffers"][4]["name"] = "q";
  Function other = loadFunction(more);
  functions[1].function = other.get();
  refuses("expected the 5 buffers of 'made', but got 4");

  auto refusesLoad = [](const char *device, const Json &manifest,
                        bsr_status status, const std::string &sentence) {
    Step step = load(manifest);
    bsr_gpu_function *function = nullptr;
    EXPECT_TRUE(fails(bsr_gpu_function_load(device, step.get(), &function),
                      status, sentence));
    EXPECT_FALSE(function);
  };
  refusesLoad("cpu", manifestOf(4), BSR_INVALID_ARGUMENT,
              "expected a GPU, 'cuda' or 'cuda:' and a number, but got 'cpu'");
  refusesLoad("cuda:7", manifestOf(4), BSR_DEVICE_ERROR,
              "expected GPU 7, but got 1 GPU, counted from 0");
  refusesLoad("cuda", makeManifest({}), BSR_INVALID_STEP,
              "expected device 'cpu' for step 'made', which was compiled for "
              "processors, but got 'cuda:0'");
  Json apart = manifestOf(4);
  apart["plan_bytes"] = 0;
  refusesLoad("cuda", apart, BSR_INVALID_STEP,
              "expected plans in the first 0 bytes of the arena of 'made', but "
              "got one at 0: compile it again");
  bsr_gpu_function_unload(nullptr);
  EXPECT_EQ(bsr_gpu_function_plan_bytes(nullptr), 0);
}
