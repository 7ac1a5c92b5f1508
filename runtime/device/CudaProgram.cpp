// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a step on a GPU: its launches are recorded once, as graphs, and then
// started by one call a run.

#include "CudaDevice.h"
#include "base/Status.h"
#include "step/Step.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

using namespace bsr;
using namespace bsr::cuda;

namespace {
class CudaProgram : public Program {
public:
  CudaProgram(CudaDevice &device, const bsr_step &step, void *const *buffers,
              void *arena);
  ~CudaProgram() override;

  void run(bool scores, bool patternsChanged) override;

private:
  using Times = std::initializer_list<Launch::When>;

  Function find(const Launch &launch);
  /// The address that `argument` names.
  Address addressOf(const LaunchArgument &argument) const;
  /// Tells the driver of the tensor of `argument`. Into its place, since
  /// compilers return what is aligned to 128 bytes in temporaries that are not.
  void encode(const LaunchArgument &argument, TensorMapBytes &to) const;
  void enqueue(const Launch &launch);
  /// The launches of `times`, in their order.
  std::vector<const Launch *> select(Times times) const;
  /// Starts the launches of `times`, which `exec` records the first time.
  void run(GraphExec &exec, Times times);
  /// Starts them one by one, and adds to the timer of each how long it took.
  void measure(Times times);

  CudaDevice &device;
  const Driver &driver;
  const Manifest &manifest;
  void *const *buffers;
  char *arena;
  LoadedModule module = nullptr;
  std::map<std::string, Function> functions;
  GraphExec plans = nullptr, plain = nullptr, scoring = nullptr;
  int64_t (*timers)[2];                  // of the step; null without
  std::map<std::string, size_t> timerOf; // a kernel
  std::vector<Event> events;
};
} // namespace

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

CudaProgram::CudaProgram(CudaDevice &device, const bsr_step &step,
                         void *const *buffers, void *arena)
    : device(device), driver(device.driver), manifest(step.manifest),
      buffers(buffers), arena(static_cast<char *>(arena)), timers(step.timers) {
  requireChip(manifest, device.target());
  device.makeCurrent();
  module = driver.load(step.ptx, step.cubin);
  for (const Launch &launch : manifest.launches)
    find(launch);
  for (size_t i = 0; i < manifest.timers.size(); ++i)
    timerOf[manifest.timers[i].kernel] = i;
}

CudaProgram::~CudaProgram() {
  // What is left of a GPU that was lost needs no end.
  driver.cuStreamSynchronize(device.stream);
  for (GraphExec exec : {plans, plain, scoring})
    if (exec)
      driver.cuGraphExecDestroy(exec);
  for (Event event : events)
    driver.cuEventDestroy_v2(event);
  if (module)
    driver.cuModuleUnload(module);
}

Function CudaProgram::find(const Launch &launch) {
  Function &function = functions[launch.kernel];
  if (!function)
    driver.check(
        driver.cuModuleGetFunction(&function, module, launch.kernel.c_str()),
        "a kernel '", launch.kernel, "'");
  // Without leave a kernel has 48 KiB, static memory included, and clusters of
  // 8 blocks.
  if (launch.sharedBytes)
    driver.check(driver.cuFuncSetAttribute(function, MaxDynamicShared,
                                           int(launch.sharedBytes)),
                 launch.sharedBytes, " bytes of shared memory for '",
                 launch.kernel, "'");
  const auto &cluster = launch.cluster;
  if (unsigned blocks = cluster[0] * cluster[1] * cluster[2]; blocks > 8)
    driver.check(driver.cuFuncSetAttribute(function, LargeClusterAllowed, 1),
                 "clusters of ", blocks, " blocks for '", launch.kernel, "'");
  return function;
}

Address CudaProgram::addressOf(const LaunchArgument &argument) const {
  const void *memory = argument.kind == LaunchArgument::Arena
                           ? arena + argument.value
                           : buffers[argument.value];
  return reinterpret_cast<Address>(memory);
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

void CudaProgram::encode(const LaunchArgument &argument,
                         TensorMapBytes &to) const {
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
                   reinterpret_cast<void *>(addressOf(argument)), sizes.data(),
                   strides.data(), box.data(), ones.data(), noInterleave,
                   swizzle, linesOf128Bytes, zerosOutside),
               "a tensor map");
}

void CudaProgram::enqueue(const Launch &launch) {
  std::vector<TensorMapBytes> values(launch.arguments.size());
  std::vector<void *> parameters;
  for (size_t i = 0; i < values.size(); ++i) {
    const LaunchArgument &argument = launch.arguments[i];
    if (argument.map) {
      encode(argument, values[i]);
    } else if (argument.kind == LaunchArgument::Number) {
      auto number = uint32_t(argument.value);
      std::memcpy(values[i].bytes, &number, sizeof number);
    } else {
      Address address = addressOf(argument);
      std::memcpy(values[i].bytes, &address, sizeof address);
    }
    parameters.push_back(values[i].bytes);
  }
  LaunchAttribute cluster{LaunchAttribute::cluster, 0, {}};
  std::copy(launch.cluster.begin(), launch.cluster.end(), cluster.extents);
  LaunchConfig config{{launch.grid[0], launch.grid[1], launch.grid[2]},
                      {launch.block[0], launch.block[1], launch.block[2]},
                      unsigned(launch.sharedBytes),
                      device.stream,
                      &cluster,
                      launch.cluster == std::array<unsigned, 3>{1, 1, 1} ? 0u
                                                                         : 1u};
  driver.check(driver.cuLaunchKernelEx(&config, find(launch), parameters.data(),
                                       nullptr),
               "'", launch.kernel, "' to be launched");
}

std::vector<const Launch *> CudaProgram::select(Times times) const {
  std::vector<const Launch *> selected;
  for (const Launch &launch : manifest.launches)
    if (std::count(times.begin(), times.end(), launch.when))
      selected.push_back(&launch);
  return selected;
}

void CudaProgram::measure(Times times) {
  std::vector<const Launch *> launches = select(times);
  while (events.size() <= launches.size()) {
    events.emplace_back();
    driver.check(driver.cuEventCreate(&events.back(), 0), "an event");
  }
  auto record = [&](Event event) {
    driver.check(driver.cuEventRecord(event, device.stream), "an event");
  };
  record(events[0]);
  for (size_t i = 0; i < launches.size(); ++i) {
    enqueue(*launches[i]);
    record(events[i + 1]);
  }
  driver.check(driver.cuEventSynchronize(events[launches.size()]),
               "the GPU to work");
  for (size_t i = 0; i < launches.size(); ++i) {
    float milliseconds = 0;
    driver.check(
        driver.cuEventElapsedTime(&milliseconds, events[i], events[i + 1]),
        "the time of '", launches[i]->kernel, "'");
    int64_t *row = timers[timerOf[launches[i]->kernel]];
    row[0] += std::llround(double(milliseconds) * 1e6);
    ++row[1];
  }
}

void CudaProgram::run(GraphExec &exec, Times times) {
  std::vector<const Launch *> launches = select(times);
  if (launches.empty())
    return;
  if (!exec) {
    Graph graph = nullptr;
    driver.check(
        driver.cuStreamBeginCapture_v2(device.stream, threadLocalCapture),
        "a graph of launches");
    // A recording that is not ended would swallow all that follows.
    std::exception_ptr failure;
    try {
      for (const Launch *launch : launches)
        enqueue(*launch);
    } catch (...) {
      failure = std::current_exception();
    }
    Result ended = driver.cuStreamEndCapture(device.stream, &graph);
    if (failure)
      std::rethrow_exception(failure);
    driver.check(ended, "a graph of launches");
    Result made = driver.cuGraphInstantiateWithFlags(&exec, graph, 0);
    driver.cuGraphDestroy(graph);
    driver.check(made, "a graph that can be launched");
  }
  driver.check(driver.cuGraphLaunch(exec, device.stream), "step '",
               manifest.name, "' to be launched");
}

void CudaProgram::run(bool scores, bool patternsChanged) {
  device.makeCurrent();
  if (timers) {
    // The first timer is the step's own: it counts runs.
    ++timers[0][1];
    if (patternsChanged)
      measure({Launch::Pattern});
    return scores ? measure({Launch::Step, Launch::Scores})
                  : measure({Launch::Step});
  }
  if (patternsChanged)
    run(plans, {Launch::Pattern});
  if (scores)
    run(scoring, {Launch::Step, Launch::Scores});
  else
    run(plain, {Launch::Step});
}

std::unique_ptr<Program> CudaDevice::load(const bsr_step &step,
                                          void *const *buffers, void *arena) {
  if (!step.ptx)
    fail(BSR_INVALID_STEP, "expected device 'cpu' for step '",
         step.manifest.name, "', which was compiled for processors, but got '",
         name(), "'");
  return std::make_unique<CudaProgram>(*this, step, buffers, arena);
}
