// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Device.h"
#include "support/CudaDriver.h"
#include <algorithm>
#include <cstring>

using namespace ptx;
using namespace sparse_opt::cuda;

/// What is held of the GPU.
struct ptx::Device::State {
  /// What a launch is given, by argument: its buffer, or 0, and its value.
  struct Uploaded {
    std::vector<Address> buffers;
    std::vector<TensorMapBytes> values;
  };
  Uploaded upload(const std::vector<Argument> &arguments,
                  const Memory &memory) const;
  /// Tells the driver of the tensor that the interpreter's bytes describe. Into
  /// its place, since compilers return what is aligned to 128 bytes in
  /// temporaries that are not.
  void encode(const uint8_t *bytes, Address address, TensorMapBytes &to) const;
  void download(const Uploaded &uploaded,
                const std::vector<Argument> &arguments, Memory &memory) const;

  const Driver &driver = Driver::get();
  Ordinal device = 0;
  bool hasContext = false;
  LoadedModule module = nullptr;
};

Device::Device() : state(std::make_unique<State>()) {
  state->driver.check(state->driver.cuDeviceGet(&state->device, 0),
                      "an NVIDIA GPU");
}

Device::~Device() {
  // What is allocated and loaded ends with the context.
  if (state->hasContext)
    state->driver.cuDevicePrimaryCtxRelease_v2(state->device);
}

std::string Device::name() const {
  return state->driver.describe(state->device);
}

void Device::load(const std::string &text) {
  const Driver &driver = state->driver;
  Context context = nullptr;
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, state->device),
               "a context of the GPU");
  state->hasContext = true;
  driver.check(driver.cuCtxSetCurrent(context), "a context of the GPU");
  state->module = driver.load(text.c_str());
}

/// The type of as many bytes: swizzles and sizes depend on nothing else.
static TensorType typeOf(unsigned bytes) {
  return bytes == 1   ? UInt8
         : bytes == 2 ? UInt16
         : bytes == 4 ? UInt32
                      : UInt64;
}

void Device::State::encode(const uint8_t *bytes, Address address,
                           TensorMapBytes &to) const {
  TensorMap map = decodeTensorMap(bytes);
  const uint32_t ones[] = {1, 1, 1};
  const int noInterleave = 0, noPromotion = 0, zerosOutside = 0;
  driver.check(driver.cuTensorMapEncodeTiled(
                   &to, typeOf(map.elementBytes), map.dimensions,
                   reinterpret_cast<void *>(address), map.size.data(),
                   map.stride.data(), map.box.data(), ones, noInterleave,
                   int(map.swizzle), noPromotion, zerosOutside),
               "a tensor map");
}

Device::State::Uploaded
Device::State::upload(const std::vector<Argument> &arguments,
                      const Memory &memory) const {
  Uploaded made;
  made.values.reserve(arguments.size());
  for (const Argument &argument : arguments) {
    Address address = 0;
    TensorMapBytes &value = made.values.emplace_back();
    std::copy(argument.bytes.begin(), argument.bytes.end(), value.bytes);
    if (argument.address) {
      std::vector<uint8_t> bytes(memory.find(argument.address)->size);
      memory.readAny(argument.address, bytes.data(), bytes.size());
      driver.check(driver.cuMemAlloc_v2(&address, bytes.size()), bytes.size(),
                   " bytes of the GPU's memory");
      driver.check(driver.cuMemcpyHtoD_v2(address, bytes.data(), bytes.size()),
                   "a copy to the GPU");
      if (argument.bytes.size() == sizeof(TensorMapBytes))
        encode(argument.bytes.data(), address, value);
      else
        std::memcpy(value.bytes, &address, sizeof(address));
    }
    made.buffers.push_back(address);
  }
  return made;
}

void Device::State::download(const Uploaded &uploaded,
                             const std::vector<Argument> &arguments,
                             Memory &memory) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!uploaded.buffers[i])
      continue;
    std::vector<uint8_t> bytes(memory.find(arguments[i].address)->size);
    driver.check(
        driver.cuMemcpyDtoH_v2(bytes.data(), uploaded.buffers[i], bytes.size()),
        "a copy from the GPU");
    memory.write(arguments[i].address, bytes.data(), bytes.size());
  }
}

void Device::run(const EntryInfo &info, const LaunchOptions &options,
                 const std::vector<Argument> &arguments, unsigned repeat,
                 Memory &memory) {
  const Driver &driver = state->driver;
  Function function = nullptr;
  driver.check(
      driver.cuModuleGetFunction(&function, state->module, info.name.c_str()),
      "an entry '", info.name, "'");
  if (options.dynamicShared)
    driver.check(driver.cuFuncSetAttribute(function, MaxDynamicShared,
                                           int(options.dynamicShared)),
                 options.dynamicShared, " bytes of dynamic shared memory");
  if (options.cluster.count() > 8)
    driver.check(driver.cuFuncSetAttribute(function, LargeClusterAllowed, 1),
                 "clusters of ", options.cluster.count(), " blocks");
  State::Uploaded uploaded = state->upload(arguments, memory);
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
    driver.check(saysCluster
                     ? driver.cuLaunchKernelEx(&config, function,
                                               parameters.data(), nullptr)
                     : driver.cuLaunchKernel(function, grid.x, grid.y, grid.z,
                                             block.x, block.y, block.z,
                                             options.dynamicShared, nullptr,
                                             parameters.data(), nullptr),
                 "'", info.name, "' to be launched");
  driver.check(driver.cuCtxSynchronize(), "'", info.name, "' to run");
  state->download(uploaded, arguments, memory);
}
