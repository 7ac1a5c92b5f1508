// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a step on a GPU: its launches are recorded once, as graphs, and then
// started by one call a run.

#include "CudaKernels.h"
#include "base/Status.h"
#include "step/Step.h"
#include <cmath>
#include <map>

using namespace sparse_opt;
using namespace sparse_opt::cuda;

namespace {
class CudaProgram : public Program {
public:
  CudaProgram(CudaDevice &device, const bsr_step &step, void *const *buffers,
              void *arena);
  ~CudaProgram() override;

  void run(bool scores, bool patternsChanged) override;

private:
  using Times = CudaKernels::Times;

  void enqueue(const Launch &launch) {
    kernels.enqueue(launch, memory, device.stream);
  }
  /// Starts the launches of `times`, which `exec` records the first time.
  void run(GraphExec &exec, Times times);
  /// Starts them one by one, and adds to the timer of each how long it took.
  void measure(Times times);

  CudaDevice &device;
  const Driver &driver;
  const Manifest &manifest;
  CudaKernels kernels;
  LaunchMemory memory;
  GraphExec plans = nullptr, plain = nullptr, scoring = nullptr;
  int64_t (*timers)[2];                  // of the step; null without
  std::map<std::string, size_t> timerOf; // a kernel
  std::vector<Event> events;
};
} // namespace

CudaProgram::CudaProgram(CudaDevice &device, const bsr_step &step,
                         void *const *buffers, void *arena)
    : device(device), driver(device.driver), manifest(step.manifest),
      kernels(device, step), memory{buffers, static_cast<char *>(arena),
                                    static_cast<char *>(arena) +
                                        manifest.planBytes},
      timers(step.timers) {
  for (size_t i = 0; i < manifest.timers.size(); ++i)
    timerOf[manifest.timers[i].kernel] = i;
}

CudaProgram::~CudaProgram() {
  // What is left of a GPU that was lost needs no end. The thread may be any.
  CurrentContext current = device.tryCurrent();
  driver.cuStreamSynchronize(device.stream);
  for (GraphExec exec : {plans, plain, scoring})
    if (exec)
      driver.cuGraphExecDestroy(exec);
  for (Event event : events)
    driver.cuEventDestroy_v2(event);
}

void CudaProgram::measure(Times times) {
  std::vector<const Launch *> launches = kernels.select(times);
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
  std::vector<const Launch *> launches = kernels.select(times);
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
  CurrentContext current = device.makeCurrent();
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
  CurrentContext current = makeCurrent();
  return std::make_unique<CudaProgram>(*this, step, buffers, arena);
}
