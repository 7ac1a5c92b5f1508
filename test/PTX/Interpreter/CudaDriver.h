// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is used of the CUDA driver API, with the names and numbers of its ABI
// (CUDA Driver API, reference manual). No header of CUDA is needed.

#ifndef PTX_CUDADRIVER_H
#define PTX_CUDADRIVER_H

#include <cstddef>
#include <cstdint>

namespace ptx::cuda {

enum Result : int {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialized = 3,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidContext = 201,
  InvalidPtx = 218,
  InvalidHandle = 400,
  NotFound = 500,
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

} // namespace ptx::cuda

/// Calls FUNCTION(name, parameter type...) for each function; all of them
/// return a Result.
#define PTX_CUDA_FUNCTIONS(FUNCTION)                                           \
  FUNCTION(cuGetErrorName, ptx::cuda::Result, const char **)                   \
  FUNCTION(cuGetErrorString, ptx::cuda::Result, const char **)                 \
  FUNCTION(cuInit, unsigned)                                                   \
  FUNCTION(cuDriverGetVersion, int *)                                          \
  FUNCTION(cuDeviceGetCount, int *)                                            \
  FUNCTION(cuDeviceGet, ptx::cuda::Ordinal *, int)                             \
  FUNCTION(cuDeviceGetName, char *, int, ptx::cuda::Ordinal)                   \
  FUNCTION(cuDeviceGetAttribute, int *, ptx::cuda::DeviceAttribute,            \
           ptx::cuda::Ordinal)                                                 \
  FUNCTION(cuDevicePrimaryCtxRetain, ptx::cuda::Context *, ptx::cuda::Ordinal) \
  FUNCTION(cuDevicePrimaryCtxRelease_v2, ptx::cuda::Ordinal)                   \
  FUNCTION(cuCtxSetCurrent, ptx::cuda::Context)                                \
  FUNCTION(cuCtxSynchronize)                                                   \
  FUNCTION(cuModuleLoadDataEx, ptx::cuda::LoadedModule *, const void *,        \
           unsigned, ptx::cuda::JitOption *, void **)                          \
  FUNCTION(cuModuleUnload, ptx::cuda::LoadedModule)                            \
  FUNCTION(cuModuleGetFunction, ptx::cuda::Function *,                         \
           ptx::cuda::LoadedModule, const char *)                              \
  FUNCTION(cuFuncSetAttribute, ptx::cuda::Function,                            \
           ptx::cuda::FunctionAttribute, int)                                  \
  FUNCTION(cuMemAlloc_v2, ptx::cuda::Address *, size_t)                        \
  FUNCTION(cuMemFree_v2, ptx::cuda::Address)                                   \
  FUNCTION(cuMemcpyHtoD_v2, ptx::cuda::Address, const void *, size_t)          \
  FUNCTION(cuMemcpyDtoH_v2, void *, ptx::cuda::Address, size_t)                \
  FUNCTION(cuLaunchKernel, ptx::cuda::Function, unsigned, unsigned, unsigned,  \
           unsigned, unsigned, unsigned, unsigned, ptx::cuda::Stream, void **, \
           void **)                                                            \
  FUNCTION(cuLaunchKernelEx, const ptx::cuda::LaunchConfig *,                  \
           ptx::cuda::Function, void **, void **)                              \
  FUNCTION(cuTensorMapEncodeTiled, ptx::cuda::TensorMapBytes *,                \
           ptx::cuda::TensorType, unsigned, void *, const uint64_t *,          \
           const uint64_t *, const uint32_t *, const uint32_t *, int, int,     \
           int, int)

#endif // PTX_CUDADRIVER_H
