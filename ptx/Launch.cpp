// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a launch may ask for, and its blocks on all cores.

#include "Machine.h"
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

using namespace ptx;

static void checkBlock(const Launch &launch) {
  const EntryInfo &info = launch.kernel->info;
  const Chip &chip = *launch.chip;
  const Dim &block = launch.block;
  uint64_t threads = block.count();
  if (threads == 0 || threads > nvidia::maxBlockThreads || block.x > 1024 ||
      block.y > 1024 || block.z > 64)
    sparse_opt::fail("expected blocks of 1 to ", nvidia::maxBlockThreads,
                     " threads on ", chip.name, ", but got ", block.x, "x",
                     block.y, "x", block.z);
  if (info.maxThreads && threads > info.maxThreads)
    sparse_opt::fail("expected blocks of at most ", info.maxThreads,
                     " threads, which is the .maxntid of '", info.name,
                     "', but got ", threads);
  const Dim &required = info.requiredBlock;
  if (required.x &&
      (required.x != block.x || required.y != block.y || required.z != block.z))
    sparse_opt::fail("expected blocks of ", required.x, "x", required.y, "x",
                     required.z, ", which is the .reqntid of '", info.name,
                     "', but got ", block.x, "x", block.y, "x", block.z);
  unsigned registers = std::max(launch.options->registers, info.maxRegisters);
  if (registers > nvidia::maxThreadRegisters)
    sparse_opt::fail("expected at most ", nvidia::maxThreadRegisters,
                     " registers a thread on ", chip.name, ", but got ",
                     registers);
  uint64_t rounded = (threads + 31) / 32 * 32 * ((registers + 7) / 8 * 8);
  if (rounded > nvidia::maxBlockRegisters)
    sparse_opt::fail("expected at most ", nvidia::maxBlockRegisters,
                     " registers a block on ", chip.name, ", but got ",
                     rounded);
}

static void checkCluster(const Launch &launch) {
  const EntryInfo &info = launch.kernel->info;
  const Dim &size = launch.cluster, &grid = launch.grid,
            &required = info.requiredCluster;
  if (required.x &&
      (required.x != size.x || required.y != size.y || required.z != size.z))
    sparse_opt::fail("expected clusters of ", required.x, "x", required.y, "x",
                     required.z, ", which is the .reqnctapercluster of '",
                     info.name, "', but got ", size.x, "x", size.y, "x",
                     size.z);
  if (size.count() == 0 || size.x > 16 || size.y > 16 || size.z > 16 ||
      size.count() > launch.chip->maxCluster)
    sparse_opt::fail("expected clusters of at most ", launch.chip->maxCluster,
                     " blocks on ", launch.chip->name, ", but got ", size.x,
                     "x", size.y, "x", size.z);
  if (grid.count() == 0 || grid.x > 0x7fffffff || grid.y > 65535 ||
      grid.z > 65535)
    sparse_opt::fail(
        "expected a grid of 1 to 2147483647 x 65535 x 65535 blocks, but got ",
        grid.x, "x", grid.y, "x", grid.z);
  if (grid.x % size.x || grid.y % size.y || grid.z % size.z)
    sparse_opt::fail("expected a grid of whole clusters, but got ", grid.x, "x",
                     grid.y, "x", grid.z, " blocks in clusters of ", size.x,
                     "x", size.y, "x", size.z);
}

static void checkShared(Launch &launch) {
  unsigned align = launch.kernel->dynamicAlign;
  uint64_t begin =
      (uint64_t(sharedBase) + launch.kernel->info.staticShared + align - 1) /
      align * align;
  uint64_t end = begin + launch.options->dynamicShared;
  if (end - sharedBase > launch.chip->sharedLimit)
    sparse_opt::fail("expected at most ", launch.chip->sharedLimit,
                     " bytes of shared memory on ", launch.chip->name,
                     ", but got ", end - sharedBase);
  if (launch.kernel->info.staticShared > 48 * 1024)
    sparse_opt::fail(
        "expected at most 49152 bytes of static shared memory, but got ",
        launch.kernel->info.staticShared);
  unsigned offset = launch.options->sharedOffset,
           most = launch.kernel->sharedAlign;
  if (offset % most || offset >= 1024)
    sparse_opt::fail(
        "expected an offset of shared memory that is a multiple of ", most,
        " below 1024, but got ", offset);
  launch.dynamicBegin = uint32_t(begin + offset);
  launch.sharedEnd = uint32_t(end + offset);
}

/// The launch that `options` ask for; refuses what its chip does not do.
static Launch prepare(const Module &module, std::string_view entry,
                      const LaunchOptions &options) {
  const Program &program = module.program();
  const Kernel &kernel = program.kernel(entry);
  Launch launch{&program,
                &kernel,
                &options,
                options.chip ? options.chip : program.chip,
                nullptr,
                options.grid,
                options.block,
                options.cluster,
                {},
                0,
                0,
                0};
  if (!runsOn(*program.chip, *launch.chip))
    sparse_opt::fail("expected a module for ", launch.chip->name,
                     ", but got target ", program.target);
  checkBlock(launch);
  checkCluster(launch);
  checkShared(launch);
  launch.registers = registersAtLaunch(launch);
  if (options.parameters.size() != kernel.info.parameterBytes)
    sparse_opt::fail("expected ", kernel.info.parameterBytes,
                     " bytes of parameters of '", kernel.info.name,
                     "', but got ", options.parameters.size());
  for (uint64_t block : options.blocks)
    if (block >= options.grid.count())
      sparse_opt::fail("expected thread blocks of 0 to ",
                       options.grid.count() - 1, ", but got ", block);
  return launch;
}

void ptx::checkLaunch(const Module &module, std::string_view entry,
                      const LaunchOptions &options) {
  prepare(module, entry, options);
}

uint64_t ptx::clusterOf(uint64_t block, const LaunchOptions &options) {
  const Dim &grid = options.grid, &size = options.cluster;
  uint64_t x = block % grid.x / size.x, y = block / grid.x % grid.y / size.y,
           z = block / grid.x / grid.y / size.z;
  return x + grid.x / size.x * (y + grid.y / size.y * z);
}

/// The clusters that run, by their numbers.
static std::vector<uint64_t> chooseClusters(const LaunchOptions &options) {
  std::vector<uint64_t> chosen;
  for (uint64_t block : options.blocks)
    chosen.push_back(clusterOf(block, options));
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

/// PTX_RUN_THREADS of the environment, or one a core.
static unsigned defaultThreads() {
  const char *given = std::getenv("PTX_RUN_THREADS");
  if (!given)
    return std::max(1u, std::thread::hardware_concurrency());
  char *end = nullptr;
  unsigned long threads = std::strtoul(given, &end, 10);
  if (*end || threads < 1 || threads > 1024)
    sparse_opt::fail(
        "expected PTX_RUN_THREADS to be a number of 1 to 1024, but got '",
        given, "'");
  return unsigned(threads);
}

Counts ptx::launch(const Module &module, std::string_view entry,
                   const LaunchOptions &options, Memory &memory) {
  Launch launch = prepare(module, entry, options);
  const Kernel &kernel = *launch.kernel;
  launch.memory = &memory;
  for (const auto &address : kernel.addresses)
    launch.addresses.push_back(module.address(address.second, memory));
  memory.beginLaunch(kernel.globalShift);

  std::vector<uint64_t> chosen = chooseClusters(options);
  uint64_t clusters = options.blocks.empty()
                          ? launch.grid.count() / launch.cluster.count()
                          : chosen.size();
  unsigned threads = options.threads ? options.threads : defaultThreads();
  // The order of atomic operations can be seen in what they return, and in sums
  // of floating-point numbers.
  if (kernel.globalAtomics)
    threads = 1;
  threads = unsigned(std::min<uint64_t>(threads, clusters));
  launch.isSerial = threads == 1;
  std::atomic<uint64_t> next{0}, stop{clusters};
  std::mutex mutex;
  Counts counts;
  std::string sentence;
  auto work = [&] {
    Cluster cluster(launch);
    uint64_t number = 0;
    try {
      while ((number = next++) < stop.load()) {
        cluster.start(chosen.empty() ? number : chosen[number]);
        cluster.run();
      }
    } catch (const sparse_opt::Error &error) {
      // The first block that fails is reported, whichever thread gets there
      // first.
      std::lock_guard<std::mutex> lock(mutex);
      if (number < stop.load()) {
        stop = number;
        sentence = error.sentence;
      }
    }
    std::lock_guard<std::mutex> lock(mutex);
    counts.add(cluster.counts);
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < threads; ++i)
    others.emplace_back(work);
  work();
  for (std::thread &other : others)
    other.join();
  if (!sentence.empty())
    throw sparse_opt::Error(sparse_opt::InvalidArgument, sentence);
  return counts;
}
