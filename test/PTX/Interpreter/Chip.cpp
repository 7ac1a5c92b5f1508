// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Chip.h"

using namespace ptx;

// Shared memory: 163 KiB on 8.0, 99 KiB on 8.6 and 8.9, 227 KiB on 9.0 and 10.0
// ("Maximum amount of shared memory per thread block"). 1024 threads a block,
// 255 registers a thread and 65,536 a block on all of them. Clusters have 8
// blocks everywhere, 16 where a kernel opts in ("Thread Block Clusters").
static const Chip chips[] = {
    {"sm_80", 80, false, 163 * 1024, 1024, 255, 65536, 1},
    {"sm_86", 86, false, 99 * 1024, 1024, 255, 65536, 1},
    {"sm_89", 89, false, 99 * 1024, 1024, 255, 65536, 1},
    {"sm_90", 90, false, 227 * 1024, 1024, 255, 65536, 16},
    {"sm_90a", 90, true, 227 * 1024, 1024, 255, 65536, 16},
    {"sm_100a", 100, true, 227 * 1024, 1024, 255, 65536, 16},
};

const Chip *ptx::findChip(std::string_view name) {
  for (const Chip &chip : chips)
    if (name == chip.name)
      return &chip;
  return nullptr;
}

const char *ptx::chipNames() {
  return "sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100a";
}

bool ptx::runsOn(const Chip &target, const Chip &chip) {
  return target.architecture ? &target == &chip
                             : target.version <= chip.version;
}
