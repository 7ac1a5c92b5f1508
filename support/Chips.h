// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The chips that kernels are made for.

#ifndef BSR_SUPPORT_CHIPS_H
#define BSR_SUPPORT_CHIPS_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nvidia {

/// The kinds of numbers that tensor cores multiply, with sums in f32: f16 and
/// bf16 at one rate, tf32 at another.
enum class TensorType { Half, TF32 };
constexpr unsigned numTensorTypes = 2;

/// The arithmetic units of a multiprocessor beside its tensor cores, by what
/// they compute: f32, f64, integers (with bits, comparisons and moves), and
/// reciprocals, roots, exponentials and logarithms.
enum class Unit { Float, Double, Integer, Special };
constexpr unsigned numUnits = 4;

/// A chip as PTX names it, by the figures of one product that has it. "A clock
/// and SM": what one multiprocessor does in a clock. docs/gpu.md has the source
/// of each figure; what a block may have is in the CUDA C++ Programming Guide,
/// "Technical Specifications per Compute Capability".
struct Chip {
  std::string_view name;
  unsigned version;    ///< the compute capability: 90 of 9.0
  bool isArchitecture; ///< the suffix a: instructions of this chip alone
  /// The first version of PTX that knows the chip, as LLVM names it (NVPTX.td
  /// of LLVM 22).
  std::string_view ptxFeature;
  std::string_view product;
  int64_t multiprocessors;
  double clock;                              ///< Hz
  std::array<double, numTensorTypes> tensor; ///< FLOP a clock and SM, dense
  std::array<double, numUnits> lanes;        ///< results a clock and SM
  /// Bytes of shared memory that a block may have, static and dynamic, after
  /// opting in.
  uint32_t sharedLimit;
  unsigned maxCluster;    ///< blocks of a cluster, after opting in; 1: none
  double l2Bandwidth;     ///< bytes a second, to all SMs together
  double memoryBandwidth; ///< bytes a second
  double launchSeconds;   ///< what a launch of a graph takes beside its work
  double mmaRate;         ///< what `mma.sync` reaches of `tensor`
  double wgmmaRate;       ///< what `wgmma` does; 0 where there is none
};

/// What each chip has alike.
constexpr unsigned maxBlockThreads = 1024;
constexpr unsigned maxThreadRegisters = 255;  ///< of 32 bits
constexpr unsigned maxBlockRegisters = 65536; ///< of a block, and of an SM

/// All of them, by compute capability; at least one.
struct ChipRange {
  const Chip *first, *last;
  const Chip *begin() const { return first; }
  const Chip *end() const { return last; }
  size_t size() const { return size_t(last - first); }
};
ChipRange getChips();

/// Null if no chip has that name.
const Chip *findChip(std::string_view name);

/// Their names: "sm_80, sm_86 or sm_90".
std::string listChips();

/// Whether a module for `target` runs on `chip`: what uses instructions of one
/// architecture does there alone.
bool runsOn(const Chip &target, const Chip &chip);

/// What kernels for a GPU of compute capability `version` are best made for;
/// null if it is older than all chips.
const Chip *findTarget(unsigned version);

} // namespace nvidia

#endif // BSR_SUPPORT_CHIPS_H
