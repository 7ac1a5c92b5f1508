// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks the processor: of x86-64 by the instruction CPUID (Intel 64 and IA-32
// Architectures Software Developer's Manual, volume 2A; AMD64 Architecture
// Programmer's Manual, volume 3, appendix E), of AArch64 by what Linux passes
// to each program of the registers that only it may read (ARM64 ELF hwcaps, in
// Linux's documentation).

#include "Processor.h"
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>

namespace {
enum Register { EAX, EBX, ECX, EDX };

/// Where CPUID says that a feature is there, and what the system must save of
/// it between threads (bits of the extended control register 0).
struct Feature {
  const char *name;
  uint32_t leaf, subleaf;
  Register place;
  int bit;
  uint64_t saved = 0;
};
} // namespace

static constexpr uint64_t avxState = 0x6, avx512State = 0xe6,
                          amxState = 0x60000, apxState = uint64_t(1) << 19;

static constexpr Feature features[] = {
    {"sse3", 1, 0, ECX, 0},
    {"ssse3", 1, 0, ECX, 9},
    {"fma", 1, 0, ECX, 12, avxState},
    {"sse4.1", 1, 0, ECX, 19},
    {"sse4.2", 1, 0, ECX, 20},
    {"movbe", 1, 0, ECX, 22},
    {"popcnt", 1, 0, ECX, 23},
    {"avx", 1, 0, ECX, 28, avxState},
    {"f16c", 1, 0, ECX, 29, avxState},
    {"bmi", 7, 0, EBX, 3},
    {"avx2", 7, 0, EBX, 5, avxState},
    {"bmi2", 7, 0, EBX, 8},
    {"avx512f", 7, 0, EBX, 16, avx512State},
    {"avx512dq", 7, 0, EBX, 17, avx512State},
    {"avx512ifma", 7, 0, EBX, 21, avx512State},
    {"avx512cd", 7, 0, EBX, 28, avx512State},
    {"avx512bw", 7, 0, EBX, 30, avx512State},
    {"avx512vl", 7, 0, EBX, 31, avx512State},
    {"avx512vbmi", 7, 0, ECX, 1, avx512State},
    {"avx512vbmi2", 7, 0, ECX, 6, avx512State},
    {"gfni", 7, 0, ECX, 8},
    {"avx512vnni", 7, 0, ECX, 11, avx512State},
    {"avx512bitalg", 7, 0, ECX, 12, avx512State},
    {"avx512vpopcntdq", 7, 0, ECX, 14, avx512State},
    {"amx-bf16", 7, 0, EDX, 22, amxState},
    {"avx512fp16", 7, 0, EDX, 23, avx512State},
    {"amx-tile", 7, 0, EDX, 24, amxState},
    {"avxvnni", 7, 1, EAX, 4, avxState},
    {"avx512bf16", 7, 1, EAX, 5, avx512State},
    {"cmpccxadd", 7, 1, EAX, 7},
    {"avxifma", 7, 1, EAX, 23, avxState},
    {"avxvnniint8", 7, 1, EDX, 4, avxState},
    {"avxneconvert", 7, 1, EDX, 5, avxState},
    {"avxvnniint16", 7, 1, EDX, 10, avxState},
    // The parts of APX.
    {"ccmp", 7, 1, EDX, 21, apxState},
    {"cf", 7, 1, EDX, 21, apxState},
    {"egpr", 7, 1, EDX, 21, apxState},
    {"ndd", 7, 1, EDX, 21, apxState},
    {"nf", 7, 1, EDX, 21, apxState},
    {"ppx", 7, 1, EDX, 21, apxState},
    {"push2pop2", 7, 1, EDX, 21, apxState},
    {"zu", 7, 1, EDX, 21, apxState},
    {"lzcnt", 0x80000001, 0, ECX, 5},
    {"sse4a", 0x80000001, 0, ECX, 6},
    {"xop", 0x80000001, 0, ECX, 11, avxState},
    {"fma4", 0x80000001, 0, ECX, 16, avxState},
    {"tbm", 0x80000001, 0, ECX, 21},
};

/// Which states the system saves.
static uint64_t savedStates() {
  uint32_t a, b, c, d;
  constexpr uint32_t osxsave = 1u << 27;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & osxsave))
    return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

static bool has(const Feature &feature) {
  uint32_t found[4] = {};
  return __get_cpuid_count(feature.leaf, feature.subleaf, &found[EAX],
                           &found[EBX], &found[ECX], &found[EDX]) &&
         (found[feature.place] >> feature.bit & 1) &&
         (savedStates() & feature.saved) == feature.saved;
}

/// The version of AVX10, or 0 without.
static uint32_t avx10Version() {
  static constexpr Feature avx10 = {"avx10", 7, 1, EDX, 19, avx512State};
  uint32_t a, b, c, d;
  bool known = has(avx10) && __get_cpuid_count(0x24, 0, &a, &b, &c, &d);
  return known ? b & 0xff : 0;
}

bool sparse_opt::hasFeature(const std::string &name) {
  if (name == "avx10.1" || name == "avx10.2")
    return avx10Version() >= uint32_t(name.back() - '0');
  for (const Feature &feature : features)
    if (name == feature.name)
      return has(feature);
  return false;
}

#elif defined(__aarch64__)
#include <sys/auxv.h>

namespace {
/// The bits of the first and the second word that say that a feature is there.
struct Feature {
  const char *name;
  uint64_t first, second = 0;
};
} // namespace

static constexpr uint64_t bit(int number) { return uint64_t(1) << number; }

static constexpr Feature features[] = {
    {"fp-armv8", bit(0)},   {"neon", bit(1)},
    {"crc", bit(7)},        {"lse", bit(8)},
    {"rdm", bit(12)},       {"jsconv", bit(13)},
    {"complxnum", bit(14)}, {"rcpc", bit(15)},
    {"dotprod", bit(20)},   {"fp16fml", bit(23)},
    {"lse2", bit(25)},      {"rcpc-immo", bit(26)},
    {"flagm", bit(27)},     {"fullfp16", bit(9) | bit(10)},
    {"altnzcv", 0, bit(7)}, {"sha3", bit(17) | bit(21)},
    {"fptoint", 0, bit(8)}, {"i8mm", 0, bit(13)},
    {"bf16", 0, bit(14)},   {"cssc", 0, bit(34)},
    {"mops", 0, bit(43)},
};

bool sparse_opt::hasFeature(const std::string &name) {
  for (const Feature &feature : features)
    if (name == feature.name)
      return (getauxval(AT_HWCAP) & feature.first) == feature.first &&
             (getauxval(AT_HWCAP2) & feature.second) == feature.second;
  return false;
}

#else
bool sparse_opt::hasFeature(const std::string &) { return false; }
#endif

int sparse_opt::permitTiles() {
#ifdef SYS_arch_prctl
  // Linux's documentation, "Using XSTATE features in user space applications":
  // the component of the processor's state that has the tiles' data.
  constexpr int requestPermission = 0x1023, tileData = 18;
  return syscall(SYS_arch_prctl, requestPermission, tileData) ? errno : 0;
#else
  return ENOSYS;
#endif
}

std::string sparse_opt::findObstacle(const std::vector<std::string> &features,
                                     bool (*has)(const std::string &),
                                     int (*permit)()) {
  std::string missing;
  for (const std::string &feature : features)
    if (!has(feature))
      missing += (missing.empty() ? "which needs " : ", ") + feature;
  bool hasTiles =
      std::find(features.begin(), features.end(), "amx-tile") != features.end();
  if (!missing.empty() || !hasTiles)
    return missing;
  int error = permit();
  return error ? std::string("whose tiles the system does not permit: ") +
                     std::strerror(error)
               : "";
}
