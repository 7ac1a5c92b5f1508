// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long a launch takes at least, by what it does and what a chip has.

#ifndef BSR_CODEGEN_GPU_CORE_LAUNCHCOSTMODEL_H
#define BSR_CODEGEN_GPU_CORE_LAUNCHCOSTMODEL_H

#include "bsr/Dialect/BSR.h"
#include "support/Chips.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <array>
#include <optional>

namespace mlir::bsr::gpu {

using nvidia::Chip;
using nvidia::findChip;
using nvidia::getChips;
using nvidia::numTensorTypes;
using nvidia::numUnits;
using nvidia::TensorType;
using nvidia::Unit;

/// What each chip has alike (CUDA C++ Programming Guide, technical
/// specifications per compute capability), beside what support/Chips.h has.
constexpr double issueSlots = 4;    ///< warp instructions a clock and SM
constexpr double sharedBytes = 128; ///< bytes a clock and SM
constexpr double l2PortBytes = 64;  ///< bytes a clock that one SM gets of L2
constexpr int64_t numRegisters = nvidia::maxBlockRegisters; ///< of 32 bits
constexpr int64_t threadRegisters = nvidia::maxThreadRegisters;

/// The chip that `op` is compiled for.
const Chip &getChip(Operation *op);

/// Thread blocks that keep `chip` busy: the power of two next to the number of
/// its multiprocessors, for most launches have a power of two of them.
int64_t getBusyBlocks(const Chip &chip);

/// What only a device can settle, where it is to be other than the chip's.
struct ModelParameters {
  std::optional<double> mmaRate;         ///< see `Chip`
  std::optional<double> wgmmaRate;       ///< see `Chip`
  std::optional<double> l2Bandwidth;     ///< bytes a second
  std::optional<double> memoryBandwidth; ///< bytes a second
  std::optional<double> launchSeconds;   ///< see `Chip`
  /// How far a launch uses its resources at one time: 1, it takes as long as
  /// the one that takes longest; 0, as all of them one after the other.
  double overlap = 1;
};

/// What one launch does, all its blocks together. Instructions are of warps.
struct KernelWork {
  double blocks = 1;       ///< thread blocks, of equal work
  double warps = 1;        ///< of a block
  double longestWarp = 0;  ///< instructions of the warp that has most
  double instructions = 0; ///< that are issued, of all units
  std::array<double, numUnits> arithmetic{}; ///< instructions of each unit
  std::array<double, numTensorTypes> tensorFlops{};
  /// Of warpgroups, whose tensor cores read shared memory themselves.
  std::array<double, numTensorTypes> warpgroupFlops{};
  /// Bytes that pass between multiprocessors and their first-level memory: in
  /// shared memory 128 a wavefront, in global memory those of whole sectors.
  double sharedBytes = 0;
  double l2Bytes = 0;     ///< that L2 exchanges with multiprocessors
  double memoryBytes = 0; ///< that memory exchanges with L2

  /// What a thread block does, but for `memoryBytes`, becomes what all do.
  void multiplyByBlocks();
};

/// What may bind a launch: what its work needs, or, the last one, that it is a
/// launch.
enum class Resource { Tensor, Issue, Arithmetic, Shared, L2, Memory, Launch };
constexpr unsigned numResources = 7;
llvm::StringRef stringify(Resource resource);

/// The clocks that each resource of the busiest multiprocessor (L2 and memory:
/// of the chip) is in use, the one that binds, and the time that follows, of
/// the launch too.
struct Prediction {
  std::array<double, numResources> clocks{};
  Resource binding = Resource::Issue;
  double seconds = 0;

  double operator[](Resource resource) const {
    return clocks[static_cast<unsigned>(resource)];
  }
};

/// What `work` takes at least on `chip`: what any launch takes, and a roofline
/// of all other resources. Latencies and caches that miss are not in it.
Prediction bound(const KernelWork &work, const Chip &chip,
                 const ModelParameters &parameters = {});

/// The seconds that `launches` take at least, one after the other.
double getSeconds(llvm::ArrayRef<KernelWork> launches, const Chip &chip);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_LAUNCHCOSTMODEL_H
