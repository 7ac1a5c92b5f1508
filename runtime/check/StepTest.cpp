// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loading steps: what the queries say, and libraries that are refused.

#include "Assertions.h"
#include <cstring>

using namespace check;

TEST(StepTest, ManifestIsWhatTheQueriesSay) {
  Step step = loadFake();
  ASSERT_EQ(bsr_runtime_version(), uint32_t(BSR_RUNTIME_VERSION));
  ASSERT_EQ(Json::parse(bsr_step_manifest_text(step.get())), fakeManifest());
  ASSERT_EQ(std::string(bsr_step_name(step.get())), "fake");
  ASSERT_EQ(std::string(bsr_step_target_cpu(step.get())), "any");
  ASSERT_EQ(bsr_step_num_buffers(step.get()), 13);
  ASSERT_EQ(bsr_step_num_patterns(step.get()), 1);
  ASSERT_EQ(bsr_step_num_products(step.get(), "spmm"), 1);
  ASSERT_EQ(bsr_step_num_products(step.get(), "sddmm"), 2);
  ASSERT_EQ(bsr_step_num_products(step.get(), "dense"), 0);
  ASSERT_EQ(bsr_step_num_left_dense(step.get()), 3);

  bsr_buffer_info info;
  ASSERT_TRUE(succeeds(bsr_step_buffer(step.get(), 1, &info)));
  ASSERT_EQ(std::string(info.name), "state.m.w");
  ASSERT_EQ(std::string(info.role), "state");
  ASSERT_EQ(std::string(info.init), "zeros");
  ASSERT_EQ(info.rank, 3);
  ASSERT_EQ(info.shape[0], 6);
  ASSERT_EQ(info.shape[1], 2);
  ASSERT_EQ(info.shape[2], 3);
  ASSERT_EQ(info.elements, 36);
  ASSERT_EQ(info.bytes, 144);
  ASSERT_EQ(int(info.kind), int(BSR_VALUES));
  ASSERT_EQ(int(info.type), int(BSR_F32));
  ASSERT_EQ(info.carried, 1);
  ASSERT_EQ(info.pattern, 0);
  ASSERT_TRUE(succeeds(bsr_step_buffer(step.get(), 5, &info)));
  ASSERT_EQ(std::string(info.init), "");
  ASSERT_EQ(info.rank, 0);
  ASSERT_EQ(info.elements, 1);
  ASSERT_EQ(info.bytes, 4);
  ASSERT_EQ(info.carried, 0);
  ASSERT_EQ(info.pattern, -1);

  bsr_pattern_info pattern;
  ASSERT_TRUE(succeeds(bsr_step_pattern(step.get(), 0, &pattern)));
  ASSERT_EQ(std::string(pattern.name), "state.p.w");
  ASSERT_EQ(pattern.rows, 8);
  ASSERT_EQ(pattern.cols, 12);
  ASSERT_EQ(pattern.block_rows, 2);
  ASSERT_EQ(pattern.block_cols, 3);
  ASSERT_EQ(pattern.slots, 6);
  ASSERT_EQ(pattern.density, 0.375);
  ASSERT_EQ(pattern.is_static, 0);
  ASSERT_EQ(pattern.weight, 0);

  ASSERT_EQ(bsr_step_find_buffer(step.get(), BSR_VALUES, "state.p.w"), 0);
  ASSERT_EQ(bsr_step_find_buffer(step.get(), BSR_SLOT_T, "state.p.w"), 11);
  ASSERT_EQ(bsr_step_find_buffer(step.get(), BSR_DENSE, "state.p.w"), -1);
  ASSERT_EQ(bsr_step_find_role(step.get(), "loss"), 12);
  ASSERT_EQ(bsr_step_find_role(step.get(), "batch"), -1);
}

/// The fake step with its timers.
static Step loadTimed() {
  Json manifest = fakeManifest();
  manifest["timers"] = {{{"kernel", "fake"},
                         {"kind", "other"},
                         {"operands", ""},
                         {"flops", 0},
                         {"bytes", 0}},
                        {{"kernel", "sgd"},
                         {"kind", "elementwise"},
                         {"operands", "6x2x3xf32"},
                         {"flops", 72},
                         {"bytes", 144},
                         {"items", 6}}};
  return load(manifest);
}

TEST(StepTest, KeepsItsLastTraceEvents) {
  Step step = loadTimed();
  Session session = start(step);
  int64_t before, count;
  ASSERT_TRUE(
      succeeds(bsr_step_read_trace_events(step.get(), 0, nullptr, 0, &before)));
  ASSERT_TRUE(succeeds(bsr_session_run(session.get())));
  bsr_trace_event events[4] = {{7, 7}, {7, 7}, {7, 7}, {7, 7}};
  ASSERT_TRUE(succeeds(
      bsr_step_read_trace_events(step.get(), before, events, 4, &count)));
  ASSERT_EQ(count, before + 2);
  for (int64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(events[i].timer, i);
    ASSERT_EQ(events[i].ended, (before + i + 1) * 10);
  }
  ASSERT_EQ(events[2].timer, int64_t(7));
  // The room is used again and again.
  for (int64_t i = 0; i < BSR_STEP_TRACE_EVENTS / 2; ++i)
    ASSERT_TRUE(succeeds(bsr_session_run(session.get())));
  ASSERT_TRUE(
      succeeds(bsr_step_read_trace_events(step.get(), 0, nullptr, 0, &count)));
  ASSERT_TRUE(succeeds(
      bsr_step_read_trace_events(step.get(), count - 2, events, 1, &count)));
  ASSERT_EQ(events[0].timer, int64_t(0));
  ASSERT_EQ(events[0].ended, (count - 1) * 10);
  ASSERT_TRUE(
      fails(bsr_step_read_trace_events(step.get(), before, events, 4, &count),
            BSR_INVALID_ARGUMENT,
            "expected one of the last 65536 of " + std::to_string(count) +
                " trace events, but got " + std::to_string(before)));
  Step plain = loadFake();
  ASSERT_TRUE(
      fails(bsr_step_read_trace_events(plain.get(), 0, events, 4, &count),
            BSR_INVALID_ARGUMENT,
            "expected a step for processors that was compiled with "
            "--timers, but got 'fake'"));
}

TEST(StepTest, TimersAreWhatTheStepMeasured) {
  bsr_timer_info info;
  Step plain = loadFake();
  ASSERT_EQ(bsr_step_num_timers(plain.get()), 0);
  bsr_step_reset_timers(plain.get());
  ASSERT_TRUE(fails(bsr_step_timer(plain.get(), 0, &info), BSR_INVALID_ARGUMENT,
                    "expected the index of one of 0 timers, but got 0"));

  Step step = loadTimed();
  ASSERT_EQ(bsr_step_num_timers(step.get()), 2);
  Session session = start(step);
  bsr_step_reset_timers(step.get());
  for (int run = 1; run <= 2; ++run) {
    ASSERT_TRUE(succeeds(bsr_session_run(session.get())));
    ASSERT_TRUE(succeeds(bsr_step_timer(step.get(), 1, &info)));
    ASSERT_EQ(info.nanoseconds, 2000 * run);
    ASSERT_EQ(info.launches, 2 * run);
  }
  ASSERT_EQ(std::string(info.kernel), "sgd");
  ASSERT_EQ(std::string(info.kind), "elementwise");
  ASSERT_EQ(std::string(info.operands), "6x2x3xf32");
  ASSERT_EQ(info.flops, 72);
  ASSERT_EQ(info.bytes, 144);
  ASSERT_EQ(info.items, 6);
  ASSERT_TRUE(succeeds(bsr_step_timer(step.get(), 0, &info)));
  ASSERT_EQ(info.nanoseconds, 2000);
  ASSERT_EQ(info.launches, 2);
  ASSERT_EQ(info.items, 0);
  bsr_step_reset_timers(step.get());
  ASSERT_TRUE(succeeds(bsr_step_timer(step.get(), 1, &info)));
  ASSERT_EQ(info.nanoseconds, 0);
  ASSERT_EQ(info.launches, 0);
  ASSERT_TRUE(fails(bsr_step_timer(step.get(), 2, &info), BSR_INVALID_ARGUMENT,
                    "expected the index of one of 2 timers, but got 2"));
}

TEST(StepTest, NamesTypesAndKinds) {
  const char *types[] = {"f16", "bf16", "f32", "f64",  "i1",  "i8",
                         "i32", "i64",  "ui8", "ui32", "ui64"};
  int64_t bytes[] = {2, 2, 4, 8, 1, 1, 4, 8, 1, 4, 8};
  for (int i = 0; i < 11; ++i) {
    ASSERT_EQ(std::string(bsr_type_name(bsr_type(i))), types[i]);
    ASSERT_EQ(bsr_type_bytes(bsr_type(i)), bytes[i]);
  }
  const char *kinds[] = {"dense",   "values",  "row_ptr", "col_idx", "slot",
                         "col_ptr", "row_idx", "slot_t",  "output",  "scores"};
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(std::string(bsr_kind_name(bsr_kind(i))), kinds[i]);
  ASSERT_EQ(std::string(bsr_type_name(bsr_type(11))), "");
  ASSERT_EQ(bsr_type_bytes(bsr_type(11)), 0);
  ASSERT_EQ(std::string(bsr_kind_name(bsr_kind(10))), "");
}

TEST(StepTest, RefusesNullAndIndicesOutOfRange) {
  Step step = loadFake();
  bsr_step *loaded;
  bsr_buffer_info info;
  bsr_pattern_info pattern;
  ASSERT_TRUE(
      fails(bsr_step_load(nullptr, &loaded), BSR_INVALID_ARGUMENT,
            "expected argument 'path' to point somewhere, but got null"));
  ASSERT_TRUE(
      fails(bsr_step_load("x", nullptr), BSR_INVALID_ARGUMENT,
            "expected argument 'step' to point somewhere, but got null"));
  ASSERT_TRUE(
      fails(bsr_step_buffer(step.get(), 0, nullptr), BSR_INVALID_ARGUMENT,
            "expected argument 'info' to point somewhere, but got null"));
  ASSERT_TRUE(fails(bsr_step_buffer(step.get(), 13, &info),
                    BSR_INVALID_ARGUMENT,
                    "expected the index of one of 13 buffers, but got 13"));
  ASSERT_TRUE(fails(bsr_step_pattern(step.get(), -1, &pattern),
                    BSR_INVALID_ARGUMENT,
                    "expected the index of one of 1 patterns, but got -1"));
  bsr_step_unload(nullptr);
}

TEST(StepTest, OfNullHasNothing) {
  for (const char *text :
       {bsr_step_manifest_text(nullptr), bsr_step_name(nullptr),
        bsr_step_target_cpu(nullptr)})
    ASSERT_EQ(std::string(text), "");
  for (int64_t number :
       {bsr_step_num_buffers(nullptr), bsr_step_num_patterns(nullptr),
        bsr_step_num_products(nullptr, "spmm"),
        bsr_step_num_left_dense(nullptr), bsr_step_num_timers(nullptr)})
    ASSERT_EQ(number, 0);
  Step step = loadFake();
  ASSERT_EQ(bsr_step_num_products(step.get(), nullptr), 0);
  for (int64_t index : {bsr_step_find_buffer(nullptr, BSR_DENSE, "lr"),
                        bsr_step_find_buffer(step.get(), BSR_DENSE, nullptr),
                        bsr_step_find_role(nullptr, "lr"),
                        bsr_step_find_role(step.get(), nullptr)})
    ASSERT_EQ(index, -1);
  bsr_step_reset_timers(nullptr);
}

TEST(StepTest, RefusesFilesThatAreNoLibrary) {
  Folder folder;
  std::string path = folder.file("step.so");
  refusesStep(path, BSR_IO_ERROR,
              "expected to read '" + path +
                  "', but got 'No such file or directory'");
  refusesStep(folder.file(""), BSR_IO_ERROR,
              "expected '" + folder.file("") +
                  "' to be a file, but got a folder or a device");
  for (std::string contents :
       {std::string(), std::string("\177ELF"), std::string(1000, 'x')}) {
    writeFile(path, contents);
    refusesStep(path, BSR_INVALID_STEP,
                "expected '" + path +
                    "' to be a 64-bit ELF library, but got a file of another "
                    "format");
  }
  std::string foreign = fakeStep();
  foreign[18] = 99;
  writeFile(path, foreign);
  refusesStep(path, BSR_INVALID_STEP,
              "expected a step for this processor, x86-64, but got '" + path +
                  "', which is for ELF machine 99");
  // The loader wants to see a library of this system.
  foreign = fakeStep();
  foreign[7] = 99;
  writeFile(path, foreign);
  bsr_step *step = nullptr;
  ASSERT_EQ(int(bsr_step_load(path.c_str(), &step)), int(BSR_INVALID_STEP));
  ASSERT_EQ(
      std::string(bsr_last_error())
          .rfind("expected a library that loads, but got '" + path + ":", 0),
      0u);
}

TEST(StepTest, RefusesEveryTruncatedLibrary) {
  Folder folder;
  std::string path = folder.file("step.so");
  const std::string &whole = fakeStep();
  // Every size near the ends, and some between.
  for (size_t size = 0; size < whole.size();
       size += size < 600 || size + 2000 > whole.size() ? 1 : 509) {
    writeFile(path, whole.substr(0, size));
    bsr_step *step = nullptr;
    ASSERT_EQ(int(bsr_step_load(path.c_str(), &step)), int(BSR_INVALID_STEP));
  }
  ASSERT_EQ(std::string(bsr_last_error()),
            "expected the library '" + path + "' to have " +
                std::to_string(whole.size()) + " bytes, but got " +
                std::to_string(whole.size() - 1));
}

TEST(StepTest, RefusesAnotherInterfaceVersion) {
  for (std::string version : {"0", "2"}) {
    std::string path = fakePath("_abi_" + version);
    refusesStep(path, BSR_INVALID_STEP,
                "expected interface version 1 in '" + path + "', but got " +
                    version);
  }
}

TEST(StepTest, RefusesAnotherContext) {
  std::pair<const char *, const char *> others[] = {
      {"_version", "expected a context of version 2 for step 'fake', "
                   "but got one of version 1"},
      {"_device", "expected device 7 for step 'fake', but got device 0"},
      {"_status", "expected a status from 0 to 2 of step 'fake', but got 9"}};
  for (auto [name, sentence] : others) {
    bsr_step *loaded = nullptr;
    ASSERT_TRUE(succeeds(bsr_step_load(fakePath(name).c_str(), &loaded)));
    Step step(loaded, bsr_step_unload);
    Session session = start(step);
    std::string before = contentsOf(session, step);
    ASSERT_TRUE(
        fails(bsr_session_run(session.get()), BSR_INVALID_STEP, sentence));
    ASSERT_EQ(countersOf(session).steps, 0);
    if (name != others[2].first)
      ASSERT_TRUE(contentsOf(session, step) == before);
  }
}

TEST(StepTest, RefusesAMissingSymbol) {
  for (const char *symbol :
       {"bsr_step_abi_version", "bsr_step_manifest", "bsr_step_run"}) {
    Folder folder;
    std::string path = folder.file("step.so"), bytes = fakeStep();
    for (size_t place;
         (place = bytes.find(std::string(symbol) + '\0')) != std::string::npos;)
      bytes[place + std::strlen(symbol) - 1] = '?';
    writeFile(path, bytes);
    refusesStep(path, BSR_INVALID_STEP,
                "expected symbol '" + std::string(symbol) + "' in '" + path +
                    "', but got none");
  }
}

TEST(StepTest, RefusesAProcessorWithoutWhatItNeeds) {
  Json manifest = fakeManifest();
  manifest["target_cpu"] = "future";
  manifest["target_features"] = {"sse3", "avx9000", "avx9001"};
  Folder folder;
  std::string path = folder.file("step.so");
  writeStep(path, manifest.dump());
  refusesStep(path, BSR_INVALID_STEP,
              "expected a step for this processor, but got '" + path +
                  "', compiled for future, which needs avx9000, avx9001");
  manifest["target_features"] = {"sse3"};
  load(manifest);
}
