// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of a compiled function, loaded on a GPU, and their launches.

#ifndef BSR_RUNTIME_DEVICE_CUDAKERNELS_H
#define BSR_RUNTIME_DEVICE_CUDAKERNELS_H

#include "CudaDevice.h"
#include "base/Manifest.h"
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

namespace sparse_opt {

/// The memory that launches work on: the buffers, and the arena, whose plans
/// may lie apart from the rest.
struct LaunchMemory {
  void *const *buffers;
  char *plans; // the manifest's `planBytes`
  char *rest;  // what the arena has behind them
};

/// What a step for a GPU launches there.
class CudaKernels {
public:
  /// Loads the kernels of `step` into the context of `device`, which is
  /// current. Fails for a step that is not for this GPU.
  CudaKernels(CudaDevice &device, const bsr_step &step);
  CudaKernels(const CudaKernels &) = delete;
  ~CudaKernels();

  using Times = std::initializer_list<Launch::When>;
  /// The launches of `times`, in their order.
  std::vector<const Launch *> select(Times times) const;

  /// Gives `launch` to `stream`, or to what records it. Any number of threads
  /// may call at once.
  void enqueue(const Launch &launch, const LaunchMemory &memory,
               cuda::Stream stream) const;

private:
  void find(const Launch &launch);
  /// Fails unless the GPU runs a cluster of `launch`, if it has one.
  void requireRoom(const Launch &launch, cuda::Function function) const;
  /// The address that `argument` names.
  cuda::Address addressOf(const LaunchArgument &argument,
                          const LaunchMemory &memory) const;
  /// Tells the driver of the tensor of `argument`. Into its place, since
  /// compilers return what is aligned to 128 bytes in temporaries that are not.
  void encode(const LaunchArgument &argument, const LaunchMemory &memory,
              cuda::TensorMapBytes &to) const;

  CudaDevice &device;
  const cuda::Driver &driver;
  const Manifest &manifest;
  cuda::LoadedModule module = nullptr;
  struct Kernel {
    cuda::Function function = nullptr;
    int64_t sharedBytes = 0; // that it has leave for
  };
  std::map<std::string, Kernel> kernels;
};

} // namespace sparse_opt

#endif // BSR_RUNTIME_DEVICE_CUDAKERNELS_H
