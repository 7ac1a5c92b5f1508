// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A libcuda.so.1 whose GPU is the PTX interpreter: what it holds. Errors are
// those of CUDA; what CUDA has and this driver has not is NotSupported. What
// the interpreter says of a failure goes to stderr.
//
// FAKE_DRIVER_DEVICES is how many GPUs there are (1; at most 2, of which the
// second has a context and nothing else), or "hidden",
// where the driver starts and counts none,
// FAKE_DRIVER_CHIP what chip (sm_90a), FAKE_DRIVER_MEMORY the bytes of its
// memory (4 GiB), FAKE_DRIVER_CLUSTERS for how many clusters there is room at
// one time (as many as the chip's multiprocessors make), and FAKE_DRIVER_LOSES
// the number of the launch, from 1, at
// which the GPU is lost. FAKE_DRIVER_CALLS is a file that the number of calls
// of each function is written to at the end.

#ifndef PTX_FAKEDRIVER_STATE_H
#define PTX_FAKEDRIVER_STATE_H

#include "ptx/Interpreter.h"
#include "support/CudaDriver.h"
#include "support/Error.h"
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#define FAKE_DECLARE(name, ...)                                                \
  extern "C" __attribute__((visibility("default")))                            \
  sparse_opt::cuda::Result name(__VA_ARGS__);
BSR_CUDA_FUNCTIONS(FAKE_DECLARE)
#undef FAKE_DECLARE

namespace sparse_opt::cuda {

using ptx::EntryInfo;
using ptx::LaunchOptions;
using ptx::Memory;
using ptx::Module;

struct FunctionState {
  const ModuleState *module;
  EntryInfo info;
  unsigned maxDynamicShared;
  bool isLargeClusterAllowed = false;
};

struct ModuleState {
  Module module;
  std::map<std::string, std::unique_ptr<FunctionState>> functions;
};

struct ContextState {};

/// What a stream does when it gets there: work runs when somebody waits for it,
/// so that a reader that does not wait reads old bytes. Fails by an error.
using Work = std::function<void()>;

struct StreamState {
  std::deque<Work> work;
  bool isCapturing = false;
  std::vector<Work> captured;
};

struct EventState {
  uint64_t recorded = 0; ///< how often a record was asked for
  uint64_t reached = 0;  ///< and how many of these the stream has got to
  StreamState *stream = nullptr;
  std::chrono::steady_clock::time_point time;
};

struct GraphState {
  std::vector<Work> work;
};
struct GraphExecState : GraphState {};

struct DriverState {
  ~DriverState();

  std::mutex mutex;
  std::map<std::string, uint64_t> calls; ///< of each function, how many
  bool isInitialized = false;
  ContextState context, second; ///< of each GPU
  unsigned retained = 0;        ///< how often the context is; 0: there is none
  uint64_t used = 0;            ///< bytes of memory
  uint64_t launches = 0;        ///< how many have run
  uint64_t graphLaunches = 0;
  Memory memory;
  std::map<LoadedModule, std::unique_ptr<ModuleState>> modules;
  std::map<void *, std::unique_ptr<char[]>> pinned;
  StreamState nullStream;
  std::map<Stream, std::unique_ptr<StreamState>> streams;
  std::map<Event, std::unique_ptr<EventState>> events;
  std::map<Graph, std::unique_ptr<GraphState>> graphs;
  std::map<GraphExec, std::unique_ptr<GraphExecState>> execs;
  Result failure = Success; ///< of a launch; the context is lost with it
};

DriverState &state();
/// The chip that the GPU is.
const nvidia::Chip &chip();
/// The context of this thread, or null.
Context &current();
/// Runs all that waits in streams, or in one; returns the failure of the
/// context.
Result finish();
Result finish(StreamState &stream);
/// The stream that `stream` names, the null stream too; null if there is none.
StreamState *findStream(Stream stream);
/// Lets `stream` do `work` after what it was given before, or records it.
void enqueue(StreamState &stream, Work work);
void report(const std::string &sentence);

/// Runs `body`, which returns a Result, where this thread has a context that
/// is not lost, and counts the call of `name`. What the interpreter refuses is
/// an invalid value.
template <typename Body>
Result inContext(Body body, const char *name = __builtin_FUNCTION()) {
  std::lock_guard<std::mutex> lock(state().mutex);
  ++state().calls[name];
  if (!state().isInitialized)
    return NotInitialized;
  if (current() != &state().context) {
    if (current())
      report(std::string("expected a thread with the GPU's context to call ") +
             name + ", but got one with another");
    return InvalidContext;
  }
  if (!state().retained)
    return ContextIsDestroyed;
  if (state().failure)
    return state().failure;
  try {
    return body();
  } catch (const sparse_opt::Error &error) {
    report(error.sentence);
    return InvalidValue;
  } catch (const std::bad_alloc &) {
    return OutOfMemory;
  }
}

} // namespace sparse_opt::cuda

#endif // PTX_FAKEDRIVER_STATE_H
