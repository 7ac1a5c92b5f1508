// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the tests, by the flags of GoogleTest; or prints the kernels of updates:
// runtime-check --pattern-kernels.

#include "support/PatternKernels.h"
#include <cstring>
#include <gtest/gtest.h>
#include <iostream>

namespace {
/// Makes an assertion that fails in a function end the test, not the function.
class ThrowListener : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult &result) override {
    if (result.fatally_failed())
      throw testing::AssertionException(result);
  }
};
} // namespace

/// What LeakSanitizer passes over: LLVM's OpenMP runtime keeps its teams until
/// the process ends, by addresses inside of what it allocated.
extern "C" const char *__lsan_default_suppressions() {
  return "leak:libomp.so\n";
}

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  // The text that a GPU's driver gets, for assemblers and the PTX interpreter.
  if (argc == 2 && std::strcmp(argv[1], "--pattern-kernels") == 0) {
    std::cout << sparse_opt::patternKernels();
    return 0;
  }
  if (argc > 1) {
    std::cerr << "error: expected flags of GoogleTest or --pattern-kernels, "
                 "but got '"
              << argv[1] << "'\n";
    return 2;
  }
  testing::UnitTest &tests = *testing::UnitTest::GetInstance();
  tests.listeners().Append(new ThrowListener);
  int failed = RUN_ALL_TESTS();
  // GoogleTest takes a filter that nothing matches for a success.
  if (tests.test_to_run_count() == 0) {
    std::cerr << "error: expected a filter that a test matches, but got '"
              << GTEST_FLAG_GET(filter) << "'\n";
    return 2;
  }
  return failed;
}
