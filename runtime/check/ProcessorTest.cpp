// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the processor has: what the system says of it.

#include "step/Processor.h"
#include "Assertions.h"
#include <cerrno>

using namespace check;

#if defined(__aarch64__)
TEST(ProcessorTest, HasWhatAllOfItsKindHave) {
  ASSERT_TRUE(sparse_opt::hasFeature("fp-armv8"));
  ASSERT_TRUE(sparse_opt::hasFeature("neon"));
}

#else
/// Whether the flags of /proc/cpuinfo, in `cpuinfo`, have `flag`.
static bool hasFlag(const std::string &cpuinfo, const std::string &flag) {
  size_t start = cpuinfo.find("\nflags");
  size_t line = cpuinfo.find('\n', start + 1);
  std::string flags = cpuinfo.substr(start, line - start) + " ";
  return flags.find(" " + flag + " ") != std::string::npos;
}

TEST(ProcessorTest, FeaturesAreThoseOfTheSystem) {
  struct {
    const char *name, *flag;
  } features[] = {{"sse3", "pni"},
                  {"ssse3", "ssse3"},
                  {"fma", "fma"},
                  {"sse4.1", "sse4_1"},
                  {"sse4.2", "sse4_2"},
                  {"movbe", "movbe"},
                  {"popcnt", "popcnt"},
                  {"avx", "avx"},
                  {"f16c", "f16c"},
                  {"bmi", "bmi1"},
                  {"avx2", "avx2"},
                  {"bmi2", "bmi2"},
                  {"avx512f", "avx512f"},
                  {"avx512dq", "avx512dq"},
                  {"avx512ifma", "avx512ifma"},
                  {"avx512cd", "avx512cd"},
                  {"avx512bw", "avx512bw"},
                  {"avx512vl", "avx512vl"},
                  {"avx512vbmi", "avx512vbmi"},
                  {"avx512vbmi2", "avx512_vbmi2"},
                  {"gfni", "gfni"},
                  {"avx512vnni", "avx512_vnni"},
                  {"avx512bitalg", "avx512_bitalg"},
                  {"avx512vpopcntdq", "avx512_vpopcntdq"},
                  {"avx512fp16", "avx512_fp16"},
                  {"avxvnni", "avx_vnni"},
                  {"avx512bf16", "avx512_bf16"},
                  {"amx-tile", "amx_tile"},
                  {"amx-bf16", "amx_bf16"},
                  {"cmpccxadd", "cmpccxadd"},
                  {"avxifma", "avx_ifma"},
                  {"lzcnt", "abm"},
                  {"sse4a", "sse4a"},
                  {"xop", "xop"},
                  {"fma4", "fma4"},
                  {"tbm", "tbm"}};
  std::string cpuinfo = readFile("/proc/cpuinfo");
  for (auto [name, flag] : features)
    ASSERT_EQ(sparse_opt::hasFeature(name), hasFlag(cpuinfo, flag));
}

#endif

TEST(ProcessorTest, HasNoFeatureThatNobodyKnows) {
  for (const char *name : {"", "avx9000", "SSE3"})
    ASSERT_FALSE(sparse_opt::hasFeature(name));
}

TEST(ProcessorTest, TilesArePermittedWhereTheyAre) {
  ASSERT_EQ(sparse_opt::permitTiles() == 0, sparse_opt::hasFeature("amx-tile"));
}

TEST(ProcessorTest, FindsWhatKeepsCodeFromRunning) {
  auto hasAll = [](const std::string &) { return true; };
  auto hasNone = [](const std::string &) { return false; };
  auto permits = [] { return 0; };
  auto refuses = [] { return EPERM; };
  auto find = sparse_opt::findObstacle;
  ASSERT_EQ(find({"avx2", "amx-tile"}, hasAll, permits), "");
  ASSERT_EQ(find({"avx2"}, hasAll, refuses), "");
  ASSERT_EQ(find({"avx2", "amx-tile"}, hasNone, permits),
            "which needs avx2, amx-tile");
  ASSERT_EQ(find({"avx2", "amx-tile"}, hasAll, refuses),
            "whose tiles the system does not permit: Operation not permitted");
}
