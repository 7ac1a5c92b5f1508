// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads the driver of GPUs and tells its errors.

#include "CudaDriver.h"
#include <dlfcn.h>
#include <vector>

using namespace sparse_opt;
using namespace sparse_opt::cuda;

const Driver &Driver::get() {
  static const Driver driver;
  return driver;
}

Driver::Driver() {
  // Never closed: the driver has threads of its own.
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(deviceError, "expected an NVIDIA driver, but got: ", dlerror());
  auto find = [&](const char *name) {
    void *found = dlsym(library, name);
    if (!found)
      fail(deviceError,
           "expected an NVIDIA driver of CUDA 12 or later, but got one "
           "without ",
           name);
    return found;
  };
#define BSR_FIND(name, ...)                                                    \
  name = reinterpret_cast<Result (*)(__VA_ARGS__)>(find(#name));
  BSR_CUDA_FUNCTIONS(BSR_FIND)
#undef BSR_FIND
  check(cuInit(0), "an NVIDIA GPU");
  if (!countDevices())
    fail(deviceError, "expected an NVIDIA GPU, but got none");
}

std::string Driver::describe(Result result) const {
  const char *name = nullptr, *words = nullptr;
  if (cuGetErrorName(result, &name) != Success ||
      cuGetErrorString(result, &words) != Success)
    return concatenate("error ", int(result));
  return concatenate(name, " (", words, ")");
}

int Driver::attribute(Ordinal device, DeviceAttribute which) const {
  int value = 0;
  check(cuDeviceGetAttribute(&value, which, device), "attribute ", int(which),
        " of the GPU");
  return value;
}

int Driver::countDevices() const {
  int count = 0;
  check(cuDeviceGetCount(&count), "an NVIDIA GPU");
  return count;
}

std::string Driver::describe(Ordinal device) const {
  char name[256] = {};
  int cuda = 0;
  check(cuDeviceGetName(name, sizeof(name), device), "the name of the GPU");
  check(cuDriverGetVersion(&cuda), "the driver's version");
  return concatenate(name, ", sm_", version(device), ", CUDA ", cuda / 1000,
                     ".", cuda % 1000 / 10);
}

LoadedModule Driver::load(const char *text, const void *cubin,
                          const std::function<void()> &beforeCompiling) const {
  if (cubin) {
    LoadedModule module = nullptr;
    Result result = cuModuleLoadDataEx(&module, cubin, 0, nullptr, nullptr);
    if (result == Success)
      return module;
    if (result != NoBinaryForGpu)
      check(result, "machine code that the driver loads");
  }
  if (beforeCompiling)
    beforeCompiling();
  std::vector<char> log(8192);
  JitOption options[] = {ErrorLog, ErrorLogBytes};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
  LoadedModule module = nullptr;
  Result result = cuModuleLoadDataEx(&module, text, 2, options, values);
  if (result == Success)
    return module;
  std::string said = log.data();
  said.erase(said.find_last_not_of("\n") + 1);
  fail(deviceError, "expected PTX that the driver compiles, but got ",
       describe(result), said.empty() ? "" : ": ", said);
}
