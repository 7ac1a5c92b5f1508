// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What of the OpenMP runtime is set and checked before a step is loaded.

#include "OpenMPRuntime.h"
#include "base/Status.h"
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <dlfcn.h>
#include <iterator>
#include <string_view>
#include <system_error>

using namespace sparse_opt;

void sparse_opt::requireThreads() {
  constexpr long most = 1 << 15;
  const char *value = std::getenv("OMP_NUM_THREADS");
  if (!value)
    return;
  std::string_view rest = value;
  bool isNumber = false; // what stands before `rest`
  auto skipSpaces = [&] {
    rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  };
  do {
    skipSpaces();
    long number = -1;
    auto [end, error] =
        std::from_chars(rest.data(), rest.data() + rest.size(), number);
    isNumber = error == std::errc() && number >= 0 && number <= most;
    rest.remove_prefix(size_t(end - rest.data()));
    skipSpaces();
    if (rest.empty() || rest.front() != ',')
      break;
    rest.remove_prefix(1);
  } while (isNumber);
  if (!isNumber || !rest.empty())
    fail(BSR_INVALID_ARGUMENT,
         "expected OMP_NUM_THREADS to be a number of "
         "threads from 0 to ",
         most,
         ", or several with commas between, but "
         "got '",
         value, "': set another or none");
}

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
