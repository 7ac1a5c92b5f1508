// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The text of the kernels, which the build has compiled (DeviceCode.cmake).

#include "PatternKernels.h"

using namespace sparse_opt;

/// The text in parts: compilers need not take literals of 64 KiB.
static const char *const parts[] = {
#include "PatternKernels.inc"
};

std::string sparse_opt::normKernel(const std::string &norm, ElementType type) {
  return "bsr_norm_" + norm + "_" + nameOf(type);
}

std::string sparse_opt::patternKernels() {
  std::string text;
  for (const char *part : parts)
    text += part;
  return text;
}
