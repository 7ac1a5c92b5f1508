// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a launch did, in numbers that a test can state.

#ifndef PTX_COUNTS_H
#define PTX_COUNTS_H

#include "support/Chips.h"
#include <array>
#include <cstdint>
#include <string>
#include <vector>

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

/// Sectors of an allocation that requests read, and that they write.
struct BufferTraffic {
  uint64_t read = 0, written = 0;
};

struct Counts {
  std::array<uint64_t, numClasses> instructions{}; ///< of warps
  /// The same by units; the last are of none.
  std::array<uint64_t, nvidia::numUnits + 1> units{};
  std::array<uint64_t, nvidia::numTensorTypes> mmaFlops{}, wgmmaFlops{};
  uint64_t blocks = 0;      ///< of threads, that ran
  uint64_t longestWarp = 0; ///< instructions of the warp that has most
  uint64_t mma = 0, wgmma = 0, loadMatrix = 0; ///< warp instructions
  uint64_t asyncCopies = 0;                    ///< warp instructions cp.async
  uint64_t bulkCopies = 0;                     ///< copies, one a thread block
  uint64_t bulkBytes = 0; ///< of shared memory that these fill
  /// Of shared memory that wgmma reads, a quarter of the operands a warp.
  uint64_t wgmmaBytes = 0;
  uint64_t barriers = 0; ///< warp instructions that wait for a block
  uint64_t sharedWavefronts = 0, sharedIdeal = 0;
  uint64_t globalRequests = 0, globalSectors = 0, globalLines = 0;
  uint64_t passedSectors = 0; ///< of globalSectors: copied past L1
  /// Of globalSectors: written, copied past L1, or read and not among the last
  /// 4 KiB that the warp has read.
  uint64_t l2Sectors = 0;
  /// By Allocation::number, if LaunchOptions::countsBuffers.
  std::vector<BufferTraffic> buffers;

  uint64_t total() const;
  void add(const Counts &other);
  /// A line a number, `name: value`.
  std::string text() const;
};

} // namespace ptx

#endif // PTX_COUNTS_H
