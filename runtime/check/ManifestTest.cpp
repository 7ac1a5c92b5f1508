// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Manifests: everything that is refused, and what may be left out.

#include "Assertions.h"
#include <functional>

using namespace check;

/// Refuses the fake step with the manifest `text`; "@" stands for its name.
static void refusesManifest(const std::string &text, std::string sentence) {
  Folder folder;
  std::string path = folder.file("step.so");
  writeStep(path, text);
  for (size_t at; (at = sentence.find('@')) != std::string::npos;)
    sentence.replace(at, 1, "the manifest of '" + path + "'");
  refusesStep(path, BSR_INVALID_STEP, sentence);
}

TEST(StepTest, RefusesMalformedManifests) {
  std::string whole = fakeManifest().dump();
  refusesManifest("", "expected @ to be JSON, but got an error at byte 1");
  refusesManifest("[]", "expected @ to be an object, but got []");
  refusesManifest("\"" + std::string(80, 'x') + "\"",
                  "expected @ to be an object, but got \"" +
                      std::string(59, 'x') + "...");
  refusesManifest("{\"a\": 1, \"b\": {\"a\": 1}, \"a\": 2}",
                  "expected @ to have each key once, but got 'a' twice");
  for (size_t size = 0; size < whole.size(); size += 97)
    refusesManifest(whole.substr(0, size),
                    "expected @ to be JSON, but got an error at byte " +
                        std::to_string(size + 1));
}

TEST(StepTest, RefusesWrongManifests) {
  // A place in the manifest, what is put there (nothing: it is taken away), and
  // the sentence.
  struct {
    const char *place;
    const char *value; // JSON
    const char *sentence;
  } wrong[] = {
      {"/format", "\"bsr-stop\"",
       "expected 'format' of @ to be \"bsr-step\", but got \"bsr-stop\""},
      {"/format", nullptr,
       "expected 'format' of @ to be a string, but got nothing"},
      {"/code", "\"0123456789ABCDEF\"",
       "expected 'code' of @ to be 16 hexadecimal digits, but got "
       "\"0123456789ABCDEF\""},
      {"/target_features", "[\"sse3\", 2]",
       "expected 'target_features[1]' of @ to be a string, but got 2"},
      {"/compiler", "3", "expected 'compiler' of @ to be an object, but got 3"},
      {"/live_bytes", "101",
       "expected 'live_bytes' of @ to be an integer in [0, 100], but got 101"},
      {"/kernels", "{\"functions\": \"many\", \"launches\": 1}",
       "expected 'functions' of 'kernels' of @ to be an integer in [0, "
       "2147483647], but got \"many\""},
      {"/kernels", "{\"functions\": 1}",
       "expected 'launches' of 'kernels' of @ to be an integer in [0, "
       "2147483647], but got nothing"},
      {"/patterns", "[]",
       "expected 'pattern' of buffer 0 of @ to be the index of a pattern, of "
       "which there is none, but got 0"},
      {"/buffers", "[]",
       "expected 'weight' of pattern 0 of @ to be the index of a buffer, of "
       "which there is none, but got 0"},
      {"/version", "2",
       "expected 'version' of @ to be an integer in [1, 1], but got 2"},
      {"/version", "1.0",
       "expected 'version' of @ to be an integer in [1, 1], but got 1.0"},
      {"/version", "18446744073709551615",
       "expected 'version' of @ to be an integer in [1, 1], but got "
       "18446744073709551615"},
      {"/name", "3", "expected 'name' of @ to be a string, but got 3"},
      {"/target_cpu", nullptr,
       "expected 'target_cpu' of @ to be a string, but got nothing"},
      {"/arena_bytes", "-1",
       "expected 'arena_bytes' of @ to be an integer in [0, 140737488355328], "
       "but got -1"},
      {"/arena_bytes", "140737488355328",
       "expected the buffers and the arena of @ to take at most 2^47 bytes, "
       "but got 140737488355472 by buffer 'state.p.w'"},
      {"/buffers", nullptr,
       "expected 'buffers' of @ to be an array, but got nothing"},
      {"/buffers", "7", "expected 'buffers' of @ to be an array, but got 7"},
      {"/buffers/3", "7", "expected buffer 3 of @ to be an object, but got 7"},
      {"/patterns", nullptr,
       "expected 'patterns' of @ to be an array, but got nothing"},
      {"/products", "1", "expected 'products' of @ to be an object, but got 1"},
      {"/products", nullptr,
       "expected 'products' of @ to be an object, but got nothing"},
      {"/products/spmm", "\"x\"",
       "expected 'spmm' of 'products' of @ to be an integer in [0, "
       "2147483647], but got \"x\""},
      {"/timers", "1", "expected 'timers' of @ to be an array, but got 1"},
      {"/timers", "[{\"kernel\": \"k\"}]",
       "expected 'kind' of timer 0 of @ to be a string, but got nothing"},
      {"/left_dense", nullptr,
       "expected 'left_dense' of @ to be an integer in [0, 2147483647], but "
       "got nothing"},
      {"/buffers/0/name", "\"\"",
       "expected 'name' of buffer 0 of @ to be a name, but got \"\""},
      {"/buffers/0/kind", "\"thing\"",
       "expected 'kind' of buffer 0 of @ to be one of dense values row_ptr "
       "col_idx slot col_ptr row_idx slot_t output scores, but got \"thing\""},
      {"/buffers/0/role", "1",
       "expected 'role' of buffer 0 of @ to be a string, but got 1"},
      {"/buffers/0/type", "\"f8\"",
       "expected 'type' of buffer 0 of @ to be one of f16 bf16 f32 f64 i1 i8 "
       "i32 i64 ui8 ui32 ui64, but got \"f8\""},
      {"/buffers/0/type", "\"i32\"",
       "expected 'init' of buffer 0 of @ to be zeros, ones, constant(c) or "
       "normal(s) for i32, but got \"normal(0.5)\""},
      {"/buffers/1/type", "\"i32\"",
       "expected 'type' of buffer 1 of @ to be a floating-point type for the "
       "kind values, but got \"i32\""},
      {"/buffers/7/type", "\"i64\"",
       "expected 'type' of buffer 7 of @ to be i32 for the kind col_idx, but "
       "got \"i64\""},
      {"/buffers/0/shape", "1",
       "expected 'shape' of buffer 0 of @ to be an array, but got 1"},
      {"/buffers/0/shape/1", "-2",
       "expected 'shape[1]' of buffer 0 of @ to be an integer in [0, "
       "140737488355328], but got -2"},
      {"/buffers/0/shape/1", "3",
       "expected 'shape' of buffer 0 of @ to be [6, 2, 3] as its pattern says, "
       "but got [6,3,3]"},
      {"/buffers/6/shape/0", "6",
       "expected 'shape' of buffer 6 of @ to be [5] as its pattern says, but "
       "got [6]"},
      {"/buffers/8/shape/0", "5",
       "expected 'shape' of buffer 8 of @ to be [6] as its pattern says, but "
       "got [5]"},
      {"/buffers/9/shape/0", "6",
       "expected 'shape' of buffer 9 of @ to be [5] as its pattern says, but "
       "got [6]"},
      {"/buffers/2/shape", "[1073741824, 1073741824]",
       "expected 'shape' of buffer 2 of @ to be of at most 2^47 bytes, but got "
       "[1073741824,1073741824]"},
      {"/buffers/0/carried", "1",
       "expected 'carried' of buffer 0 of @ to be true or false, but got 1"},
      {"/buffers/0/carried", nullptr,
       "expected 'carried' of buffer 0 of @ to be true or false, but got "
       "nothing"},
      {"/buffers/12/carried", "true",
       "expected 'carried' of buffer 12 of @ to be false for the kind output, "
       "but got true"},
      {"/buffers/6/carried", "true",
       "expected 'carried' of buffer 6 of @ to be false for the kind row_ptr, "
       "but got true"},
      {"/buffers/0/pattern", "1",
       "expected 'pattern' of buffer 0 of @ to be an integer in [0, 0], but "
       "got 1"},
      {"/buffers/0/pattern", nullptr,
       "expected 'pattern' of buffer 0 of @ to be an integer in [0, 0], but "
       "got nothing"},
      {"/buffers/2/pattern", "0",
       "expected 'pattern' of buffer 2 of @ to be left out for the kind dense, "
       "but got 0"},
      {"/buffers/2/init", "\"many\"",
       "expected 'init' of buffer 2 of @ to be zeros, ones, constant(c) or "
       "normal(s) for f32, but got \"many\""},
      {"/buffers/3/init", "\"normal(1)\"",
       "expected 'init' of buffer 3 of @ to be zeros, ones, constant(c) or "
       "normal(s) for i32, but got \"normal(1)\""},
      {"/buffers/6/init", "\"zeros\"",
       "expected 'init' of buffer 6 of @ to be left out for the kind row_ptr, "
       "but got \"zeros\""},
      {"/patterns/0", "1",
       "expected pattern 0 of @ to be an object, but got 1"},
      {"/patterns/0/name", "\"\"",
       "expected 'name' of pattern 0 of @ to be a name, but got \"\""},
      {"/patterns/0/shape", "[8]",
       "expected 'shape' of pattern 0 of @ to be two sizes, but got [8]"},
      {"/patterns/0/block", "[2, 3, 4]",
       "expected 'block' of pattern 0 of @ to be two sizes, but got [2,3,4]"},
      {"/patterns/0/block/0", "0",
       "expected 'block[0]' of pattern 0 of @ to be an integer in [1, "
       "2147483647], but got 0"},
      {"/patterns/0/block/0", "3",
       "expected 'shape' of pattern 0 of @ to be a multiple of the block 3x3, "
       "but got [8,12]"},
      {"/patterns/0/shape", "[2000000000, 2100000000]",
       "expected 'shape' of pattern 0 of @ to be of at most 2^47 blocks, but "
       "got [2000000000,2100000000]"},
      {"/patterns/0/slots", "0",
       "expected 'slots' of pattern 0 of @ to be an integer in [1, "
       "2147483647], but got 0"},
      {"/patterns/0/slots", "2147483648",
       "expected 'slots' of pattern 0 of @ to be an integer in [1, "
       "2147483647], but got 2147483648"},
      {"/patterns/0/density", "0",
       "expected 'density' of pattern 0 of @ to be in (0, 1], but got 0"},
      {"/patterns/0/density", "1.5",
       "expected 'density' of pattern 0 of @ to be in (0, 1], but got 1.5"},
      {"/patterns/0/density", "\"x\"",
       "expected 'density' of pattern 0 of @ to be a number, but got \"x\""},
      {"/patterns/0/static", nullptr,
       "expected 'static' of pattern 0 of @ to be true or false, but got "
       "nothing"},
      {"/patterns/0/static", "true",
       "expected 'row_ptr' of pattern 0 of @ to be an array, but got nothing"},
      {"/patterns/0/weight", "13",
       "expected 'weight' of pattern 0 of @ to be an integer in [0, 12], but "
       "got 13"},
      {"/patterns/0/weight", "2",
       "expected 'weight' of pattern 0 of @ to be a buffer of this pattern's "
       "values, but got 2"},
      {"/patterns/0/buffers", nullptr,
       "expected 'buffers' of pattern 0 of @ to be an object, but got nothing"},
      {"/patterns/0/buffers/slot", nullptr,
       "expected 'slot' of 'buffers' of pattern 0 of @ to be an integer in [0, "
       "2147483647], but got nothing"},
      {"/patterns/0/buffers/slots", "8",
       "expected a key of docs/manifest.md in 'buffers' of pattern 0 of @, but "
       "got 'slots'"},
      {"/arena_byte", "8",
       "expected a key of docs/manifest.md in @, but got 'arena_byte'"},
      {"/buffers/0/origin", "7",
       "expected 'origin' of buffer 0 of @ to be an object, but got 7"},
      {"/buffers/0/origin", "{\"shape\": [4]}",
       "expected 'name' of 'origin' of buffer 0 of @ to be a string, but got "
       "nothing"},
      {"/buffers/0/origin",
       "{\"name\": \"w\", \"shape\": [4], \"offsets\": [0], \"sizes\": [2, 2]}",
       "expected 'sizes' of 'origin' of buffer 0 of @ to be as many extents as "
       "the shape has, but got [2,2]"},
      {"/buffers/0/origin",
       "{\"name\": \"w\", \"shape\": [4], \"offsets\": [0], \"sizes\": [3]}",
       "expected 'sizes' of 'origin' of buffer 0 of @ to be of as many "
       "elements "
       "as the matrix has, but got [3]"},
      {"/patterns/0/masks", "{}",
       "expected 'masks' of pattern 0 of @ to be an array, but got {}"},
      {"/patterns/0/masks",
       "[{\"name\": \"m\", \"type\": \"i16\", \"shape\": [4], "
       "\"transpose\": false}]",
       "expected 'type' of mask 0 of pattern 0 of @ to be one of f16 bf16 f32 "
       "f64 i1 i8 i32 i64 ui8 ui32 ui64, but got \"i16\""},
      {"/score_norm", "\"l3\"",
       "expected 'score_norm' of @ to be one of l1 l2 linf, but got \"l3\""},
      {"/patterns/0/buffers/slot", "13",
       "expected 'slot' of 'buffers' of pattern 0 of @ to be an integer in [0, "
       "12], but got 13"},
      {"/patterns/0/buffers/slot", "7",
       "expected 'slot' of 'buffers' of pattern 0 of @ to be a buffer of this "
       "pattern and kind, but got 7"},
      {"/buffers/1/name", "\"state.p.w\"",
       "expected @ to name its buffers of one kind differently, but got "
       "'state.p.w' twice"},
      {"/buffers/2/name", "\"state.p.w\"",
       "expected @ to name its carried buffers differently, but got "
       "'state.p.w' twice"},
      {"/buffers/2/name", "\"state.p.w.bsr.slot\"",
       "expected @ to name its carried buffers differently, but got "
       "'state.p.w.bsr.slot' twice"},
      {"/buffers/2/name", "\"__metadata__\"",
       "expected @ to name its carried buffers differently, but got "
       "'__metadata__' twice"},
  };
  for (auto &[place, value, sentence] : wrong)
    refusesManifest(changed(fakeManifest(), place, value).dump(), sentence);
}

TEST(StepTest, RefusesWrongLaunches) {
  const Json launch = {{"kernel", "add"},
                       {"when", "step"},
                       {"grid", {1, 1, 1}},
                       {"block", {32, 1, 1}},
                       {"arguments", {{{"buffer", 0}}, {{"arena", 64}}}}};
  const Json map = {
      {"type", "bf16"}, {"shape", {8, 4}}, {"box", {8, 4}}, {"swizzle", 64}};
  auto refuse = [&](const std::function<void(Json &)> &edit,
                    const std::string &sentence) {
    Json manifest = fakeManifest(), changed = launch;
    edit(changed);
    manifest["chip"] = "sm_90a";
    manifest["launches"] = Json::array({changed});
    refusesManifest(manifest.dump(), sentence);
  };
  auto setMap = [&](const char *key, const Json &value) {
    return [=](Json &launch) {
      launch["arguments"][1]["map"] = map;
      launch["arguments"][1]["map"][key] = value;
    };
  };
  refuse([](Json &launch) { launch["when"] = "often"; },
         "expected 'when' of launch 0 of @ to be one of pattern step scores, "
         "but got \"often\"");
  refuse(
      [](Json &launch) {
        launch["grid"] = {1, 1};
      },
      "expected 'grid' of launch 0 of @ to be three extents, but got [1,1]");
  refuse(
      [](Json &launch) { launch["arguments"][0] = Json::object(); },
      "expected 'buffer' of argument 0 of launch 0 of @ to be one of buffer, "
      "arena and number, but got nothing");
  refuse([](Json &launch) { launch["arguments"][1]["number"] = 4; },
         "expected 'arena' of argument 1 of launch 0 of @ to be one of buffer, "
         "arena and number, but got 64");
  refuse([](Json &launch) { launch["arguments"][0]["buffer"] = 13; },
         "expected 'buffer' of argument 0 of launch 0 of @ to be an integer in "
         "[0, 12], but got 13");
  refuse([](Json &launch) { launch["arguments"][1]["arena"] = 101; },
         "expected 'arena' of argument 1 of launch 0 of @ to be an integer in "
         "[0, 100], but got 101");
  refuse(
      [&](Json &launch) {
        launch["arguments"][0] = {{"number", 4}, {"map", map}};
      },
      "expected 'map' of argument 0 of launch 0 of @ to be left out for a "
      "number, but got " +
          map.dump());
  refuse(
      setMap("shape", Json::array()),
      "expected 'shape' of 'map' of argument 1 of launch 0 of @ to be one to "
      "five extents, but got []");
  refuse(setMap("box", {8}),
         "expected 'box' of 'map' of argument 1 of launch 0 of @ to be as many "
         "extents as the shape has, but got [8]");
  refuse(setMap("swizzle", 48),
         "expected 'swizzle' of 'map' of argument 1 of launch 0 of @ to be 0, "
         "32, 64 or 128, but got 48");
  Json manifest = fakeManifest();
  manifest["launches"] = Json::array();
  refusesManifest(manifest.dump(),
                  "expected 'launches' of @ to be beside the other of "
                  "chip and launches, or left out, but got []");
  manifest = fakeManifest();
  manifest["plan_bytes"] = 64;
  refusesManifest(manifest.dump(),
                  "expected 'plan_bytes' of @ to be left out for processors, "
                  "but got 64");
  manifest["chip"] = "sm_90a";
  manifest["launches"] = Json::array();
  manifest["plan_bytes"] = 101;
  refusesManifest(manifest.dump(),
                  "expected 'plan_bytes' of @ to be an integer in [0, 100], "
                  "but got 101");
}

TEST(StepTest, RefusesIndexBuffersThatNoPatternNames) {
  Json manifest = fakeManifest();
  Json second = manifest["buffers"][8];
  second["name"] = "other";
  manifest["buffers"].push_back(second);
  refusesManifest(manifest.dump(),
                  "expected 'pattern' of buffer 13 of @ to be one whose slot "
                  "is buffer 13, but got 0");
}

TEST(StepTest, RefusesWrongScores) {
  const Json whole = makeManifest(
      {{8, 12, 2, 3, 6, "f32", 0.5, true}, {8, 12, 2, 3, 6, "f32", 0.5, true}});
  load(whole);
  struct {
    const char *place;
    const char *value; // JSON
    const char *sentence;
  } wrong[] = {
      {"/score_norm", "\"l3\"",
       "expected 'score_norm' of @ to be one of l1 l2 linf, but got \"l3\""},
      {"/score_norm", nullptr,
       "expected 'kind' of buffer 18 of @ to be another one in a step without "
       "score_norm, but got \"scores\""},
      {"/buffers/18/type", "\"f64\"",
       "expected 'type' of buffer 18 of @ to be f32 for the kind scores, but "
       "got \"f64\""},
      {"/buffers/18/shape", "[6]",
       "expected 'shape' of buffer 18 of @ to be [4, 4] as its pattern says, "
       "but got [6]"},
      {"/buffers/18/pattern", "2",
       "expected 'pattern' of buffer 18 of @ to be an integer in [0, 1], but "
       "got 2"},
      {"/buffers/19/pattern", "0",
       "expected 'pattern' of buffer 19 of @ to be one whose scores are buffer "
       "18, but got 0"},
      {"/buffers/18/carried", "true",
       "expected 'carried' of buffer 18 of @ to be false for the kind scores, "
       "but got true"},
      {"/buffers/18/init", "\"zeros\"",
       "expected 'init' of buffer 18 of @ to be left out for the kind scores, "
       "but got \"zeros\""},
      {"/buffers/18/arena_offset", nullptr,
       "expected 'arena_offset' of buffer 18 of @ to be an integer in [0, "
       "140737488355328], but got nothing"},
      {"/buffers/18/arena_offset", "32",
       "expected 'arena_offset' of buffer 18 of @ to be a multiple of 64 with "
       "room for 64 bytes up to the arena's end, but got 32"},
      {"/buffers/18/arena_offset", "192",
       "expected 'arena_offset' of buffer 18 of @ to be a multiple of 64 with "
       "room for 64 bytes up to the arena's end, but got 192"},
  };
  for (auto &[place, value, sentence] : wrong)
    refusesManifest(changed(whole, place, value).dump(), sentence);

  // The entry point that such a step has.
  Folder folder;
  std::string path = folder.file("step.so");
  writeStep(path, whole.dump());
  std::string bytes = readFile(path), symbol = "bsr_step_run_scores";
  for (size_t place; (place = bytes.find(symbol)) != std::string::npos;)
    bytes[place + symbol.size() - 1] = '?';
  writeFile(path, bytes);
  refusesStep(path, BSR_INVALID_STEP,
              "expected symbol 'bsr_step_run_scores' in '" + path +
                  "', but got none");
}

TEST(StepTest, RefusesWrongCounts) {
  Json manifest = makeManifest({{8, 12, 2, 3, 6}});
  Json &counts = manifest["buffers"][1];
  counts["role"] = "count";
  refusesManifest(manifest.dump(),
                  "expected 'shape' of buffer 1 of @ to be [6, 1, 1] as its "
                  "pattern says, but got [6,2,3]");
  counts["shape"] = {6, 1, 1};
  counts["type"] = "f64";
  refusesManifest(manifest.dump(), "expected 'type' of buffer 1 of @ to be f32 "
                                   "for the role count, but got \"f64\"");
  counts["type"] = "f32";
  load(manifest);
}

TEST(StepTest, RefusesWrongStaticPatterns) {
  // What replaces members of a pattern of 4 x 4 blocks that is right, and the
  // sentence.
  struct {
    const char *patch; // JSON
    const char *sentence;
  } wrong[] = {
      {"{}", "expected 'pattern' of buffer 6 of @ to be one that is not "
             "static, but got 0"},
      {"{\"row_ptr\": [0, 6]}",
       "expected 'row_ptr' of pattern 0 of @ to be of size 5, but got [0,6]"},
      {"{\"col_idx\": [0]}",
       "expected 'col_idx' of pattern 0 of @ to be of size 6, but got [0]"},
      {"{\"col_idx\": [0, 1, 2, 3, 1, true]}",
       "expected 'col_idx[5]' of pattern 0 of @ to be an integer in "
       "[-2147483648, 2147483647], but got true"},
      {"{\"row_ptr\": [1, 4, 4, 5, 6]}",
       "expected row_ptr[0] of pattern 'state.p.w' to be 0, but got 1, in @"},
      {"{\"row_ptr\": [0, 4, 3, 5, 6]}",
       "expected row_ptr[2] of pattern 'state.p.w' to be in [4, 6], but got "
       "3, in @"},
      {"{\"row_ptr\": [0, 4, 4, 5, 5]}",
       "expected row_ptr[4] of pattern 'state.p.w' to be the number of blocks "
       "6, but got 5, in @"},
      {"{\"col_idx\": [0, 1, 2, 4, 1, 0]}",
       "expected col_idx[3] of pattern 'state.p.w', in block row 0, to be in "
       "[3, 3], but got 4, in @"},
      {"{\"col_idx\": [0, 1, 1, 3, 1, 0]}",
       "expected col_idx[2] of pattern 'state.p.w', in block row 0, to be in "
       "[2, 3], but got 1, in @"},
  };
  for (auto &[patch, sentence] : wrong) {
    Json manifest = fakeManifest();
    Json &pattern = manifest["patterns"][0];
    pattern["static"] = true;
    pattern["row_ptr"] = {0, 4, 4, 5, 6};
    pattern["col_idx"] = {0, 1, 2, 3, 1, 0};
    pattern.merge_patch(Json::parse(patch));
    refusesManifest(manifest.dump(), sentence);
  }
}

TEST(StepTest, RefusesPatternsOfOneName) {
  Json manifest = makeManifest({{8, 8, 2, 2, 4}, {8, 8, 2, 2, 4}});
  manifest["patterns"][1]["name"] = "w0";
  refusesManifest(manifest.dump(), "expected @ to name its patterns "
                                   "differently, but got 'w0' twice");
}

TEST(StepTest, KeepsOptionalEntriesEmpty) {
  Json manifest = fakeManifest();
  manifest["buffers"][2].erase("role");
  manifest["buffers"][2]["shape"] = {0, 5};
  Step step = load(manifest);
  bsr_buffer_info info;
  ASSERT_TRUE(succeeds(bsr_step_buffer(step.get(), 2, &info)));
  ASSERT_EQ(std::string(info.role), "");
  ASSERT_EQ(info.elements, 0);
  ASSERT_EQ(info.bytes, 0);
}
