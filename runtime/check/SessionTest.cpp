// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions: memory, initial values, runs, snapshots, counters.

#include "Assertions.h"
#include "base/Status.h"
#include <cmath>
#include <thread>

using namespace check;

template <typename T>
static T *at(const Session &session, int64_t buffer) {
  return static_cast<T *>(dataOf(session, buffer));
}

TEST(SessionTest, SharesStateWithStepsThatLeaveIt) {
  Step step = loadFake();
  Session source = start(step);
  bsr_session *shared = nullptr;
  ASSERT_TRUE(fails(
      bsr_session_share(step.get(), source.get(), &shared), BSR_INVALID_STEP,
      "expected step 'fake' to leave the state that it shares as it "
      "is, but it changes 'state.p.w'"));
  Json manifest = fakeManifest();
  manifest["name"] = "reader";
  for (Json &buffer : manifest["buffers"])
    buffer["carried"] = false;
  Step reader = load(manifest);
  ASSERT_TRUE(succeeds(bsr_session_share(reader.get(), source.get(), &shared)));
  Session session(shared, bsr_session_destroy);
  ASSERT_TRUE(
      fails(bsr_session_initialize(shared), BSR_INVALID_ARGUMENT,
            "expected the session that owns the state, but got one of step "
            "'reader', which shares that of step 'fake'"));
}

TEST(SessionTest, StepsOfSeveralShapesTrainOneState) {
  Step step = loadFake();
  Session source = start(step), alone = start(step);
  for (const Session *each : {&source, &alone})
    ASSERT_TRUE(succeeds(bsr_session_initialize(each->get())));
  Json manifest = fakeManifest();
  manifest["name"] = "other";
  Step other = load(manifest);
  bsr_session *made = nullptr;
  ASSERT_TRUE(succeeds(bsr_session_continue(other.get(), source.get(), &made)));
  Session session(made, bsr_session_destroy);
  // Its own are the rate and the loss.
  for (int64_t i = 0; i < 13; ++i)
    ASSERT_EQ(dataOf(session, i) == dataOf(source, i), i != 5 && i != 12);
  for (const Session *each : {&source, &session, &alone})
    *at<float>(*each, 5) = 0.1f;
  for (int run = 0; run < 4; ++run) {
    const Session &next = run % 2 ? source : session;
    for (bsr_session *each : {next.get(), alone.get()})
      ASSERT_TRUE(succeeds(bsr_session_run(each)));
    for (const Session *each : {&source, &alone})
      ASSERT_TRUE(succeeds(updatePatterns(*each, 0.5, nullptr)));
  }
  ASSERT_TRUE(contentsOf(source, step) == contentsOf(alone, step));
  ASSERT_EQ(countersOf(source).steps, 4);
  ASSERT_EQ(countersOf(session).steps, 0);
  ASSERT_TRUE(
      fails(bsr_session_snapshot(session.get()), BSR_INVALID_ARGUMENT,
            "expected the session that owns the state, but got one of step "
            "'other', which shares that of step 'fake'"));

  Step leaves = load(changed(manifest, "/buffers/2/carried", "false"));
  ASSERT_TRUE(fails(
      bsr_session_continue(leaves.get(), source.get(), &made), BSR_INVALID_STEP,
      "expected a step that trains 'state.p.b', as the source does, but "
      "got one that leaves it as it is"));
}

TEST(SessionTest, ScoresOfOtherShapesAreTheSources) {
  Matrix matrix = {8, 8, 2, 2, 8, "f32", 0.5, true};
  Json manifest = makeManifest({matrix});
  Step step = load(manifest);
  Session source = start(step);
  // One that is larger works in an arena of its own.
  manifest["arena_bytes"] = int64_t(manifest["arena_bytes"]) + 64;
  Step larger = load(manifest);
  bsr_session *made = nullptr;
  ASSERT_TRUE(
      succeeds(bsr_session_continue(larger.get(), source.get(), &made)));
  Session session(made, bsr_session_destroy);
  int64_t place = bsr_step_find_buffer(step.get(), BSR_SCORES, "w0");
  ASSERT_NE(dataOf(session, place), dataOf(source, place));
  for (int i = 0; i < 16; ++i)
    at<float>(session, place)[i] = float(i);
  ASSERT_TRUE(succeeds(bsr_session_run_scores(session.get())));
  float scores[16] = {};
  ASSERT_TRUE(succeeds(bsr_session_scores(source.get(), 0, 16, scores)));
  for (int i = 0; i < 16; ++i)
    ASSERT_EQ(scores[i], float(i));

  matrix.hasScores = false;
  Step plain = load(makeManifest({matrix}));
  ASSERT_TRUE(fails(bsr_session_continue(plain.get(), source.get(), &made),
                    BSR_INVALID_STEP,
                    "expected scores of the blocks of 1 weights, as the source "
                    "has them, but got those of 0"));
}

TEST(SessionTest, ErrorsOfLibrariesAreSentences) {
  ASSERT_TRUE(
      fails(sparse_opt::keepException(std::length_error("too long")),
            BSR_INVALID_ARGUMENT,
            "expected input that the runtime can read, but got: too long"));
  ASSERT_TRUE(
      fails(sparse_opt::keepOutOfMemory(), BSR_OUT_OF_MEMORY,
            "expected memory for the runtime's own lists, but got none"));
}

TEST(SessionTest, BuffersAreAlignedZeroAndApart) {
  Step step = loadFake();
  Session session = start(step);
  char *end = nullptr;
  for (int64_t i = 0; i < bsr_step_num_buffers(step.get()); ++i) {
    bsr_buffer_info info;
    ASSERT_TRUE(succeeds(bsr_step_buffer(step.get(), i, &info)));
    char *buffer = at<char>(session, i);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(buffer) % 64, 0u);
    ASSERT_TRUE(!end || buffer >= end);
    end = buffer + info.bytes;
    for (int64_t b = 0; b < info.bytes; ++b)
      ASSERT_EQ(int(buffer[b]), 0);
  }
  void *data = nullptr;
  for (int64_t index : {-1, 13})
    ASSERT_TRUE(fails(bsr_session_host_data(session.get(), index, &data),
                      BSR_INVALID_ARGUMENT,
                      "expected the index of one of 13 buffers, but got " +
                          std::to_string(index)));
  ASSERT_FALSE(data);
}

TEST(SessionTest, ReadsAndWritesPartsOfBuffers) {
  Step step = loadFake();
  Session session = start(step);
  bsr_session *handle = session.get();
  float two[] = {1.5f, -2.0f}, got[3] = {};
  ASSERT_TRUE(succeeds(bsr_session_write(handle, 2, 4, sizeof two, two)));
  ASSERT_TRUE(succeeds(bsr_session_read(handle, 2, 0, sizeof got, got)));
  ASSERT_EQ(got[0], 0.0f);
  ASSERT_EQ(got[1], 1.5f);
  ASSERT_EQ(got[2], -2.0f);
  ASSERT_EQ(at<float>(session, 2)[2], -2.0f);
  ASSERT_TRUE(
      succeeds(bsr_session_read(handle, 2, 48, 0, got))); // nothing, at the end
  int32_t pointer = -1;
  ASSERT_TRUE(
      succeeds(bsr_session_read(handle, 6, 16, sizeof pointer, &pointer)));
  ASSERT_EQ(pointer, 0);

  std::string before = contentsOf(session, step);
  struct {
    int64_t offset, bytes;
  } wrong[] = {{-4, 4}, {0, -4},        {0, 52},
               {48, 4}, {4, INT64_MAX}, {INT64_MAX, 4}};
  for (auto [offset, bytes] : wrong) {
    std::string sentence = "expected a part of the 48 bytes of buffer "
                           "'state.p.b', but got " +
                           std::to_string(bytes) + " bytes from " +
                           std::to_string(offset);
    ASSERT_TRUE(fails(bsr_session_read(handle, 2, offset, bytes, got),
                      BSR_INVALID_ARGUMENT, sentence));
    ASSERT_TRUE(fails(bsr_session_write(handle, 2, offset, bytes, two),
                      BSR_INVALID_ARGUMENT, sentence));
  }
  ASSERT_TRUE(fails(bsr_session_write(handle, 6, 0, sizeof pointer, &pointer),
                    BSR_INVALID_ARGUMENT,
                    "expected a buffer of other kind than row_ptr, but got "
                    "'state.p.w'"));
  ASSERT_TRUE(fails(bsr_session_read(handle, 13, 0, 4, got),
                    BSR_INVALID_ARGUMENT,
                    "expected the index of one of 13 buffers, but got 13"));
  ASSERT_TRUE(
      fails(bsr_session_read(nullptr, 0, 0, 4, got), BSR_INVALID_ARGUMENT,
            "expected argument 'session' to point somewhere, but got null"));
  ASSERT_TRUE(
      fails(bsr_session_write(handle, 0, 0, 4, nullptr), BSR_INVALID_ARGUMENT,
            "expected argument 'data' to point somewhere, but got null"));
  ASSERT_TRUE(
      fails(bsr_session_host_data(handle, 0, nullptr), BSR_INVALID_ARGUMENT,
            "expected argument 'data' to point somewhere, but got null"));
  ASSERT_TRUE(before == contentsOf(session, step));
}

TEST(SessionTest, RefusesMoreMemoryThanThereIs) {
  Json manifest = fakeManifest();
  manifest["arena_bytes"] = int64_t(1) << 46;
  Step step = load(manifest);
  bsr_session *session = nullptr;
  ASSERT_TRUE(fails(
      bsr_session_create(step.get(), "cpu", 1, &session), BSR_OUT_OF_MEMORY,
      "expected 70368744178752 bytes of memory for the buffers of "
      "the step, but got none"));
  ASSERT_FALSE(session);
}

TEST(SessionTest, RefusesADeviceThatThereIsNot) {
  Step step = loadFake();
  bsr_session *session = nullptr;
  for (const std::string name :
       {"cuda:", "cuda:x", "cuda:-1", "gpu", "CPU", "cpu:0", ""})
    ASSERT_TRUE(
        fails(bsr_session_create(step.get(), name.c_str(), 1, &session),
              BSR_INVALID_ARGUMENT,
              "expected device 'cpu', 'cuda' or 'cuda:' and a number, but "
              "got '" +
                  name + "'"));
  ASSERT_FALSE(session);
}

TEST(SessionTest, RefusesNull) {
  Step step = loadFake();
  Session session = start(step);
  auto nothing = [](const char *argument) {
    return "expected argument '" + std::string(argument) +
           "' to point somewhere, but got null";
  };
  bsr_session *created;
  ASSERT_TRUE(fails(bsr_session_create(nullptr, "cpu", 1, &created),
                    BSR_INVALID_ARGUMENT, nothing("step")));
  ASSERT_TRUE(fails(bsr_session_create(step.get(), nullptr, 1, &created),
                    BSR_INVALID_ARGUMENT, nothing("device")));
  ASSERT_TRUE(fails(bsr_session_create(step.get(), "cpu", 1, nullptr),
                    BSR_INVALID_ARGUMENT, nothing("session")));
  for (bsr_status (*function)(bsr_session *) :
       {bsr_session_initialize, bsr_session_run, bsr_session_snapshot,
        bsr_session_restore})
    ASSERT_TRUE(
        fails(function(nullptr), BSR_INVALID_ARGUMENT, nothing("session")));
  ASSERT_TRUE(fails(bsr_session_counters(session.get(), nullptr),
                    BSR_INVALID_ARGUMENT, nothing("counters")));
  ASSERT_TRUE(fails(bsr_session_get_pattern(session.get(), 0, nullptr),
                    BSR_INVALID_ARGUMENT, nothing("view")));
  ASSERT_TRUE(fails(bsr_session_set_pattern(session.get(), 0, nullptr),
                    BSR_INVALID_ARGUMENT, nothing("view")));
  ASSERT_TRUE(fails(bsr_session_save(session.get(), nullptr, ""),
                    BSR_INVALID_ARGUMENT, nothing("path")));
  ASSERT_TRUE(fails(bsr_session_load(session.get(), nullptr),
                    BSR_INVALID_ARGUMENT, nothing("path")));
  ASSERT_TRUE(fails(bsr_session_read_pattern(session.get(), 0, nullptr),
                    BSR_INVALID_ARGUMENT, nothing("path")));
  ASSERT_TRUE(fails(bsr_session_write_pattern(session.get(), 0, nullptr),
                    BSR_INVALID_ARGUMENT, nothing("path")));
  bsr_session_destroy(nullptr);
}

TEST(SessionTest, ErrorOfOneThreadIsItsOwn) {
  Step step = loadFake();
  bsr_buffer_info info;
  ASSERT_TRUE(fails(bsr_step_buffer(step.get(), 13, &info),
                    BSR_INVALID_ARGUMENT,
                    "expected the index of one of 13 buffers, but got 13"));
  std::string other = "unset";
  std::thread([&] { other = bsr_last_error(); }).join();
  ASSERT_EQ(other, "");
  ASSERT_EQ(std::string(bsr_last_error()),
            "expected the index of one of 13 buffers, but got 13");
}

TEST(SessionTest, InitializesByTheManifest) {
  Step step = loadFake();
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  ASSERT_EQ(viewOf(session).blocks, 6);
  for (int i = 0; i < 36; ++i) {
    ASSERT_TRUE(at<float>(session, 0)[i] != 0);
    ASSERT_EQ(at<float>(session, 1)[i], 0.0f);
  }
  for (int i = 0; i < 12; ++i)
    ASSERT_EQ(at<float>(session, 2)[i], 1.0f);
  ASSERT_EQ(*at<int32_t>(session, 3), 0);
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(int(at<int8_t>(session, 4)[i]), 1);
}

TEST(SessionTest, NormalValuesAreTheSameEverywhere) {
  Step step = loadFake();
  Session session = start(step, 42);
  ASSERT_TRUE(succeeds(initBuffer(session, 2, "normal(0.02)")));
  const float expected[] = {-0x1.94b4f8p-10f, -0x1.b37d64p-7f, -0x1.42549p-6f,
                            0x1.1ea9a2p-5f};
  for (int i = 0; i < 4; ++i)
    ASSERT_EQ(at<float>(session, 2)[i], expected[i]);
}

TEST(SessionTest, NormalValuesAreNormal) {
  Json manifest = makeManifest({{400, 400, 4, 4, 10000, "f64"}});
  Step step = load(manifest);
  Session session = start(step);
  ASSERT_TRUE(succeeds(initBuffer(session, 0, "normal(2)")));
  double mean = 0, variance = 0, kurtosis = 0;
  for (int i = 0; i < 160000; ++i) {
    double x = at<double>(session, 0)[i] / 2;
    mean += x / 160000;
    variance += x * x / 160000;
    kurtosis += x * x * x * x / 160000;
  }
  ASSERT_LT(std::fabs(mean), 0.01);
  ASSERT_LT(std::fabs(variance - 1), 0.015);
  ASSERT_LT(std::fabs(kurtosis - 3), 0.1);
}

TEST(SessionTest, SeedAndNameKeyTheValues) {
  Step step = load(makeManifest({{8, 8, 2, 2, 16}}));
  auto valuesOf = [&](uint64_t seed, int64_t buffer) {
    Session session = start(step, seed);
    require(bsr_session_initialize(session.get()));
    return std::vector<float>(at<float>(session, buffer),
                              at<float>(session, buffer) + 64);
  };
  ASSERT_TRUE(valuesOf(1, 0) == valuesOf(1, 0));
  ASSERT_TRUE(valuesOf(1, 0) != valuesOf(2, 0));
  ASSERT_TRUE(valuesOf(1, 0) != valuesOf(1, 1));
}

TEST(SessionTest, RoundsToNearestEven) {
  struct {
    const char *value;
    uint16_t half, bfloat;
  } rounded[] = {{"0", 0x0000, 0x0000},
                 {"1", 0x3c00, 0x3f80},
                 {"-2", 0xc000, 0xc000},
                 {"1.00048828125", 0x3c00, 0x3f80},
                 {"1.00146484375", 0x3c02, 0x3f80},
                 {"1.00390625", 0x3c04, 0x3f80},
                 {"1.01171875", 0x3c0c, 0x3f82},
                 {"65504", 0x7bff, 0x4780},
                 {"65519", 0x7bff, 0x4780},
                 {"65520", 0x7c00, 0x4780},
                 {"-1e9", 0xfc00, 0xce6e},
                 {"1e300", 0x7c00, 0x7f80},
                 {"6e-8", 0x0001, 0x3381},
                 {"2.9e-8", 0x0000, 0x32f9},
                 {"-6.1e-5", 0x83ff, 0xb880},
                 {"6.1035e-5", 0x0400, 0x3880},
                 {"1e-40", 0x0000, 0x0001},
                 {"1e-300", 0x0000, 0x0000},
                 {"0.33325195312", 0x3555, 0x3eab}};
  for (const char *type : {"f16", "bf16"}) {
    Json manifest = fakeManifest();
    manifest["buffers"][2]["type"] = type;
    Step step = load(manifest);
    Session session = start(step);
    for (auto &[value, half, bfloat] : rounded) {
      std::string rule = "constant(" + std::string(value) + ")";
      ASSERT_TRUE(succeeds(initBuffer(session, 2, rule.c_str())));
      ASSERT_EQ(value + std::to_string(at<uint16_t>(session, 2)[11]),
                value + std::to_string(*type == 'f' ? half : bfloat));
    }
  }
}

TEST(SessionTest, ConstantsOfEveryType) {
  Json manifest = fakeManifest();
  const char *types[] = {"f32", "f64", "i1",   "i8",  "i32",
                         "i64", "ui8", "ui32", "ui64"};
  for (const char *type : types)
    manifest["buffers"].push_back({{"name", type},
                                   {"kind", "dense"},
                                   {"type", type},
                                   {"shape", {3}},
                                   {"carried", true},
                                   {"init", "constant(1)"}});
  Step step = load(manifest);
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  ASSERT_EQ(at<float>(session, 13)[2], 1.0f);
  ASSERT_EQ(at<double>(session, 14)[2], 1.0);
  ASSERT_EQ(int(at<int8_t>(session, 15)[2]), 1);
  ASSERT_EQ(int(at<int8_t>(session, 16)[2]), 1);
  ASSERT_EQ(at<int32_t>(session, 17)[2], 1);
  ASSERT_EQ(at<int64_t>(session, 18)[2], 1);
  ASSERT_EQ(at<uint64_t>(session, 21)[2], uint64_t(1));
  ASSERT_TRUE(succeeds(initBuffer(session, 19, "constant(255)")));
  ASSERT_EQ(int(at<uint8_t>(session, 19)[2]), 255);
  ASSERT_TRUE(succeeds(initBuffer(session, 20, "constant(4294967295)")));
  ASSERT_EQ(at<uint32_t>(session, 20)[2], UINT32_MAX);
  ASSERT_TRUE(succeeds(initBuffer(session, 16, "constant(-128)")));
  ASSERT_EQ(int(at<int8_t>(session, 16)[2]), -128);
  ASSERT_TRUE(succeeds(initBuffer(session, 14, "constant(-1.5e-3)")));
  ASSERT_EQ(at<double>(session, 14)[2], -1.5e-3);
  for (auto [buffer, rule] : {std::pair{15, "constant(2)"},
                              {16, "constant(128)"},
                              {19, "constant(256)"},
                              {20, "constant(-1)"},
                              {21, "constant(18446744073709551616)"},
                              {17, "constant(0.5)"},
                              {18, "normal(1)"},
                              {13, "constant()"},
                              {13, "constant(1"},
                              {13, "constant"},
                              {13, "constant(nan)"},
                              {13, "constant(1x)"},
                              {13, "normal(-1)"},
                              {13, "normal"},
                              {13, "zeros(1)"},
                              {13, "gamma(1)"},
                              {13, ""},
                              {13, "("}})
    ASSERT_TRUE(
        fails(initBuffer(session, buffer, rule), BSR_INVALID_ARGUMENT,
              "expected zeros, ones, constant(c) or normal(s) for the " +
                  std::string(types[buffer - 13]) + " buffer '" +
                  types[buffer - 13] + "', but got '" + rule + "'"));
  ASSERT_EQ(at<float>(session, 13)[2], 1.0f);
}

TEST(SessionTest, RefusesToInitializeIndices) {
  Step step = loadFake();
  Session session = start(step);
  ASSERT_TRUE(fails(initBuffer(session, 6, "ones"), BSR_INVALID_ARGUMENT,
                    "expected a buffer of other kind than row_ptr, but got "
                    "'state.p.w'"));
}

TEST(SessionTest, UnusedSlotsHoldZerosInEitherOrder) {
  Step step = loadFake();
  int32_t rowPtr[] = {0, 1, 1, 2, 2}, colIdx[] = {3, 0}, slot[] = {4, 1};
  bsr_pattern_view view = {2, rowPtr, colIdx, slot, nullptr, nullptr, nullptr};
  std::string contents[2];
  for (int order : {0, 1}) {
    Session session = start(step);
    for (int part : {order, 1 - order})
      if (part)
        ASSERT_TRUE(succeeds(bsr_session_set_pattern(session.get(), 0, &view)));
      else
        ASSERT_TRUE(succeeds(initBuffer(session, 0, "normal(0.5)")));
    for (int i = 0; i < 36; ++i)
      ASSERT_EQ(at<float>(session, 0)[i] != 0, i / 6 == 4 || i / 6 == 1);
    contents[order] = contentsOf(session, step);
  }
  ASSERT_TRUE(contents[0] == contents[1]);
}

TEST(SessionTest, UnusedSlotsOfAMadePatternHoldZeros) {
  Step step = loadFake();
  Session session = start(step);
  for (int64_t buffer : {0, 1})
    ASSERT_TRUE(succeeds(initBuffer(session, buffer, "ones")));
  ASSERT_TRUE(succeeds(bsr_session_make_pattern(session.get(), 0, 4)));
  for (int64_t buffer : {0, 1})
    for (int i = 0; i < 36; ++i)
      ASSERT_EQ(at<float>(session, buffer)[i], i < 24 ? 1.0f : 0.0f);
}

TEST(SessionTest, RunsAndCounts) {
  Step step = loadFake();
  Session session = start(step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  *at<float>(session, 5) = 0.125f;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(succeeds(bsr_session_run(session.get())));
    ASSERT_EQ(*at<int32_t>(session, 3), i);
    ASSERT_EQ(countersOf(session).steps, i);
  }
  ASSERT_EQ(at<float>(session, 2)[0], 0.875f * 0.875f * 0.875f);
  float sum = 0;
  for (int i = 0; i < 36; ++i)
    sum += at<float>(session, 0)[i] * at<float>(session, 0)[i];
  ASSERT_LT(std::fabs(*at<float>(session, 12) - sum), 1e-5f * sum);
}

TEST(SessionTest, SnapshotTakesRunsBack) {
  Step step = loadFake();
  Session session = start(step);
  ASSERT_TRUE(fails(bsr_session_restore(session.get()), BSR_INVALID_ARGUMENT,
                    "expected a snapshot to restore, but got none"));
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  *at<float>(session, 5) = 0.1f;
  ASSERT_TRUE(succeeds(bsr_session_run(session.get())));
  float loss = *at<float>(session, 12);
  std::string before = contentsOf(session, step);
  int64_t bytes = countersOf(session).bytes;
  ASSERT_TRUE(succeeds(bsr_session_snapshot(session.get())));
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(succeeds(bsr_session_run(session.get())));
    ASSERT_TRUE(succeeds(bsr_session_run(session.get())));
    ASSERT_TRUE(succeeds(bsr_session_restore(session.get())));
    ASSERT_EQ(countersOf(session).steps, 1);
    *at<float>(session, 12) = loss; // an output is not carried
    ASSERT_TRUE(before == contentsOf(session, step));
  }
  ASSERT_TRUE(succeeds(bsr_session_snapshot(session.get())));
  ASSERT_EQ(countersOf(session).allocations, 3);
  // 144 bytes of w and of m, 48 of b, 4 of t, 3 of flags, each to 64.
  ASSERT_EQ(countersOf(session).bytes, bytes + 192 + 192 + 64 + 64 + 64);

  ASSERT_TRUE(succeeds(updatePatterns(session, 0.5, nullptr)));
  std::string after = contentsOf(session, step);
  ASSERT_TRUE(
      fails(bsr_session_restore(session.get()), BSR_INVALID_ARGUMENT,
            "expected the patterns of the snapshot, but got patterns that "
            "changed after it"));
  ASSERT_TRUE(after == contentsOf(session, step));
}

TEST(SessionTest, CountsRecompilations) {
  Step step = loadFake();
  Session session = start(step, 77);
  bsr_counters counters = countersOf(session);
  ASSERT_EQ(counters.seed, 77u);
  ASSERT_EQ(counters.recompilations, 0);
  ASSERT_EQ(counters.allocations, 2);
  ASSERT_EQ(counters.reallocations, 0);
  // Other steps of the process are none of this session's.
  Step another = loadFake();
  ASSERT_EQ(countersOf(session).recompilations, 0);
}

TEST(SessionTest, OutlivesItsStep) {
  Step step = loadFake();
  Session whole = start(step), session = start(step);
  for (const Session *each : {&whole, &session})
    ASSERT_TRUE(succeeds(bsr_session_initialize(each->get())));
  bsr_step *handle = step.release();
  bsr_step_unload(handle);
  for (const Session *each : {&whole, &session}) {
    ASSERT_TRUE(succeeds(bsr_session_run(each->get())));
    ASSERT_TRUE(succeeds(updatePatterns(*each, 0.5, nullptr)));
  }
  ASSERT_EQ(countersOf(session).steps, 1);
  // The handle is there as long as a session is; but it is no step any more.
  bsr_session *late = nullptr;
  ASSERT_TRUE(fails(bsr_session_create(handle, "cpu", 1, &late),
                    BSR_INVALID_ARGUMENT,
                    "expected a step that is loaded, but got 'fake', which was "
                    "unloaded"));
  ASSERT_FALSE(late);
}

TEST(SessionTest, OfNullHasNothing) {
  ASSERT_EQ(std::string(bsr_session_metadata(nullptr)), "");
  ASSERT_EQ(std::string(bsr_session_step_difference(nullptr)), "");
  bsr_session_destroy(nullptr);
}

TEST(SessionTest, FlopsAreThoseOfTheBlocksThatAreStored) {
  Json manifest = fakeManifest();
  manifest["flops"] = {{"dense", 1000}, {"scores", 7}};
  manifest["patterns"][0]["flops"] = 30;
  Step step = load(manifest);
  Session session = start(step);
  for (int64_t blocks : {0, 1, 4, 6}) {
    ASSERT_TRUE(succeeds(bsr_session_make_pattern(session.get(), 0, blocks)));
    ASSERT_EQ(bsr_session_flops(session.get(), 0), 1000 + 30 * blocks);
    ASSERT_EQ(bsr_session_flops(session.get(), 1), 1007 + 30 * blocks);
  }
  // More than there are numbers for.
  manifest["patterns"][0]["flops"] = INT64_MAX / 2;
  Step large = load(manifest);
  Session full = start(large);
  ASSERT_TRUE(succeeds(bsr_session_initialize(full.get())));
  ASSERT_EQ(bsr_session_flops(full.get(), 0), INT64_MAX);
  // None of a session, nor of a step of a compiler that did not count.
  ASSERT_EQ(bsr_session_flops(nullptr, 0), -1);
  Step old = loadFake();
  ASSERT_EQ(bsr_session_flops(start(old).get(), 0), -1);
}
