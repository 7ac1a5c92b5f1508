// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a target says about costs.

#ifndef BSR_DIALECT_TARGETCOSTS_H
#define BSR_DIALECT_TARGETCOSTS_H

#include <cstdint>

namespace mlir::bsr {

/// Costs in simple operations on one element, and limits of one kernel. The
/// costs here suit memory that is much slower than arithmetic, the limits a
/// kernel of one operation.
struct TargetCosts {
  /// What may be computed again at every use, at a single use, and in a loop
  /// around the one it would be computed in.
  int64_t everyUse = 3, singleUse = 64, broadcast = 1;
  /// The cost at which a value is stored for the later nests of its kernel.
  int64_t stored = 12;
  /// A value is computed again, instead of lying in memory, if what lies there
  /// longer for it has at most so many eighths of its bytes.
  int64_t extendedEighths = 1;
  /// Bytes that memory moves while a launch starts. What takes a launch of its
  /// own and moves no more is not computed again, and waits for others alike.
  int64_t launchBytes = 0;
  /// Outputs of one nest, beyond which streams from memory get in each other's
  /// way, and roots of a chain of nests.
  unsigned maxOutputs = 1, maxRoots = 1;
  /// Slices of one tensor that a kernel may be compiled for, each.
  unsigned maxSlices = 1;
};

} // namespace mlir::bsr

#endif // BSR_DIALECT_TARGETCOSTS_H
