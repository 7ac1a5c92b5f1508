// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The chips that kernels are made for.

#include "Chips.h"
#include <algorithm>
#include <iterator>

using namespace nvidia;

constexpr uint32_t kibibyte = 1024;
constexpr double tera = 1e12, giga = 1e9, micro = 1e-6;

// clang-format off
static constexpr Chip chips[] = {
    {"sm_80", 80, false, "+ptx70", "A100 SXM", 108, 1.41 * giga, {2048, 1024}, {64, 32, 64, 16},
     163 * kibibyte, 1, 5.4 * tera, 2.039 * tera, 1.2 * micro, 1, 0},
    {"sm_86", 86, false, "+ptx71", "A40", 84, 1.74 * giga, {1024, 512}, {128, 2, 64, 16},
     99 * kibibyte, 1, 2.1 * tera, .696 * tera, 1.2 * micro, 1, 0},
    {"sm_89", 89, false, "+ptx78", "L40", 142, 2.49 * giga, {512, 256}, {128, 2, 64, 16},
     99 * kibibyte, 1, 5.2 * tera, .864 * tera, 1.2 * micro, 1, 0},
    {"sm_90", 90, false, "+ptx78", "H100 SXM", 132, 1.83 * giga, {4096, 2048}, {128, 64, 64, 16},
     227 * kibibyte, 16, 9.7 * tera, 3.35 * tera, 1.2 * micro, .63, 0},
    {"sm_90a", 90, true, "+ptx80", "H100 SXM", 132, 1.83 * giga, {4096, 2048}, {128, 64, 64, 16},
     227 * kibibyte, 16, 9.7 * tera, 3.35 * tera, 1.2 * micro, .63, .85},
    {"sm_100a", 100, true, "+ptx86", "B200", 148, 1.85 * giga, {8192, 4096}, {128, 64, 64, 16},
     227 * kibibyte, 16, 11 * tera, 8 * tera, 1.2 * micro, .31, 0},
};
// clang-format on

ChipRange nvidia::getChips() { return {std::begin(chips), std::end(chips)}; }

const Chip *nvidia::findChip(std::string_view name) {
  const Chip *chip =
      std::find_if(std::begin(chips), std::end(chips),
                   [&](const Chip &known) { return known.name == name; });
  return chip == std::end(chips) ? nullptr : chip;
}

std::string nvidia::listChips() {
  std::string list;
  for (const Chip &chip : chips) {
    if (&chip != chips)
      list += &chip + 1 == std::end(chips) ? " or " : ", ";
    list += chip.name;
  }
  return list;
}

bool nvidia::runsOn(const Chip &target, const Chip &chip) {
  return target.isArchitecture ? &target == &chip
                               : target.version <= chip.version;
}

const Chip *nvidia::findTarget(unsigned version) {
  const Chip *best = nullptr;
  for (const Chip &chip : chips)
    if (chip.isArchitecture ? chip.version == version : chip.version <= version)
      best = &chip;
  return best;
}
