// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads the kernels of a step, and launches them as its manifest says.

#include "CudaKernels.h"
#include "base/Status.h"
#include "step/Step.h"
#include <algorithm>
#include <cstdio>
#include <cstring>

using namespace sparse_opt;
using namespace sparse_opt::cuda;

/// Fails unless a GPU that steps are compiled for `target` for runs kernels for
/// `chip`.
static void requireChip(const Manifest &manifest, const std::string &target) {
  // Those of one architecture ("a") run there; others there and on later ones.
  const std::string &chip = manifest.chip;
  auto number = [](const std::string &name) {
    return std::atoi(name.c_str() + 3);
  };
  bool isOfOne = !chip.empty() && chip.back() == 'a';
  if (isOfOne ? chip == target : number(chip) <= number(target))
    return;
  fail(BSR_INVALID_STEP, "expected a step for ", target,
       ", which the GPU takes, but got '", manifest.name, "', compiled for ",
       chip, ": compile it with --target=", target);
}

/// Says that the driver compiles the kernels of `step`, if that takes long:
/// some three seconds a MiB of text, which the driver then keeps on disk.
static void announce(const bsr_step &step) {
  size_t bytes = std::strlen(step.ptx);
  constexpr size_t mebibyte = size_t(1) << 20;
  if (bytes >= mebibyte)
    std::fprintf(stderr,
                 "the driver compiles the kernels of step '%s', %zu MiB of "
                 "PTX, which takes seconds the first time: sparse-compile does "
                 "so ahead where ptxas is installed\n",
                 step.manifest.name.c_str(), bytes / mebibyte);
}

CudaKernels::CudaKernels(CudaDevice &device, const bsr_step &step)
    : device(device), driver(device.driver), manifest(step.manifest) {
  if (!step.ptx)
    fail(BSR_INVALID_STEP, "expected device 'cpu' for step '", manifest.name,
         "', which was compiled for processors, but got '", device.name(), "'");
  requireChip(manifest, device.target());
  module = driver.load(step.ptx, step.cubin, [&] { announce(step); });
  try {
    for (const Launch &launch : manifest.launches)
      find(launch);
  } catch (...) {
    driver.cuModuleUnload(module);
    throw;
  }
}

CudaKernels::~CudaKernels() {
  CurrentContext current = device.tryCurrent();
  driver.cuModuleUnload(module);
}

void CudaKernels::find(const Launch &launch) {
  Kernel &kernel = kernels[launch.kernel];
  if (!kernel.function)
    driver.check(driver.cuModuleGetFunction(&kernel.function, module,
                                            launch.kernel.c_str()),
                 "a kernel '", launch.kernel, "'");
  // Without leave a kernel has 48 KiB, static memory included, and clusters of
  // 8 blocks.
  if (launch.sharedBytes > kernel.sharedBytes)
    driver.check(driver.cuFuncSetAttribute(kernel.function, MaxDynamicShared,
                                           int(launch.sharedBytes)),
                 launch.sharedBytes, " bytes of shared memory for '",
                 launch.kernel, "'");
  kernel.sharedBytes = std::max(kernel.sharedBytes, launch.sharedBytes);
  const auto &cluster = launch.cluster;
  if (unsigned blocks = cluster[0] * cluster[1] * cluster[2]; blocks > 8)
    driver.check(
        driver.cuFuncSetAttribute(kernel.function, LargeClusterAllowed, 1),
        "clusters of ", blocks, " blocks for '", launch.kernel, "'");
  requireRoom(launch, kernel.function);
}

/// How `launch` is launched in `stream`, in a cluster if it has one, which
/// `cluster` is made.
static LaunchConfig makeConfig(const Launch &launch, Stream stream,
                               LaunchAttribute &cluster) {
  cluster = {LaunchAttribute::cluster, 0, {}};
  std::copy(launch.cluster.begin(), launch.cluster.end(), cluster.extents);
  bool isAlone = launch.cluster == std::array<unsigned, 3>{1, 1, 1};
  return {{launch.grid[0], launch.grid[1], launch.grid[2]},
          {launch.block[0], launch.block[1], launch.block[2]},
          unsigned(launch.sharedBytes),
          stream,
          &cluster,
          isAlone ? 0u : 1u};
}

void CudaKernels::requireRoom(const Launch &launch, Function function) const {
  LaunchAttribute cluster;
  LaunchConfig config = makeConfig(launch, /*stream=*/nullptr, cluster);
  if (!config.attributeCount)
    return;
  // A part of a GPU may lack multiprocessors that lie together.
  int clusters = 0;
  driver.check(
      driver.cuOccupancyMaxActiveClusters(&clusters, function, &config),
      "the number of clusters of '", launch.kernel,
      "' that the GPU has room for");
  if (!clusters)
    fail(BSR_DEVICE_ERROR, "expected a GPU with room for ",
         launch.cluster[0] * launch.cluster[1] * launch.cluster[2],
         " thread blocks of ", launch.sharedBytes,
         " bytes of shared memory side by side, a cluster of '", launch.kernel,
         "', but got ", device.describe(),
         " without: compile the step with --target=sm_90, which has none");
}

Address CudaKernels::addressOf(const LaunchArgument &argument,
                               const LaunchMemory &memory) const {
  int64_t at = argument.value, plans = manifest.planBytes;
  const void *found = argument.kind != LaunchArgument::Arena
                          ? memory.buffers[at]
                      : at < plans ? memory.plans + at
                                   : memory.rest + (at - plans);
  return reinterpret_cast<Address>(found);
}

/// The driver's name of an element type, by its bytes: copies know no other
/// difference.
static TensorType tensorType(bsr_type type) {
  switch (bsr_type_bytes(type)) {
  case 1:
    return UInt8;
  case 2:
    return UInt16;
  case 4:
    return UInt32;
  default:
    return UInt64;
  }
}

void CudaKernels::encode(const LaunchArgument &argument,
                         const LaunchMemory &memory, TensorMapBytes &to) const {
  const LaunchArgument::Map &map = *argument.map;
  // The driver counts dimensions from the innermost.
  std::vector<uint64_t> sizes(map.shape.rbegin(), map.shape.rend()), strides;
  std::vector<uint32_t> box(map.box.rbegin(), map.box.rend()),
      ones(map.box.size(), 1);
  uint64_t stride = uint64_t(bsr_type_bytes(map.type));
  for (uint64_t size : sizes)
    strides.push_back(stride *= size);
  int swizzle = 0;
  for (int64_t bytes = map.swizzle; bytes >= 32; bytes /= 2)
    ++swizzle;
  const int noInterleave = 0, linesOf128Bytes = 2, zerosOutside = 0;
  driver.check(driver.cuTensorMapEncodeTiled(
                   &to, tensorType(map.type), unsigned(sizes.size()),
                   reinterpret_cast<void *>(addressOf(argument, memory)),
                   sizes.data(), strides.data(), box.data(), ones.data(),
                   noInterleave, swizzle, linesOf128Bytes, zerosOutside),
               "a tensor map");
}

void CudaKernels::enqueue(const Launch &launch, const LaunchMemory &memory,
                          Stream stream) const {
  std::vector<TensorMapBytes> values(launch.arguments.size());
  std::vector<void *> parameters;
  for (size_t i = 0; i < values.size(); ++i) {
    const LaunchArgument &argument = launch.arguments[i];
    if (argument.map) {
      encode(argument, memory, values[i]);
    } else if (argument.kind == LaunchArgument::Number) {
      auto number = uint32_t(argument.value);
      std::memcpy(values[i].bytes, &number, sizeof number);
    } else {
      Address address = addressOf(argument, memory);
      std::memcpy(values[i].bytes, &address, sizeof address);
    }
    parameters.push_back(values[i].bytes);
  }
  LaunchAttribute cluster;
  LaunchConfig config = makeConfig(launch, stream, cluster);
  driver.check(driver.cuLaunchKernelEx(&config,
                                       kernels.at(launch.kernel).function,
                                       parameters.data(), nullptr),
               "'", launch.kernel, "' to be launched");
}

std::vector<const Launch *> CudaKernels::select(Times times) const {
  std::vector<const Launch *> selected;
  for (const Launch &launch : manifest.launches)
    if (std::count(times.begin(), times.end(), launch.when))
      selected.push_back(&launch);
  return selected;
}
