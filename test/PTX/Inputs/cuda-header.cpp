// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles only if what the project knows of the CUDA driver API is what
// NVIDIA's header says.

#define __CUDA_API_VERSION_INTERNAL // declares every version of a function
#include "support/CudaDriver.h"
#include <cuda.h>
#include <type_traits>

namespace ours = sparse_opt::cuda;

#define SAME(own, theirs) static_assert(int(own) == int(theirs), #theirs)
SAME(ours::Success, CUDA_SUCCESS);
SAME(ours::InvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME(ours::OutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME(ours::NotInitialized, CUDA_ERROR_NOT_INITIALIZED);
SAME(ours::NoDevice, CUDA_ERROR_NO_DEVICE);
SAME(ours::InvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SAME(ours::InvalidContext, CUDA_ERROR_INVALID_CONTEXT);
SAME(ours::NoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(ours::InvalidPtx, CUDA_ERROR_INVALID_PTX);
SAME(ours::InvalidHandle, CUDA_ERROR_INVALID_HANDLE);
SAME(ours::NotFound, CUDA_ERROR_NOT_FOUND);
SAME(ours::NotReady, CUDA_ERROR_NOT_READY);
SAME(ours::IllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(ours::ContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(ours::LaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
SAME(ours::NotSupported, CUDA_ERROR_NOT_SUPPORTED);
SAME(ours::InvalidClusterSize, CUDA_ERROR_INVALID_CLUSTER_SIZE);

SAME(ours::MaxThreads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(ours::MaxShared, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
SAME(ours::WarpSize, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
SAME(ours::Major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(ours::Minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(ours::MaxSharedOptIn,
     CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(ours::ErrorLog, CU_JIT_ERROR_LOG_BUFFER);
SAME(ours::ErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(ours::MaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(ours::LargeClusterAllowed,
     CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME(ours::nonBlockingStream, CU_STREAM_NON_BLOCKING);
SAME(ours::threadLocalCapture, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);

SAME(ours::UInt8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME(ours::UInt16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
SAME(ours::UInt32, CU_TENSOR_MAP_DATA_TYPE_UINT32);
SAME(ours::Int32, CU_TENSOR_MAP_DATA_TYPE_INT32);
SAME(ours::UInt64, CU_TENSOR_MAP_DATA_TYPE_UINT64);
SAME(ours::Int64, CU_TENSOR_MAP_DATA_TYPE_INT64);
SAME(ours::Float16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
SAME(ours::Float32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME(ours::Float64, CU_TENSOR_MAP_DATA_TYPE_FLOAT64);
SAME(ours::BFloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
// What CudaProgram.cpp passes by number.
SAME(0, CU_TENSOR_MAP_INTERLEAVE_NONE);
SAME(0, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
SAME(2, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
SAME(0, CU_TENSOR_MAP_SWIZZLE_NONE);
SAME(1, CU_TENSOR_MAP_SWIZZLE_32B);
SAME(2, CU_TENSOR_MAP_SWIZZLE_64B);
SAME(3, CU_TENSOR_MAP_SWIZZLE_128B);

static_assert(sizeof(ours::Address) == sizeof(CUdeviceptr));
static_assert(sizeof(ours::Ordinal) == sizeof(CUdevice));
static_assert(sizeof(ours::TensorMapBytes) == sizeof(CUtensorMap));
static_assert(alignof(ours::TensorMapBytes) >= alignof(CUtensorMap));
SAME(ours::LaunchAttribute::cluster, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
static_assert(sizeof(ours::LaunchAttribute) == sizeof(CUlaunchAttribute));
static_assert(offsetof(ours::LaunchAttribute, extents) ==
              offsetof(CUlaunchAttribute, value));
static_assert(sizeof(ours::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(ours::LaunchConfig, grid) ==
              offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(ours::LaunchConfig, block) ==
              offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(ours::LaunchConfig, sharedBytes) ==
              offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(ours::LaunchConfig, stream) ==
              offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(ours::LaunchConfig, attributes) ==
              offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(ours::LaunchConfig, attributeCount) ==
              offsetof(CUlaunchConfig, numAttrs));

/// Whether a value of one type is passed as one of the other.
template <typename A, typename B>
constexpr bool isPassedAs() {
  return sizeof(A) == sizeof(B) &&
         std::is_pointer_v<A> == std::is_pointer_v<B> &&
         std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}
/// The same of what a pointer points to, where that has a size.
template <typename A, typename B>
constexpr bool isPointedAs() {
  using X = std::remove_pointer_t<A>;
  using Y = std::remove_pointer_t<B>;
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B> &&
                !std::is_void_v<X> && !std::is_void_v<Y> &&
                (std::is_scalar_v<X> || std::is_scalar_v<Y>))
    return isPassedAs<X, Y>();
  return true;
}
template <typename A, typename B>
struct Matches : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct Matches<R (*)(A...), S (*)(B...)> {
  static constexpr bool get() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return isPassedAs<R, S>() && (isPassedAs<A, B>() && ...) &&
             (isPointedAs<A, B>() && ...);
    return false;
  }
  static constexpr bool value = get();
};

#define FUNCTION(name, ...)                                                    \
  static_assert(Matches<sparse_opt::cuda::Result (*)(__VA_ARGS__),             \
                        decltype(&::name)>::value,                             \
                #name);
BSR_CUDA_FUNCTIONS(FUNCTION)
