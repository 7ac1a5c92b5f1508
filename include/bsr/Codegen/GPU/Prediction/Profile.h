// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a launch of a kernel in PTX does, counted without running it.

#ifndef BSR_CODEGEN_GPU_PREDICTION_PROFILE_H
#define BSR_CODEGEN_GPU_PREDICTION_PROFILE_H

#include "bsr/Codegen/GPU/Core/Model.h"
#include "bsr/Codegen/GPU/Prediction/PTX.h"
#include <memory>

namespace mlir::bsr::gpu {

using KnownWords = std::vector<std::optional<uint32_t>>;

/// What a tensor map describes: a matrix, and the boxes that are copied of it.
struct TensorBox {
  int64_t rows, columns;       ///< of the matrix
  int64_t boxRows, boxColumns; ///< of a box
  int64_t elementBytes;
};

/// What a parameter of a kernel is in a launch.
struct LaunchArgument {
  unsigned buffer = 0;   ///< parameters of one buffer have one number
  int64_t bytes = 0;     ///< of the buffer that the kernel may touch
  bool isNumber = false; ///< then `number` is all it is
  int64_t number = 0;
  /// The words of 32 bits in the buffer, as far as they are known: those of
  /// index arrays of patterns, and what `fillWords` makes of them. Null if none
  /// is.
  std::shared_ptr<KnownWords> words = {};
  /// Of a tensor map of the buffer.
  std::optional<TensorBox> box = {};
};

struct Launch {
  std::array<int64_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  llvm::SmallVector<LaunchArgument> arguments;
};

/// What a launch does, and what was assumed where it depends on data.
struct Profile {
  KernelWork work;
  double globalSectors = 0;      ///< of 32 bytes, requested by warps
  double sharedWavefronts = 0;   ///< of 128 bytes
  double matrixInstructions = 0; ///< `mma`, `wgmma` and `ldmatrix`
  bool hasDataBranches = false;  ///< what a branch may skip is counted
  bool hasDataAddresses = false; ///< each lane has a sector of its own
};

/// Counts what `launch` of `kernel` does: follows the control flow of some of
/// its warps, all of them where they are few, and takes the others to be like
/// them. Numbers are known that follow from the place of a thread, from
/// constants and from the index arrays; all other data are not:
///
/// - what a branch on data may skip is counted, and a loop that data end is run
///   through once;
/// - addresses that depend on data are different sectors.
///
/// Iterations of a loop that differ in nothing but numbers that grow by the
/// same amount each are counted as the ones before. L1 is taken to hold what
/// the warp itself read last, 4 KiB; memory gives and takes each buffer once.
llvm::Expected<Profile> profile(const ptx::Kernel &kernel,
                                const Launch &launch);

/// Counts what `launch` does as well, but follows all of its warps, from
/// barrier to barrier, and keeps the words that they write to buffers with
/// known words, as far as these follow from such words: for launches that make
/// the plans of others, without atomic operations.
llvm::Expected<Profile> fillWords(const ptx::Kernel &kernel,
                                  const Launch &launch);

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_PREDICTION_PROFILE_H
