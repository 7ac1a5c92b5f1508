// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Device.h"
#include "CudaDriver.h"
#include "support/Error.h"
#include <algorithm>
#include <cstring>
#include <dlfcn.h>

using namespace ptx;
using namespace ptx::cuda;

/// The functions of the driver, and what lives until the end.
struct ptx::Device::Driver {
#define PTX_DECLARE(name, ...) Result (*name)(__VA_ARGS__) = nullptr;
  PTX_CUDA_FUNCTIONS(PTX_DECLARE)
#undef PTX_DECLARE

  Driver();
  /// Fails with the name and the words of an error of the driver.
  template <typename... Parts>
  void check(Result result, const Parts &...wanted) const {
    if (result != Success)
      bsr::fail("expected ", wanted..., ", but got ", describe(result));
  }
  std::string describe(Result result) const;
  int attribute(DeviceAttribute which) const;

  /// What a launch is given, by argument: its buffer, or 0, and its value.
  struct Uploaded {
    std::vector<Address> buffers;
    std::vector<TensorMapBytes> values;
  };
  Uploaded upload(const std::vector<Argument> &arguments,
                  const Memory &memory) const;
  /// Tells the driver of the tensor that the interpreter's bytes describe.
  TensorMapBytes encode(const uint8_t *bytes, Address address) const;
  void download(const Uploaded &uploaded,
                const std::vector<Argument> &arguments, Memory &memory) const;

  Ordinal device = 0;
  bool hasContext = false;
  LoadedModule module = nullptr;
};

Device::Driver::Driver() {
  // Never closed: the driver has threads of its own.
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    bsr::fail("expected an NVIDIA driver, but got: ", dlerror());
  auto find = [&](const char *name) {
    void *found = dlsym(library, name);
    if (!found)
      bsr::fail("expected an NVIDIA driver of CUDA 12 or later, but got one "
                "without ",
                name);
    return found;
  };
#define PTX_FIND(name, ...)                                                    \
  name = reinterpret_cast<Result (*)(__VA_ARGS__)>(find(#name));
  PTX_CUDA_FUNCTIONS(PTX_FIND)
#undef PTX_FIND
}

std::string Device::Driver::describe(Result result) const {
  const char *name = nullptr, *words = nullptr;
  if (cuGetErrorName(result, &name) != Success ||
      cuGetErrorString(result, &words) != Success)
    return bsr::concatenate("error ", int(result));
  return bsr::concatenate(name, " (", words, ")");
}

int Device::Driver::attribute(DeviceAttribute which) const {
  int value = 0;
  check(cuDeviceGetAttribute(&value, which, device), "attribute ", int(which),
        " of the GPU");
  return value;
}

Device::Device() : driver(std::make_unique<Driver>()) {
  const char *wanted = "an NVIDIA GPU";
  driver->check(driver->cuInit(0), wanted);
  int count = 0;
  driver->check(driver->cuDeviceGetCount(&count), wanted);
  if (!count)
    bsr::fail("expected ", wanted, ", but got none");
  driver->check(driver->cuDeviceGet(&driver->device, 0), wanted);
}

Device::~Device() {
  // What is allocated and loaded ends with the context.
  if (driver->hasContext)
    driver->cuDevicePrimaryCtxRelease_v2(driver->device);
}

std::string Device::name() const {
  char name[256] = {};
  int version = 0;
  driver->check(driver->cuDeviceGetName(name, sizeof(name), driver->device),
                "the name of the GPU");
  driver->check(driver->cuDriverGetVersion(&version), "the driver's version");
  return bsr::concatenate(name, ", sm_", driver->attribute(Major),
                          driver->attribute(Minor), ", CUDA ", version / 1000,
                          ".", version % 1000 / 10);
}

void Device::load(const std::string &text) {
  Context context = nullptr;
  driver->check(driver->cuDevicePrimaryCtxRetain(&context, driver->device),
                "a context of the GPU");
  driver->hasContext = true;
  driver->check(driver->cuCtxSetCurrent(context), "a context of the GPU");
  std::vector<char> log(8192);
  JitOption options[] = {ErrorLog, ErrorLogBytes};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
  Result result = driver->cuModuleLoadDataEx(&driver->module, text.c_str(), 2,
                                             options, values);
  if (result == Success)
    return;
  std::string said = log.data();
  said.erase(said.find_last_not_of("\n") + 1);
  bsr::fail("expected PTX that the driver compiles, but got ",
            driver->describe(result), said.empty() ? "" : ": ", said);
}

/// The type of as many bytes: swizzles and sizes depend on nothing else.
static TensorType typeOf(unsigned bytes) {
  return bytes == 1   ? UInt8
         : bytes == 2 ? UInt16
         : bytes == 4 ? UInt32
                      : UInt64;
}

TensorMapBytes Device::Driver::encode(const uint8_t *bytes,
                                      Address address) const {
  TensorMap map = decodeTensorMap(bytes);
  TensorMapBytes made;
  const uint32_t ones[] = {1, 1, 1};
  const int noInterleave = 0, noPromotion = 0, zerosOutside = 0;
  check(cuTensorMapEncodeTiled(&made, typeOf(map.elementBytes), map.dimensions,
                               reinterpret_cast<void *>(address),
                               map.size.data(), map.stride.data(),
                               map.box.data(), ones, noInterleave,
                               int(map.swizzle), noPromotion, zerosOutside),
        "a tensor map");
  return made;
}

Device::Driver::Uploaded
Device::Driver::upload(const std::vector<Argument> &arguments,
                       const Memory &memory) const {
  Uploaded made;
  for (const Argument &argument : arguments) {
    Address address = 0;
    TensorMapBytes value{};
    std::copy(argument.bytes.begin(), argument.bytes.end(), value.bytes);
    if (argument.address) {
      std::vector<uint8_t> bytes(memory.find(argument.address)->size);
      memory.readAny(argument.address, bytes.data(), bytes.size());
      check(cuMemAlloc_v2(&address, bytes.size()), bytes.size(),
            " bytes of the GPU's memory");
      check(cuMemcpyHtoD_v2(address, bytes.data(), bytes.size()),
            "a copy to the GPU");
      if (argument.bytes.size() == sizeof(TensorMapBytes))
        value = encode(argument.bytes.data(), address);
      else
        std::memcpy(value.bytes, &address, sizeof(address));
    }
    made.buffers.push_back(address);
    made.values.push_back(value);
  }
  return made;
}

void Device::Driver::download(const Uploaded &uploaded,
                              const std::vector<Argument> &arguments,
                              Memory &memory) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!uploaded.buffers[i])
      continue;
    std::vector<uint8_t> bytes(memory.find(arguments[i].address)->size);
    check(cuMemcpyDtoH_v2(bytes.data(), uploaded.buffers[i], bytes.size()),
          "a copy from the GPU");
    memory.write(arguments[i].address, bytes.data(), bytes.size());
  }
}

void Device::run(const EntryInfo &info, const LaunchOptions &options,
                 const std::vector<Argument> &arguments, unsigned repeat,
                 Memory &memory) {
  Function function = nullptr;
  driver->check(
      driver->cuModuleGetFunction(&function, driver->module, info.name.c_str()),
      "an entry '", info.name, "'");
  if (options.dynamicShared)
    driver->check(driver->cuFuncSetAttribute(function, MaxDynamicShared,
                                             int(options.dynamicShared)),
                  options.dynamicShared, " bytes of dynamic shared memory");
  if (options.cluster.count() > 8)
    driver->check(driver->cuFuncSetAttribute(function, LargeClusterAllowed, 1),
                  "clusters of ", options.cluster.count(), " blocks");
  Driver::Uploaded uploaded = driver->upload(arguments, memory);
  std::vector<void *> parameters;
  for (TensorMapBytes &value : uploaded.values)
    parameters.push_back(value.bytes);
  const Dim &grid = options.grid, &block = options.block,
            &cluster = options.cluster;
  LaunchAttribute attribute{LaunchAttribute::cluster, 0, {}};
  unsigned extents[] = {cluster.x, cluster.y, cluster.z};
  std::copy(extents, extents + 3, attribute.extents);
  LaunchConfig config{{grid.x, grid.y, grid.z},
                      {block.x, block.y, block.z},
                      options.dynamicShared,
                      nullptr,
                      &attribute,
                      1};
  bool saysCluster = cluster.count() > 1 && !info.requiredCluster.x;
  for (unsigned i = 0; i < repeat; ++i)
    driver->check(saysCluster
                      ? driver->cuLaunchKernelEx(&config, function,
                                                 parameters.data(), nullptr)
                      : driver->cuLaunchKernel(function, grid.x, grid.y, grid.z,
                                               block.x, block.y, block.z,
                                               options.dynamicShared, nullptr,
                                               parameters.data(), nullptr),
                  "'", info.name, "' to be launched");
  driver->check(driver->cuCtxSynchronize(), "'", info.name, "' to run");
  driver->download(uploaded, arguments, memory);
}
