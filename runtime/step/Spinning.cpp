// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sets how the threads of LLVM's OpenMP runtime wait.

#include "Spinning.h"
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <iterator>

/// Whether the user says how threads wait.
static bool isChosen() {
  constexpr const char *names[] = {"KMP_BLOCKTIME", "KMP_USE_YIELD",
                                   "KMP_LIBRARY", "OMP_WAIT_POLICY"};
  return std::any_of(std::begin(names), std::end(names),
                     [](const char *name) { return std::getenv(name); });
}

void sparse_opt::limitSpinning(void *library) {
  auto *set = reinterpret_cast<void (*)(const char *)>(
      dlsym(library, "kmp_set_defaults"));
  // Came with the unit.
  void *marker = dlsym(library, "__kmpc_next_section");
  static std::atomic<bool> isDone(isChosen());
  if (set && marker && !isDone.exchange(true))
    set("KMP_BLOCKTIME=50us|KMP_USE_YIELD=0");
}
