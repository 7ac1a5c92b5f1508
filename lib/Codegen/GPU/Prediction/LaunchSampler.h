// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a launch of a kernel in PTX does, counted by running some of it.

#ifndef BSR_LIB_CODEGEN_GPU_PREDICTION_LAUNCHSAMPLER_H
#define BSR_LIB_CODEGEN_GPU_PREDICTION_LAUNCHSAMPLER_H

#include "bsr/Codegen/GPU/Core/LaunchCostModel.h"
#include "ptx/Program.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

namespace mlir::bsr::gpu {

/// What a kernel may touch of a buffer: its bytes from an address on.
struct BufferRange {
  uint64_t address;
  int64_t bytes;
};

/// What a launch does, by those of its thread blocks that ran.
struct Sample {
  KernelWork work;
  uint64_t blocks = 0; ///< that ran
};

/// The kernels of a text of PTX and their memory, in the interpreter.
class LaunchSampler {
public:
  static llvm::Expected<std::unique_ptr<LaunchSampler>>
  create(llvm::StringRef text);

  /// The kernel of a name, or null.
  const ::ptx::Kernel *find(llvm::StringRef name) const;
  /// A buffer of zeros.
  llvm::Expected<uint64_t> allocate(int64_t bytes);
  void write(uint64_t address, const void *from, size_t bytes);
  static llvm::Expected<::ptx::EncodedTensorMap>
  encode(const ::ptx::TensorMap &map);

  /// Runs thread blocks that are spread evenly over the launch: 8, and more
  /// until what they do on average is known to 1 %, but none after four million
  /// warp instructions; or all, if the launch is to be done as a whole. What
  /// others read of what these have not written is zeros.
  llvm::Expected<Sample> run(llvm::StringRef kernel,
                             ::ptx::LaunchOptions options,
                             llvm::ArrayRef<BufferRange> buffers,
                             bool isWhole = false);

private:
  explicit LaunchSampler(::ptx::Module module) : module(std::move(module)) {}

  ::ptx::Counts runSome(llvm::StringRef kernel, ::ptx::LaunchOptions options);
  /// Of each buffer what is touched, read and written once, if `counts` are
  /// those of 1 / `share` of a launch.
  double getMemoryBytes(const ::ptx::Counts &counts, double share,
                        llvm::ArrayRef<BufferRange> buffers) const;

  ::ptx::Module module;
  ::ptx::Memory memory;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_PREDICTION_LAUNCHSAMPLER_H
