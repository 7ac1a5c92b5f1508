// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions: memory, initial values, runs, snapshots, counters.

#include "Check.h"
#include "Status.h"
#include <cmath>
#include <thread>

using namespace check;

template <typename T>
static T *at(const Session &session, int64_t buffer) {
  return static_cast<T *>(dataOf(session, buffer));
}

CASE(session_shares_state_with_steps_that_leave_it) {
  Step step = loadFake();
  Session source = start(step);
  bsr_session *shared = nullptr;
  REQUIRE_FAILS(bsr_session_share(step.get(), source.get(), &shared),
                BSR_INVALID_STEP,
                "expected step 'fake' to leave the state that it shares as it "
                "is, but it changes 'state.p.w'");
  Json manifest = fakeManifest();
  manifest["name"] = "reader";
  for (Json &buffer : manifest["buffers"])
    buffer["carried"] = false;
  Step reader = load(manifest);
  REQUIRE_OK(bsr_session_share(reader.get(), source.get(), &shared));
  Session session(shared, bsr_session_destroy);
  REQUIRE_FAILS(bsr_session_initialize(shared), BSR_INVALID_ARGUMENT,
                "expected the session that owns the state, but got one of step "
                "'reader', which shares that of step 'fake'");
}

CASE(session_errors_of_libraries_are_sentences) {
  REQUIRE_FAILS(bsr::keepException(std::length_error("too long")),
                BSR_INVALID_ARGUMENT,
                "expected input that the runtime can read, but got: too long");
  REQUIRE_FAILS(bsr::keepOutOfMemory(), BSR_OUT_OF_MEMORY,
                "expected memory for the runtime's own lists, but got none");
}

CASE(session_buffers_are_aligned_zero_and_apart) {
  Step step = loadFake();
  Session session = start(step);
  char *end = nullptr;
  for (int64_t i = 0; i < bsr_step_num_buffers(step.get()); ++i) {
    bsr_buffer_info info;
    REQUIRE_OK(bsr_step_buffer(step.get(), i, &info));
    char *buffer = at<char>(session, i);
    REQUIRE_EQUAL(reinterpret_cast<uintptr_t>(buffer) % 64, 0u);
    REQUIRE(!end || buffer >= end);
    end = buffer + info.bytes;
    for (int64_t b = 0; b < info.bytes; ++b)
      REQUIRE_EQUAL(int(buffer[b]), 0);
  }
  void *data = nullptr;
  for (int64_t index : {-1, 13})
    REQUIRE_FAILS(bsr_session_host_data(session.get(), index, &data),
                  BSR_INVALID_ARGUMENT,
                  "expected the index of one of 13 buffers, but got " +
                      std::to_string(index));
  REQUIRE(!data);
}

CASE(session_reads_and_writes_parts_of_buffers) {
  Step step = loadFake();
  Session session = start(step);
  bsr_session *handle = session.get();
  float two[] = {1.5f, -2.0f}, got[3] = {};
  REQUIRE_OK(bsr_session_write(handle, 2, 4, sizeof two, two));
  REQUIRE_OK(bsr_session_read(handle, 2, 0, sizeof got, got));
  REQUIRE_EQUAL(got[0], 0.0f);
  REQUIRE_EQUAL(got[1], 1.5f);
  REQUIRE_EQUAL(got[2], -2.0f);
  REQUIRE_EQUAL(at<float>(session, 2)[2], -2.0f);
  REQUIRE_OK(bsr_session_read(handle, 2, 48, 0, got)); // nothing, at the end
  int32_t pointer = -1;
  REQUIRE_OK(bsr_session_read(handle, 6, 16, sizeof pointer, &pointer));
  REQUIRE_EQUAL(pointer, 0);

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
    REQUIRE_FAILS(bsr_session_read(handle, 2, offset, bytes, got),
                  BSR_INVALID_ARGUMENT, sentence);
    REQUIRE_FAILS(bsr_session_write(handle, 2, offset, bytes, two),
                  BSR_INVALID_ARGUMENT, sentence);
  }
  REQUIRE_FAILS(bsr_session_write(handle, 6, 0, sizeof pointer, &pointer),
                BSR_INVALID_ARGUMENT,
                "expected a buffer of other kind than row_ptr, but got "
                "'state.p.w'");
  REQUIRE_FAILS(bsr_session_read(handle, 13, 0, 4, got), BSR_INVALID_ARGUMENT,
                "expected the index of one of 13 buffers, but got 13");
  REQUIRE_FAILS(bsr_session_read(nullptr, 0, 0, 4, got), BSR_INVALID_ARGUMENT,
                "expected argument 'session' to point somewhere, but got null");
  REQUIRE_FAILS(bsr_session_write(handle, 0, 0, 4, nullptr),
                BSR_INVALID_ARGUMENT,
                "expected argument 'data' to point somewhere, but got null");
  REQUIRE_FAILS(bsr_session_host_data(handle, 0, nullptr), BSR_INVALID_ARGUMENT,
                "expected argument 'data' to point somewhere, but got null");
  REQUIRE(before == contentsOf(session, step));
}

CASE(session_refuses_more_memory_than_there_is) {
  Json manifest = fakeManifest();
  manifest["arena_bytes"] = int64_t(1) << 46;
  Step step = load(manifest);
  bsr_session *session = nullptr;
  REQUIRE_FAILS(bsr_session_create(step.get(), "cpu", 1, &session),
                BSR_OUT_OF_MEMORY,
                "expected 70368744178752 bytes of memory for the buffers of "
                "the step, but got none");
  REQUIRE(!session);
}

CASE(session_refuses_a_device_that_there_is_not) {
  Step step = loadFake();
  bsr_session *session = nullptr;
  for (const std::string name :
       {"cuda:", "cuda:x", "cuda:-1", "gpu", "CPU", "cpu:0", ""})
    REQUIRE_FAILS(bsr_session_create(step.get(), name.c_str(), 1, &session),
                  BSR_INVALID_ARGUMENT,
                  "expected device 'cpu', 'cuda' or 'cuda:' and a number, but "
                  "got '" +
                      name + "'");
  REQUIRE(!session);
}

CASE(session_refuses_null) {
  Step step = loadFake();
  Session session = start(step);
  auto nothing = [](const char *argument) {
    return "expected argument '" + std::string(argument) +
           "' to point somewhere, but got null";
  };
  bsr_session *created;
  REQUIRE_FAILS(bsr_session_create(nullptr, "cpu", 1, &created),
                BSR_INVALID_ARGUMENT, nothing("step"));
  REQUIRE_FAILS(bsr_session_create(step.get(), nullptr, 1, &created),
                BSR_INVALID_ARGUMENT, nothing("device"));
  REQUIRE_FAILS(bsr_session_create(step.get(), "cpu", 1, nullptr),
                BSR_INVALID_ARGUMENT, nothing("session"));
  for (bsr_status (*function)(bsr_session *) :
       {bsr_session_initialize, bsr_session_run, bsr_session_snapshot,
        bsr_session_restore})
    REQUIRE_FAILS(function(nullptr), BSR_INVALID_ARGUMENT, nothing("session"));
  REQUIRE_FAILS(bsr_session_counters(session.get(), nullptr),
                BSR_INVALID_ARGUMENT, nothing("counters"));
  REQUIRE_FAILS(bsr_session_get_pattern(session.get(), 0, nullptr),
                BSR_INVALID_ARGUMENT, nothing("view"));
  REQUIRE_FAILS(bsr_session_set_pattern(session.get(), 0, nullptr),
                BSR_INVALID_ARGUMENT, nothing("view"));
  REQUIRE_FAILS(bsr_session_save(session.get(), nullptr, ""),
                BSR_INVALID_ARGUMENT, nothing("path"));
  REQUIRE_FAILS(bsr_session_load(session.get(), nullptr), BSR_INVALID_ARGUMENT,
                nothing("path"));
  REQUIRE_FAILS(bsr_session_read_pattern(session.get(), 0, nullptr),
                BSR_INVALID_ARGUMENT, nothing("path"));
  REQUIRE_FAILS(bsr_session_write_pattern(session.get(), 0, nullptr),
                BSR_INVALID_ARGUMENT, nothing("path"));
  bsr_session_destroy(nullptr);
}

CASE(session_error_of_one_thread_is_its_own) {
  Step step = loadFake();
  bsr_buffer_info info;
  REQUIRE_FAILS(bsr_step_buffer(step.get(), 13, &info), BSR_INVALID_ARGUMENT,
                "expected the index of one of 13 buffers, but got 13");
  std::string other = "unset";
  std::thread([&] { other = bsr_last_error(); }).join();
  REQUIRE_EQUAL(other, "");
  REQUIRE_EQUAL(std::string(bsr_last_error()),
                "expected the index of one of 13 buffers, but got 13");
}

CASE(session_initializes_by_the_manifest) {
  Step step = loadFake();
  Session session = start(step);
  REQUIRE_OK(bsr_session_initialize(session.get()));
  REQUIRE_EQUAL(viewOf(session).blocks, 6);
  for (int i = 0; i < 36; ++i) {
    REQUIRE(at<float>(session, 0)[i] != 0);
    REQUIRE_EQUAL(at<float>(session, 1)[i], 0.0f);
  }
  for (int i = 0; i < 12; ++i)
    REQUIRE_EQUAL(at<float>(session, 2)[i], 1.0f);
  REQUIRE_EQUAL(*at<int32_t>(session, 3), 0);
  for (int i = 0; i < 3; ++i)
    REQUIRE_EQUAL(int(at<int8_t>(session, 4)[i]), 1);
}

CASE(session_normal_values_are_the_same_everywhere) {
  Step step = loadFake();
  Session session = start(step, 42);
  REQUIRE_OK(initBuffer(session, 2, "normal(0.02)"));
  const float expected[] = {-0x1.94b4f8p-10f, -0x1.b37d64p-7f, -0x1.42549p-6f,
                            0x1.1ea9a2p-5f};
  for (int i = 0; i < 4; ++i)
    REQUIRE_EQUAL(at<float>(session, 2)[i], expected[i]);
}

CASE(session_normal_values_are_normal) {
  Json manifest = makeManifest({{400, 400, 4, 4, 10000, "f64"}});
  Step step = load(manifest);
  Session session = start(step);
  REQUIRE_OK(initBuffer(session, 0, "normal(2)"));
  double mean = 0, variance = 0, kurtosis = 0;
  for (int i = 0; i < 160000; ++i) {
    double x = at<double>(session, 0)[i] / 2;
    mean += x / 160000;
    variance += x * x / 160000;
    kurtosis += x * x * x * x / 160000;
  }
  REQUIRE(std::fabs(mean) < 0.01);
  REQUIRE(std::fabs(variance - 1) < 0.015);
  REQUIRE(std::fabs(kurtosis - 3) < 0.1);
}

CASE(session_seed_and_name_key_the_values) {
  Step step = load(makeManifest({{8, 8, 2, 2, 16}}));
  auto valuesOf = [&](uint64_t seed, int64_t buffer) {
    Session session = start(step, seed);
    REQUIRE_OK(bsr_session_initialize(session.get()));
    return std::vector<float>(at<float>(session, buffer),
                              at<float>(session, buffer) + 64);
  };
  REQUIRE(valuesOf(1, 0) == valuesOf(1, 0));
  REQUIRE(valuesOf(1, 0) != valuesOf(2, 0));
  REQUIRE(valuesOf(1, 0) != valuesOf(1, 1));
}

CASE(session_rounds_to_nearest_even) {
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
      REQUIRE_OK(initBuffer(session, 2, rule.c_str()));
      REQUIRE_EQUAL(value + std::to_string(at<uint16_t>(session, 2)[11]),
                    value + std::to_string(*type == 'f' ? half : bfloat));
    }
  }
}

CASE(session_constants_of_every_type) {
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
  REQUIRE_OK(bsr_session_initialize(session.get()));
  REQUIRE_EQUAL(at<float>(session, 13)[2], 1.0f);
  REQUIRE_EQUAL(at<double>(session, 14)[2], 1.0);
  REQUIRE_EQUAL(int(at<int8_t>(session, 15)[2]), 1);
  REQUIRE_EQUAL(int(at<int8_t>(session, 16)[2]), 1);
  REQUIRE_EQUAL(at<int32_t>(session, 17)[2], 1);
  REQUIRE_EQUAL(at<int64_t>(session, 18)[2], 1);
  REQUIRE_EQUAL(at<uint64_t>(session, 21)[2], uint64_t(1));
  REQUIRE_OK(initBuffer(session, 19, "constant(255)"));
  REQUIRE_EQUAL(int(at<uint8_t>(session, 19)[2]), 255);
  REQUIRE_OK(initBuffer(session, 20, "constant(4294967295)"));
  REQUIRE_EQUAL(at<uint32_t>(session, 20)[2], UINT32_MAX);
  REQUIRE_OK(initBuffer(session, 16, "constant(-128)"));
  REQUIRE_EQUAL(int(at<int8_t>(session, 16)[2]), -128);
  REQUIRE_OK(initBuffer(session, 14, "constant(-1.5e-3)"));
  REQUIRE_EQUAL(at<double>(session, 14)[2], -1.5e-3);
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
    REQUIRE_FAILS(initBuffer(session, buffer, rule), BSR_INVALID_ARGUMENT,
                  "expected zeros, ones, constant(c) or normal(s) for the " +
                      std::string(types[buffer - 13]) + " buffer '" +
                      types[buffer - 13] + "', but got '" + rule + "'");
  REQUIRE_EQUAL(at<float>(session, 13)[2], 1.0f);
}

CASE(session_refuses_to_initialize_indices) {
  Step step = loadFake();
  Session session = start(step);
  REQUIRE_FAILS(initBuffer(session, 6, "ones"), BSR_INVALID_ARGUMENT,
                "expected a buffer of other kind than row_ptr, but got "
                "'state.p.w'");
}

CASE(session_unused_slots_hold_zeros_in_either_order) {
  Step step = loadFake();
  int32_t rowPtr[] = {0, 1, 1, 2, 2}, colIdx[] = {3, 0}, slot[] = {4, 1};
  bsr_pattern_view view = {2, rowPtr, colIdx, slot, nullptr, nullptr, nullptr};
  std::string contents[2];
  for (int order : {0, 1}) {
    Session session = start(step);
    for (int part : {order, 1 - order})
      if (part)
        REQUIRE_OK(bsr_session_set_pattern(session.get(), 0, &view));
      else
        REQUIRE_OK(initBuffer(session, 0, "normal(0.5)"));
    for (int i = 0; i < 36; ++i)
      REQUIRE_EQUAL(at<float>(session, 0)[i] != 0, i / 6 == 4 || i / 6 == 1);
    contents[order] = contentsOf(session, step);
  }
  REQUIRE(contents[0] == contents[1]);
}

CASE(session_unused_slots_of_a_made_pattern_hold_zeros) {
  Step step = loadFake();
  Session session = start(step);
  for (int64_t buffer : {0, 1})
    REQUIRE_OK(initBuffer(session, buffer, "ones"));
  REQUIRE_OK(bsr_session_make_pattern(session.get(), 0, 4));
  for (int64_t buffer : {0, 1})
    for (int i = 0; i < 36; ++i)
      REQUIRE_EQUAL(at<float>(session, buffer)[i], i < 24 ? 1.0f : 0.0f);
}

CASE(session_runs_and_counts) {
  Step step = loadFake();
  Session session = start(step);
  REQUIRE_OK(bsr_session_initialize(session.get()));
  *at<float>(session, 5) = 0.125f;
  for (int i = 1; i <= 3; ++i) {
    REQUIRE_OK(bsr_session_run(session.get()));
    REQUIRE_EQUAL(*at<int32_t>(session, 3), i);
    REQUIRE_EQUAL(countersOf(session).steps, i);
  }
  REQUIRE_EQUAL(at<float>(session, 2)[0], 0.875f * 0.875f * 0.875f);
  float sum = 0;
  for (int i = 0; i < 36; ++i)
    sum += at<float>(session, 0)[i] * at<float>(session, 0)[i];
  REQUIRE(std::fabs(*at<float>(session, 12) - sum) < 1e-5f * sum);
}

CASE(session_snapshot_takes_runs_back) {
  Step step = loadFake();
  Session session = start(step);
  REQUIRE_FAILS(bsr_session_restore(session.get()), BSR_INVALID_ARGUMENT,
                "expected a snapshot to restore, but got none");
  REQUIRE_OK(bsr_session_initialize(session.get()));
  *at<float>(session, 5) = 0.1f;
  REQUIRE_OK(bsr_session_run(session.get()));
  float loss = *at<float>(session, 12);
  std::string before = contentsOf(session, step);
  int64_t bytes = countersOf(session).bytes;
  REQUIRE_OK(bsr_session_snapshot(session.get()));
  for (int times = 0; times < 2; ++times) {
    REQUIRE_OK(bsr_session_run(session.get()));
    REQUIRE_OK(bsr_session_run(session.get()));
    REQUIRE_OK(bsr_session_restore(session.get()));
    REQUIRE_EQUAL(countersOf(session).steps, 1);
    *at<float>(session, 12) = loss; // an output is not carried
    REQUIRE(before == contentsOf(session, step));
  }
  REQUIRE_OK(bsr_session_snapshot(session.get()));
  REQUIRE_EQUAL(countersOf(session).allocations, 3);
  // 144 bytes of w and of m, 48 of b, 4 of t, 3 of flags, each to 64.
  REQUIRE_EQUAL(countersOf(session).bytes, bytes + 192 + 192 + 64 + 64 + 64);

  REQUIRE_OK(updatePatterns(session, 0.5, nullptr));
  std::string after = contentsOf(session, step);
  REQUIRE_FAILS(bsr_session_restore(session.get()), BSR_INVALID_ARGUMENT,
                "expected the patterns of the snapshot, but got patterns that "
                "changed after it");
  REQUIRE(after == contentsOf(session, step));
}

CASE(session_counts_recompilations) {
  Step step = loadFake();
  Session session = start(step, 77);
  bsr_counters counters = countersOf(session);
  REQUIRE_EQUAL(counters.seed, 77u);
  REQUIRE_EQUAL(counters.recompilations, 0);
  REQUIRE_EQUAL(counters.allocations, 2);
  REQUIRE_EQUAL(counters.reallocations, 0);
  // Other steps of the process are none of this session's.
  Step another = loadFake();
  REQUIRE_EQUAL(countersOf(session).recompilations, 0);
}

CASE(session_outlives_its_step) {
  Step step = loadFake();
  Session whole = start(step), session = start(step);
  for (const Session *each : {&whole, &session})
    REQUIRE_OK(bsr_session_initialize(each->get()));
  bsr_step *handle = step.release();
  bsr_step_unload(handle);
  for (const Session *each : {&whole, &session}) {
    REQUIRE_OK(bsr_session_run(each->get()));
    REQUIRE_OK(updatePatterns(*each, 0.5, nullptr));
  }
  REQUIRE_EQUAL(countersOf(session).steps, 1);
  // The handle is there as long as a session is; but it is no step any more.
  bsr_session *late = nullptr;
  REQUIRE_FAILS(bsr_session_create(handle, "cpu", 1, &late),
                BSR_INVALID_ARGUMENT,
                "expected a step that is loaded, but got 'fake', which was "
                "unloaded");
  REQUIRE(!late);
}

CASE(session_of_null_has_nothing) {
  REQUIRE_EQUAL(std::string(bsr_session_metadata(nullptr)), "");
  REQUIRE_EQUAL(std::string(bsr_session_step_difference(nullptr)), "");
  bsr_session_destroy(nullptr);
}

CASE(session_flops_are_those_of_the_blocks_that_are_stored) {
  Json manifest = fakeManifest();
  manifest["flops"] = {{"dense", 1000}, {"scores", 7}};
  manifest["patterns"][0]["flops"] = 30;
  Step step = load(manifest);
  Session session = start(step);
  for (int64_t blocks : {0, 1, 4, 6}) {
    REQUIRE_OK(bsr_session_make_pattern(session.get(), 0, blocks));
    REQUIRE_EQUAL(bsr_session_flops(session.get(), 0), 1000 + 30 * blocks);
    REQUIRE_EQUAL(bsr_session_flops(session.get(), 1), 1007 + 30 * blocks);
  }
  // More than there are numbers for.
  manifest["patterns"][0]["flops"] = INT64_MAX / 2;
  Step large = load(manifest);
  Session full = start(large);
  REQUIRE_OK(bsr_session_initialize(full.get()));
  REQUIRE_EQUAL(bsr_session_flops(full.get(), 0), INT64_MAX);
  // None of a session, nor of a step of a compiler that did not count.
  REQUIRE_EQUAL(bsr_session_flops(nullptr, 0), -1);
  Step old = loadFake();
  REQUIRE_EQUAL(bsr_session_flops(start(old).get(), 0), -1);
}
