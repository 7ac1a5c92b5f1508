// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a launch did, in numbers that a test can state.

#ifndef PTX_COUNTS_H
#define PTX_COUNTS_H

#include <array>
#include <cstdint>
#include <string>

namespace ptx {

/// The classes that warp instructions are counted by.
enum class Class : uint8_t {
  Integer,
  Float,
  Convert,
  Compare,
  Move,
  Control,
  LoadStore,
  AsyncCopy,
  Matrix,
  Warp,
  Barrier,
  Atomic,
  Other,
};
constexpr unsigned numClasses = unsigned(Class::Other) + 1;

struct Counts {
  std::array<uint64_t, numClasses> instructions{}; ///< of warps
  uint64_t mma = 0, wgmma = 0, loadMatrix = 0;     ///< warp instructions
  uint64_t asyncCopies = 0; ///< warp instructions cp.async
  uint64_t bulkCopies = 0;  ///< copies, one a block of threads
  uint64_t bulkBytes = 0;   ///< of shared memory that these fill
  /// Of shared memory that wgmma reads, a quarter of the operands a warp.
  uint64_t wgmmaBytes = 0;
  uint64_t barriers = 0; ///< warp instructions that wait for a block
  uint64_t sharedWavefronts = 0, sharedIdeal = 0;
  uint64_t globalRequests = 0, globalSectors = 0, globalLines = 0;
  uint64_t passedSectors = 0; ///< of globalSectors: copied past L1

  uint64_t total() const;
  void add(const Counts &other);
  /// A line a number, `name: value`.
  std::string text() const;
};

} // namespace ptx

#endif // PTX_COUNTS_H
