// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is used of the CUDA driver API, with the names and numbers of its ABI
// (CUDA Driver API, reference manual), and the driver, which is loaded when
// somebody wants a GPU. No header of CUDA is needed.

#ifndef BSR_SUPPORT_CUDADRIVER_H
#define BSR_SUPPORT_CUDADRIVER_H

#include "Error.h"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace sparse_opt::cuda {

enum Result : int {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialized = 3,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidContext = 201,
  NoBinaryForGpu = 209,
  InvalidPtx = 218,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  IllegalAddress = 700,
  ContextIsDestroyed = 709,
  LaunchFailed = 719,
  NotSupported = 801,
  InvalidClusterSize = 912,
};

enum DeviceAttribute : int {
  MaxThreads = 1,
  MaxShared = 8,
  WarpSize = 10,
  Major = 75,
  Minor = 76,
  MaxSharedOptIn = 97,
};
enum JitOption : int { ErrorLog = 5, ErrorLogBytes = 6 };
enum FunctionAttribute : int {
  MaxDynamicShared = 8,
  LargeClusterAllowed = 14, ///< more than 8 blocks
};
enum TensorType : int {
  UInt8,
  UInt16,
  UInt32,
  Int32,
  UInt64,
  Int64,
  Float16,
  Float32,
  Float64,
  BFloat16,
};

using Ordinal = int; ///< CUdevice
using Address = unsigned long long;
using Context = struct ContextState *;
using LoadedModule = struct ModuleState *;
using Function = struct FunctionState *;
using Stream = struct StreamState *;
using Event = struct EventState *;
using Graph = struct GraphState *;
using GraphExec = struct GraphExecState *; ///< a graph that can be launched

/// Flags and modes.
constexpr unsigned nonBlockingStream = 1; ///< does not wait for the null stream
constexpr int threadLocalCapture = 1;
constexpr int notCapturing = 0; ///< what a stream says of itself

struct alignas(128) TensorMapBytes {
  uint8_t bytes[128];
};

struct LaunchAttribute {
  static constexpr int cluster = 4;
  int id, pad;
  union {
    unsigned extents[3];
    char bytes[64];
  };
};

struct LaunchConfig {
  unsigned grid[3], block[3], sharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};

} // namespace sparse_opt::cuda

/// Calls FUNCTION(name, parameter type...) for each function; all of them
/// return a Result.
#define BSR_CUDA_FUNCTIONS(FUNCTION)                                           \
  FUNCTION(cuGetErrorName, sparse_opt::cuda::Result, const char **)            \
  FUNCTION(cuGetErrorString, sparse_opt::cuda::Result, const char **)          \
  FUNCTION(cuInit, unsigned)                                                   \
  FUNCTION(cuDriverGetVersion, int *)                                          \
  FUNCTION(cuDeviceGetCount, int *)                                            \
  FUNCTION(cuDeviceGet, sparse_opt::cuda::Ordinal *, int)                      \
  FUNCTION(cuDeviceGetName, char *, int, sparse_opt::cuda::Ordinal)            \
  FUNCTION(cuDeviceGetAttribute, int *, sparse_opt::cuda::DeviceAttribute,     \
           sparse_opt::cuda::Ordinal)                                          \
  FUNCTION(cuDevicePrimaryCtxRetain, sparse_opt::cuda::Context *,              \
           sparse_opt::cuda::Ordinal)                                          \
  FUNCTION(cuDevicePrimaryCtxRelease_v2, sparse_opt::cuda::Ordinal)            \
  FUNCTION(cuCtxSetCurrent, sparse_opt::cuda::Context)                         \
  FUNCTION(cuCtxGetCurrent, sparse_opt::cuda::Context *)                       \
  FUNCTION(cuCtxSynchronize)                                                   \
  FUNCTION(cuModuleLoadDataEx, sparse_opt::cuda::LoadedModule *, const void *, \
           unsigned, sparse_opt::cuda::JitOption *, void **)                   \
  FUNCTION(cuModuleUnload, sparse_opt::cuda::LoadedModule)                     \
  FUNCTION(cuModuleGetFunction, sparse_opt::cuda::Function *,                  \
           sparse_opt::cuda::LoadedModule, const char *)                       \
  FUNCTION(cuFuncSetAttribute, sparse_opt::cuda::Function,                     \
           sparse_opt::cuda::FunctionAttribute, int)                           \
  FUNCTION(cuMemAlloc_v2, sparse_opt::cuda::Address *, size_t)                 \
  FUNCTION(cuMemFree_v2, sparse_opt::cuda::Address)                            \
  FUNCTION(cuMemcpyHtoD_v2, sparse_opt::cuda::Address, const void *, size_t)   \
  FUNCTION(cuMemcpyDtoH_v2, void *, sparse_opt::cuda::Address, size_t)         \
  FUNCTION(cuLaunchKernel, sparse_opt::cuda::Function, unsigned, unsigned,     \
           unsigned, unsigned, unsigned, unsigned, unsigned,                   \
           sparse_opt::cuda::Stream, void **, void **)                         \
  FUNCTION(cuLaunchKernelEx, const sparse_opt::cuda::LaunchConfig *,           \
           sparse_opt::cuda::Function, void **, void **)                       \
  FUNCTION(cuOccupancyMaxActiveClusters, int *, sparse_opt::cuda::Function,    \
           const sparse_opt::cuda::LaunchConfig *)                             \
  FUNCTION(cuMemGetInfo_v2, size_t *, size_t *)                                \
  FUNCTION(cuMemHostAlloc, void **, size_t, unsigned)                          \
  FUNCTION(cuMemFreeHost, void *)                                              \
  FUNCTION(cuMemcpyHtoDAsync_v2, sparse_opt::cuda::Address, const void *,      \
           size_t, sparse_opt::cuda::Stream)                                   \
  FUNCTION(cuMemcpyDtoHAsync_v2, void *, sparse_opt::cuda::Address, size_t,    \
           sparse_opt::cuda::Stream)                                           \
  FUNCTION(cuMemcpyDtoDAsync_v2, sparse_opt::cuda::Address,                    \
           sparse_opt::cuda::Address, size_t, sparse_opt::cuda::Stream)        \
  FUNCTION(cuMemsetD8Async, sparse_opt::cuda::Address, unsigned char, size_t,  \
           sparse_opt::cuda::Stream)                                           \
  FUNCTION(cuStreamCreate, sparse_opt::cuda::Stream *, unsigned)               \
  FUNCTION(cuStreamDestroy_v2, sparse_opt::cuda::Stream)                       \
  FUNCTION(cuStreamSynchronize, sparse_opt::cuda::Stream)                      \
  FUNCTION(cuStreamWaitEvent, sparse_opt::cuda::Stream,                        \
           sparse_opt::cuda::Event, unsigned)                                  \
  FUNCTION(cuStreamIsCapturing, sparse_opt::cuda::Stream, int *)               \
  FUNCTION(cuStreamBeginCapture_v2, sparse_opt::cuda::Stream, int)             \
  FUNCTION(cuStreamEndCapture, sparse_opt::cuda::Stream,                       \
           sparse_opt::cuda::Graph *)                                          \
  FUNCTION(cuGraphInstantiateWithFlags, sparse_opt::cuda::GraphExec *,         \
           sparse_opt::cuda::Graph, unsigned long long)                        \
  FUNCTION(cuGraphLaunch, sparse_opt::cuda::GraphExec,                         \
           sparse_opt::cuda::Stream)                                           \
  FUNCTION(cuGraphExecDestroy, sparse_opt::cuda::GraphExec)                    \
  FUNCTION(cuGraphDestroy, sparse_opt::cuda::Graph)                            \
  FUNCTION(cuEventCreate, sparse_opt::cuda::Event *, unsigned)                 \
  FUNCTION(cuEventDestroy_v2, sparse_opt::cuda::Event)                         \
  FUNCTION(cuEventRecord, sparse_opt::cuda::Event, sparse_opt::cuda::Stream)   \
  FUNCTION(cuEventSynchronize, sparse_opt::cuda::Event)                        \
  FUNCTION(cuEventElapsedTime, float *, sparse_opt::cuda::Event,               \
           sparse_opt::cuda::Event)                                            \
  FUNCTION(cuTensorMapEncodeTiled, sparse_opt::cuda::TensorMapBytes *,         \
           sparse_opt::cuda::TensorType, unsigned, void *, const uint64_t *,   \
           const uint64_t *, const uint32_t *, const uint32_t *, int, int,     \
           int, int)

namespace sparse_opt::cuda {

/// The driver of this machine's GPUs. A failure is a sentence and has the
/// status `deviceError`.
class Driver {
public:
  static constexpr int deviceError = 8;

  /// Loads libcuda.so.1, once. Fails where there is none, or one that lacks a
  /// function, or one that finds no GPU.
  static const Driver &get();

#define BSR_DECLARE(name, ...) Result (*name)(__VA_ARGS__) = nullptr;
  BSR_CUDA_FUNCTIONS(BSR_DECLARE)
#undef BSR_DECLARE

  /// Fails unless `result` is success: what was `wanted` is expected.
  template <typename... Parts>
  void check(Result result, const Parts &...wanted) const {
    if (result != Success)
      fail(deviceError, "expected ", wanted..., ", but got ", describe(result));
  }
  /// The name and the words of an error.
  std::string describe(Result result) const;
  int attribute(Ordinal device, DeviceAttribute which) const;
  int countDevices() const;
  /// What the GPU is, with its chip and the version of CUDA.
  std::string describe(Ordinal device) const;
  /// The GPU's chip, as 90.
  int version(Ordinal device) const {
    return attribute(device, Major) * 10 + attribute(device, Minor);
  }
  /// Loads a module of PTX, which ends in a zero, into the current context; or
  /// its machine code `cubin`, if there is any and the GPU takes it. Calls
  /// `beforeCompiling`, if there is one, where PTX is compiled.
  LoadedModule
  load(const char *text, const void *cubin = nullptr,
       const std::function<void()> &beforeCompiling = nullptr) const;

private:
  Driver();
};

} // namespace sparse_opt::cuda

#endif // BSR_SUPPORT_CUDADRIVER_H
