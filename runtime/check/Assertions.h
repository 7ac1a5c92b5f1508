// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What tests of the C interface assert, beside what GoogleTest has.

#ifndef BSR_RUNTIME_CHECK_ASSERTIONS_H
#define BSR_RUNTIME_CHECK_ASSERTIONS_H

#include "Check.h"
#include <gtest/gtest.h>

namespace check {

inline testing::AssertionResult succeeds(bsr_status status) {
  if (status == BSR_OK)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << bsr_last_error();
}

/// Whether `status` is `expected`, and the error is `sentence`.
inline testing::AssertionResult fails(bsr_status status, bsr_status expected,
                                      const std::string &sentence) {
  std::string error = bsr_last_error();
  if (status == expected && error == sentence)
    return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << "expected status " << int(expected) << ", \"" << sentence
         << "\", but got " << int(status) << ", \"" << error << "\"";
}

/// Asserts that the library at `path` is refused as a step.
inline void refusesStep(const std::string &path, bsr_status status,
                        const std::string &sentence) {
  bsr_step *step = nullptr;
  ASSERT_TRUE(fails(bsr_step_load(path.c_str(), &step), status, sentence));
  ASSERT_FALSE(step);
}

} // namespace check

#endif // BSR_RUNTIME_CHECK_ASSERTIONS_H
