// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Errors, the device and its primary context.

#include "State.h"
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>

using namespace sparse_opt::cuda;

DriverState &sparse_opt::cuda::state() {
  static DriverState held;
  return held;
}

const nvidia::Chip &sparse_opt::cuda::chip() {
  const char *name = std::getenv("FAKE_DRIVER_CHIP");
  const nvidia::Chip *found = nvidia::findChip(name ? name : "sm_90a");
  if (!found)
    sparse_opt::fail("expected FAKE_DRIVER_CHIP to be a chip, but got '", name,
                     "'");
  return *found;
}

/// What the GPU says it is, as 90: another than its kernels' chip on demand.
static int capability() {
  const char *said = std::getenv("FAKE_DRIVER_CAPABILITY");
  return said ? std::atoi(said) : int(chip().version);
}

DriverState::~DriverState() {
  const char *path = std::getenv("FAKE_DRIVER_CALLS");
  std::FILE *file = path ? std::fopen(path, "w") : nullptr;
  if (!file)
    return;
  for (const auto &call : calls)
    std::fprintf(file, "%s %llu\n", call.first.c_str(),
                 static_cast<unsigned long long>(call.second));
  std::fclose(file);
}

Context &sparse_opt::cuda::current() {
  static thread_local Context held = nullptr;
  return held;
}

/// How many GPUs there are.
static int countDevices() {
  const char *said = std::getenv("FAKE_DRIVER_DEVICES");
  std::string_view devices = said ? said : "1";
  return devices == "2" ? 2 : devices != "0" && devices != "hidden";
}

void sparse_opt::cuda::report(const std::string &sentence) {
  std::fprintf(stderr, "fake driver: %s\n", sentence.c_str());
}

namespace {
struct ErrorEntry {
  Result result;
  const char *name, *words;
};
} // namespace
static const ErrorEntry errors[] = {
    {Success, "CUDA_SUCCESS", "no error"},
    {InvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {InvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {InvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NoBinaryForGpu, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {InvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {InvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {IllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {ContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED",
     "context is destroyed"},
    {LaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {InvalidClusterSize, "CUDA_ERROR_INVALID_CLUSTER_SIZE",
     "misconfigured cluster launch"}};

static Result findError(Result result, const char **to,
                        const char *ErrorEntry::*which) {
  if (!to)
    return InvalidValue;
  *to = nullptr;
  for (const ErrorEntry &entry : errors)
    if (entry.result == result)
      *to = entry.*which;
  return *to ? Success : InvalidValue;
}

Result cuGetErrorName(Result result, const char **to) {
  return findError(result, to, &ErrorEntry::name);
}

Result cuGetErrorString(Result result, const char **to) {
  return findError(result, to, &ErrorEntry::words);
}

Result cuInit(unsigned flags) {
  std::lock_guard<std::mutex> lock(state().mutex);
  if (flags)
    return InvalidValue;
  const char *devices = std::getenv("FAKE_DRIVER_DEVICES");
  if (devices && std::string_view(devices) == "0")
    return NoDevice;
  state().isInitialized = true;
  return Success;
}

/// Runs `body` where the driver is initialised and `ordinal` is a device.
template <typename Body>
static Result onDevice(Ordinal ordinal, Body body) {
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().isInitialized)
    return NotInitialized;
  return ordinal == 0 || (ordinal == 1 && countDevices() == 2) ? body()
                                                               : InvalidDevice;
}

Result cuDriverGetVersion(int *version) {
  if (!version)
    return InvalidValue;
  *version = 13000;
  return Success;
}

Result cuDeviceGetCount(int *count) {
  return onDevice(0, [&] {
    return count ? (*count = countDevices(), Success) : InvalidValue;
  });
}

Result cuDeviceGet(Ordinal *device, int ordinal) {
  return onDevice(ordinal, [&] {
    return device ? (*device = ordinal, Success) : InvalidValue;
  });
}

Result cuDeviceGetName(char *name, int size, Ordinal device) {
  return onDevice(device, [&] {
    if (!name || size < 1)
      return InvalidValue;
    std::snprintf(name, size_t(size), "PTX interpreter");
    return Success;
  });
}

Result cuDeviceGetAttribute(int *value, DeviceAttribute which, Ordinal device) {
  return onDevice(device, [&] {
    if (!value)
      return InvalidValue;
    switch (which) {
    case MaxThreads:
      *value = int(nvidia::maxBlockThreads);
      return Success;
    case MaxShared:
      *value = 48 * 1024;
      return Success;
    case WarpSize:
      *value = 32;
      return Success;
    case Major:
      *value = capability() / 10;
      return Success;
    case Minor:
      *value = capability() % 10;
      return Success;
    case MaxSharedOptIn:
      *value = int(chip().sharedLimit);
      return Success;
    }
    return NotSupported;
  });
}

Result cuDevicePrimaryCtxRetain(Context *context, Ordinal device) {
  return onDevice(device, [&] {
    if (!context)
      return InvalidValue;
    if (device != 0) {
      *context = &state().second;
      return Success;
    }
    ++state().retained;
    *context = &state().context;
    return Success;
  });
}

Result cuDevicePrimaryCtxRelease_v2(Ordinal device) {
  return onDevice(device, [&] {
    DriverState &now = state();
    if (device != 0)
      return Success;
    if (!now.retained)
      return InvalidContext;
    finish();
    if (--now.retained)
      return Success;
    now.memory = ptx::Memory();
    now.used = 0;
    now.modules.clear();
    now.pinned.clear();
    now.streams.clear();
    now.events.clear();
    now.graphs.clear();
    now.execs.clear();
    now.nullStream = StreamState();
    now.failure = Success;
    return Success;
  });
}

Result cuCtxSetCurrent(Context context) {
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().isInitialized)
    return NotInitialized;
  if (context && context != &state().second &&
      (context != &state().context || !state().retained))
    return InvalidContext;
  current() = context;
  return Success;
}

Result cuCtxGetCurrent(Context *context) {
  std::lock_guard<std::mutex> lock(state().mutex);
  if (!state().isInitialized)
    return NotInitialized;
  if (!context)
    return InvalidValue;
  *context = current();
  return Success;
}

Result cuCtxSynchronize() {
  return inContext([] { return finish(); });
}
