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
#include <string>

namespace bsr::cuda {

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

} // namespace bsr::cuda

/// Calls FUNCTION(name, parameter type...) for each function; all of them
/// return a Result.
#define BSR_CUDA_FUNCTIONS(FUNCTION)                                           \
  FUNCTION(cuGetErrorName, bsr::cuda::Result, const char **)                   \
  FUNCTION(cuGetErrorString, bsr::cuda::Result, const char **)                 \
  FUNCTION(cuInit, unsigned)                                                   \
  FUNCTION(cuDriverGetVersion, int *)                                          \
  FUNCTION(cuDeviceGetCount, int *)                                            \
  FUNCTION(cuDeviceGet, bsr::cuda::Ordinal *, int)                             \
  FUNCTION(cuDeviceGetName, char *, int, bsr::cuda::Ordinal)                   \
  FUNCTION(cuDeviceGetAttribute, int *, bsr::cuda::DeviceAttribute,            \
           bsr::cuda::Ordinal)                                                 \
  FUNCTION(cuDevicePrimaryCtxRetain, bsr::cuda::Context *, bsr::cuda::Ordinal) \
  FUNCTION(cuDevicePrimaryCtxRelease_v2, bsr::cuda::Ordinal)                   \
  FUNCTION(cuCtxSetCurrent, bsr::cuda::Context)                                \
  FUNCTION(cuCtxGetCurrent, bsr::cuda::Context *)                              \
  FUNCTION(cuCtxSynchronize)                                                   \
  FUNCTION(cuModuleLoadDataEx, bsr::cuda::LoadedModule *, const void *,        \
           unsigned, bsr::cuda::JitOption *, void **)                          \
  FUNCTION(cuModuleUnload, bsr::cuda::LoadedModule)                            \
  FUNCTION(cuModuleGetFunction, bsr::cuda::Function *,                         \
           bsr::cuda::LoadedModule, const char *)                              \
  FUNCTION(cuFuncSetAttribute, bsr::cuda::Function,                            \
           bsr::cuda::FunctionAttribute, int)                                  \
  FUNCTION(cuMemAlloc_v2, bsr::cuda::Address *, size_t)                        \
  FUNCTION(cuMemFree_v2, bsr::cuda::Address)                                   \
  FUNCTION(cuMemcpyHtoD_v2, bsr::cuda::Address, const void *, size_t)          \
  FUNCTION(cuMemcpyDtoH_v2, void *, bsr::cuda::Address, size_t)                \
  FUNCTION(cuLaunchKernel, bsr::cuda::Function, unsigned, unsigned, unsigned,  \
           unsigned, unsigned, unsigned, unsigned, bsr::cuda::Stream, void **, \
           void **)                                                            \
  FUNCTION(cuLaunchKernelEx, const bsr::cuda::LaunchConfig *,                  \
           bsr::cuda::Function, void **, void **)                              \
  FUNCTION(cuMemGetInfo_v2, size_t *, size_t *)                                \
  FUNCTION(cuMemHostAlloc, void **, size_t, unsigned)                          \
  FUNCTION(cuMemFreeHost, void *)                                              \
  FUNCTION(cuMemcpyHtoDAsync_v2, bsr::cuda::Address, const void *, size_t,     \
           bsr::cuda::Stream)                                                  \
  FUNCTION(cuMemcpyDtoHAsync_v2, void *, bsr::cuda::Address, size_t,           \
           bsr::cuda::Stream)                                                  \
  FUNCTION(cuMemcpyDtoDAsync_v2, bsr::cuda::Address, bsr::cuda::Address,       \
           size_t, bsr::cuda::Stream)                                          \
  FUNCTION(cuMemsetD8Async, bsr::cuda::Address, unsigned char, size_t,         \
           bsr::cuda::Stream)                                                  \
  FUNCTION(cuStreamCreate, bsr::cuda::Stream *, unsigned)                      \
  FUNCTION(cuStreamDestroy_v2, bsr::cuda::Stream)                              \
  FUNCTION(cuStreamSynchronize, bsr::cuda::Stream)                             \
  FUNCTION(cuStreamWaitEvent, bsr::cuda::Stream, bsr::cuda::Event, unsigned)   \
  FUNCTION(cuStreamIsCapturing, bsr::cuda::Stream, int *)                      \
  FUNCTION(cuStreamBeginCapture_v2, bsr::cuda::Stream, int)                    \
  FUNCTION(cuStreamEndCapture, bsr::cuda::Stream, bsr::cuda::Graph *)          \
  FUNCTION(cuGraphInstantiateWithFlags, bsr::cuda::GraphExec *,                \
           bsr::cuda::Graph, unsigned long long)                               \
  FUNCTION(cuGraphLaunch, bsr::cuda::GraphExec, bsr::cuda::Stream)             \
  FUNCTION(cuGraphExecDestroy, bsr::cuda::GraphExec)                           \
  FUNCTION(cuGraphDestroy, bsr::cuda::Graph)                                   \
  FUNCTION(cuEventCreate, bsr::cuda::Event *, unsigned)                        \
  FUNCTION(cuEventDestroy_v2, bsr::cuda::Event)                                \
  FUNCTION(cuEventRecord, bsr::cuda::Event, bsr::cuda::Stream)                 \
  FUNCTION(cuEventSynchronize, bsr::cuda::Event)                               \
  FUNCTION(cuEventElapsedTime, float *, bsr::cuda::Event, bsr::cuda::Event)    \
  FUNCTION(cuTensorMapEncodeTiled, bsr::cuda::TensorMapBytes *,                \
           bsr::cuda::TensorType, unsigned, void *, const uint64_t *,          \
           const uint64_t *, const uint32_t *, const uint32_t *, int, int,     \
           int, int)

namespace bsr::cuda {

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
  /// its machine code `cubin`, if there is any and the GPU takes it.
  LoadedModule load(const char *text, const void *cubin = nullptr) const;

private:
  Driver();
};

} // namespace bsr::cuda

#endif // BSR_SUPPORT_CUDADRIVER_H
