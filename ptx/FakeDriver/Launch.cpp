// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launches: what is asked for is checked at once, and runs when somebody waits.

#include "State.h"
#include <cstdlib>
#include <cstring>

using namespace sparse_opt::cuda;
using ptx::Dim;

static bool isKnown(Function function) {
  for (const auto &module : state().modules)
    for (const auto &entry : module.second->functions)
      if (entry.second.get() == function)
        return true;
  return false;
}

Result cuFuncSetAttribute(Function function, FunctionAttribute which,
                          int value) {
  return inContext([&] {
    if (!isKnown(function))
      return InvalidHandle;
    switch (which) {
    case MaxDynamicShared:
      if (value < 0 ||
          unsigned(value) + function->info.staticShared > chip().sharedLimit)
        return InvalidValue;
      function->maxDynamicShared = unsigned(value);
      return Success;
    case LargeClusterAllowed:
      function->isLargeClusterAllowed = value;
      return Success;
    }
    return NotSupported;
  });
}

static Result checkCluster(const FunctionState &function, const Dim &grid,
                           const Dim &cluster) {
  const Dim &required = function.info.requiredCluster;
  bool isRequired =
      !required.x || (required.x == cluster.x && required.y == cluster.y &&
                      required.z == cluster.z);
  unsigned most = function.isLargeClusterAllowed ? chip().maxCluster : 8;
  if (!isRequired || cluster.count() == 0 || cluster.count() > most ||
      grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
    return InvalidClusterSize;
  return Success;
}

/// The cluster of a launch of `function`: that of `config`, or the one that the
/// kernel declares, which needs no attribute.
static Result findCluster(const FunctionState &function,
                          const LaunchConfig &config, Dim &cluster) {
  const Dim &required = function.info.requiredCluster;
  cluster = required.x ? required : Dim();
  for (unsigned i = 0; i < config.attributeCount; ++i) {
    const LaunchAttribute &attribute = config.attributes[i];
    if (attribute.id != LaunchAttribute::cluster)
      return NotSupported;
    cluster = {attribute.extents[0], attribute.extents[1],
               attribute.extents[2]};
  }
  return Success;
}

/// Reads the thread block cluster of a launch, of which a function and a
/// configuration are there.
static Result readConfig(Function function, const LaunchConfig *config,
                         Dim &cluster) {
  if (!config || (config->attributeCount && !config->attributes))
    return InvalidValue;
  if (!isKnown(function))
    return InvalidHandle;
  return findCluster(*function, *config, cluster);
}

static Result launch(Function function, const LaunchConfig &config,
                     const Dim &cluster, void **parameters, void **extra) {
  StreamState *stream = findStream(config.stream);
  if (!isKnown(function) || !stream)
    return InvalidHandle;
  if (extra)
    return NotSupported;
  const ptx::EntryInfo &info = function->info;
  if (config.sharedBytes > function->maxDynamicShared ||
      (!parameters && !info.parameters.empty()))
    return InvalidValue;
  ptx::LaunchOptions options;
  options.grid = {config.grid[0], config.grid[1], config.grid[2]};
  options.block = {config.block[0], config.block[1], config.block[2]};
  options.cluster = cluster;
  options.dynamicShared = config.sharedBytes;
  options.chip = &chip();
  if (Result result = checkCluster(*function, options.grid, cluster))
    return result;
  options.parameters.resize(info.parameterBytes);
  for (size_t i = 0; i < info.parameters.size(); ++i)
    std::memcpy(&options.parameters[info.parameters[i].offset], parameters[i],
                info.parameters[i].size);
  const ptx::Module &module = function->module->module;
  ptx::checkLaunch(module, info.name, options);
  enqueue(*stream, [module, name = info.name, options] {
    const char *lost = std::getenv("FAKE_DRIVER_LOSES");
    if (++state().launches == (lost ? std::strtoull(lost, nullptr, 10) : 0))
      sparse_opt::fail("expected a GPU, but got one that was lost");
    ptx::launch(module, name, options, state().memory);
  });
  return Success;
}

Result cuLaunchKernel(Function function, unsigned gridX, unsigned gridY,
                      unsigned gridZ, unsigned blockX, unsigned blockY,
                      unsigned blockZ, unsigned sharedBytes, Stream stream,
                      void **parameters, void **extra) {
  LaunchConfig config{{gridX, gridY, gridZ},
                      {blockX, blockY, blockZ},
                      sharedBytes,
                      stream,
                      nullptr,
                      0};
  return cuLaunchKernelEx(&config, function, parameters, extra);
}

Result cuLaunchKernelEx(const LaunchConfig *config, Function function,
                        void **parameters, void **extra) {
  return inContext([&] {
    Dim cluster;
    if (Result result = readConfig(function, config, cluster))
      return result;
    return launch(function, *config, cluster, parameters, extra);
  });
}

Result cuOccupancyMaxActiveClusters(int *clusters, Function function,
                                    const LaunchConfig *config) {
  return inContext([&] {
    Dim cluster;
    if (Result result = readConfig(function, config, cluster))
      return result;
    if (!clusters)
      return InvalidValue;
    Dim grid = {config->grid[0], config->grid[1], config->grid[2]};
    if (Result result = checkCluster(*function, grid, cluster))
      return result;
    if (config->sharedBytes > function->maxDynamicShared)
      return InvalidValue;
    const char *room = std::getenv("FAKE_DRIVER_CLUSTERS");
    *clusters = room ? std::atoi(room)
                     : int(chip().multiprocessors / int64_t(cluster.count()));
    return Success;
  });
}
