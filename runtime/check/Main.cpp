// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the cases whose names start with an argument: runtime-check [--list]
// [<prefix>...]; or prints the kernels of updates: runtime-check
// --pattern-kernels.

#include "Check.h"
#include "support/PatternKernels.h"
#include <algorithm>
#include <cstring>
#include <iostream>

using namespace check;

namespace {
struct NamedCase {
  const char *name;
  void (*run)();
};
} // namespace

static std::vector<NamedCase> &cases() {
  static std::vector<NamedCase> all;
  return all;
}

Case::Case(const char *name, void (*run)()) { cases().push_back({name, run}); }

/// Runs `test`; whether it passed.
static bool passes(const NamedCase &test) {
  try {
    test.run();
    std::cout << "ok " << test.name << std::endl;
    return true;
  } catch (const Failure &failure) {
    std::cout << "FAILED " << test.name << ": " << failure.text << std::endl;
    return false;
  }
}

int main(int argc, char **argv) {
  std::sort(cases().begin(), cases().end(),
            [](const NamedCase &a, const NamedCase &b) {
              return std::strcmp(a.name, b.name) < 0;
            });
  // The text that a GPU's driver gets, for assemblers and the PTX interpreter.
  if (argc == 2 && std::strcmp(argv[1], "--pattern-kernels") == 0) {
    std::cout << bsr::patternKernels();
    return 0;
  }
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const NamedCase &test : cases())
      std::cout << test.name << "\n";
    return 0;
  }

  int run = 0, failed = 0;
  for (const NamedCase &test : cases()) {
    bool chosen = argc == 1 ||
                  std::any_of(argv + 1, argv + argc, [&](const char *prefix) {
                    return std::string(test.name).rfind(prefix, 0) == 0;
                  });
    if (!chosen)
      continue;
    ++run;
    failed += !passes(test);
  }
  std::cout << run << " cases, " << failed << " failed\n";
  return failed != 0 || run == 0;
}
